"""Conversion of a line's superscripts, subscripts and limits to `^{}` and `_{}`, by baselines and sizes of its pieces.

A raised or lowered piece is a script if it is smaller than its base and close to it. Footnote markers (`word3`) and
ordinals (`1st`) are not mathematics: a marker becomes `[^3]`, an ordinal stays as printed.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from corpus.read.printed import Piece

SMALLER = 0.88
"""Largest size of a script, as a share of its base's."""
SMALLEST = 0.45
"""Smallest size of a script, as a share of its base's; text next to a drop cap is smaller still."""
SHIFT = 0.08
"""Least distance of two baselines, in units of the font size."""
LOWEST, HIGHEST = -0.6, 0.8
"""Reach of scripts at the side of their base, in units of the font size."""
LEVEL = 0.2
"""Largest distance of two baselines of one line, in units of the font size."""
REACH = 0.95
"""Largest distance of a script's baseline from the line's."""
BLANK = 0.15
"""Least gap that counts as a space, in units of the font size."""
BEFORE = 0.22
"""Least gap that counts as a space before a script, in units of the font size."""
WIDE = 1.0
"""Gap at which a line is cut into cells."""
LONGEST = 60
"""Largest number of characters of a script."""
LIMITS_REACH = 2.0
"""Largest distance of the limits of a sum from its baseline."""
LIMIT_WORDS = re.compile(
    r"(?:lim|max|min|sup|inf|argmax|argmin|arg max|arg min|[\u2211\u220f\u22c2\u22c3\u222b\u222e)\]}|])$"
)
OPERATOR = re.compile(r"^[\u2211\u220f\u22c2\u22c3\u2a01\u2a02]$")
INTEGRAL = re.compile(r"^[\u222b\u222c\u222d\u222e]$")
SIGN_SIZE = 0.8
"""Least font size of a large sign, as a share of the text's: a smaller one is in a script."""
ALIGNED = 0.5
"""Largest distance between the left edges of two limits of one bracket, points."""
CLOSING = (")", "]", "}", "|")
ORDINAL = re.compile(r"^(?:st|nd|rd|th|er|re|\u00e8re|e|\u00e8me|o|a|os|as)$")
SURE_ORDINAL = re.compile(r"^(?:st|nd|rd|th|er|\u00e8re|\u00e8me)$")
NOTE = re.compile(r"^(?:\[?\d{1,3}(?:\s?[,\u2013-]\s?\d{1,3})*\]?|[*\u2217\u2020\u2021\u00a7\u00b6\u2225]{1,3}|[a-h])$")
TRADE = re.compile(r"^(?:TM|SM|\u2122|\u00ae|\u00a9)$")
OPENING = re.compile(r"^[\w(\[{|\\]")
"""Beginning of text that may follow an exponent closely, but never a footnote marker."""
OPERANDS = frozenset("*+=\u00d7\u00b7<>\u2264\u2265\u00b1\u2208\u2227\u2261\u2248")
"""Symbols before a word that make it a quantity, which has exponents and no footnotes."""
RELATED = re.compile(r"^\s*[=+<>\u2264\u2265\u00d7\u2208\u2227\u2261\u2248]")
"""Symbols after a quantity."""
FACTOR = re.compile(r"[)}\u00b1\u00d7\u00f7\u2200-\u22ff]$")
"""Symbols right before a word that make it a factor."""
MATHEMATICS = re.compile(r"[=<>\u00b1\u00d7\u2190-\u21ff\u2200-\u22ff]|\\[a-z]+\{|[_^]\{")
"""Symbols of formulas: in a line with one of them, a raised letter is not a footnote marker."""
NO_SCRIPT = re.compile(r"^[_.,]+$")
SYMBOLS = re.compile(r"cmsy|cmbsy|msbm|math-?symbols|mathsy|mtsy|txsy|pxsy", re.IGNORECASE)
NOUGHTS = re.compile(r"^0{1,4}$")
CARETS = re.compile(r"^[\u2227^]+$")
"""Raised wedges, which represent the caret of the keyboard."""
PRIMES = re.compile(r"^[\u2032'\u2033\u2034]+$")
WORD_END = re.compile(r"[^\W\d_]+$")
YEAR_END = re.compile(r"[a-z]{2,}[ ,.(]+(?:1[5-9]|20[0-3])\d\d$")
GREEK = re.compile(r"[\u0370-\u03ff\U0001d400-\U0001d7ff]")
_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh exp log ln lg det dim ker deg gcd mod arg lim max min sup inf "
    "arcsin arccos arctan Pr rank tr Tr GL SL SO SU Sp Hom End Aut Gal mm cm dm km nm kg ms ft in mi Hz Pa eV "
    "MeV GeV mol rad"
)
NAMES = frozenset(_NAMES.split())
"""Functions and units, after which a raised number is an exponent."""
SOLIDUS = re.compile(r"\^\{(\d{1,3})\}\s?[/\u2044]\s?_\{(\d{1,3})\}")


def assemble_scripts(pieces: Sequence[Piece]) -> list[Piece]:
    """Join the pieces of each formula with scripts into one piece; all other pieces stay unchanged."""
    result: list[Piece] = []
    group: list[Piece] = []
    for piece in _place_operators(pieces):
        if group and not _adjoins(group, piece):
            result.append(join_pieces(group))
            group = []
        group.append(piece)
    return [*result, join_pieces(group)] if group else result


def _place_operators(pieces: Sequence[Piece]) -> list[Piece]:
    """Give large operators the size of the text around them, and move them to their position in reading order."""
    result = [
        _fit_operator(piece, pieces[max(0, n - 2) : n + 5])
        if OPERATOR.match(piece.text) or INTEGRAL.match(piece.text)
        else piece
        for n, piece in enumerate(pieces)
    ]
    for place in range(len(result) - 1):
        limit, sign = result[place : place + 2]
        if OPERATOR.match(sign.text) and limit.size <= SMALLER * sign.size and 0.8 < (limit.y - sign.y) / sign.size < 2:
            middle = (limit.x0 + limit.x1) / 2
            if sign.x0 - 1 < middle < sign.x1 + 1:
                result[place : place + 2] = [sign, limit]
    return result


def _fit_operator(operator: Piece, near: Sequence[Piece]) -> Piece:
    """Give a large operator the size and baseline of the text next to it, which its own font may not have."""
    level = [p for p in near if p is not operator and abs(p.y - operator.y) < 0.3 * operator.size]
    text = max(level, key=lambda p: p.size, default=operator)
    differs = text.size <= SMALLER * operator.size or SIGN_SIZE * text.size < operator.size <= SMALLER * text.size
    return replace(operator, size=text.size, y=text.y) if differs else operator


def join_pieces(group: Sequence[Piece]) -> Piece:
    """Join the pieces of one line into one piece, with the font and baseline of the main (largest) piece."""
    if len(group) == 1:
        return group[0]
    main = _main(group)
    last = group[-1]
    return replace(
        main,
        text=linear_text(group, main),
        x0=min(piece.x0 for piece in group),
        x1=max(piece.x1 for piece in group),
        bold=all(piece.bold for piece in group),
        broken=last.broken,
        slanted=last.slanted,
    )


def _main(group: Sequence[Piece]) -> Piece:
    """The widest piece of about the largest size."""
    largest = max(piece.size for piece in group)
    return max((piece for piece in group if piece.size > SMALLER * largest), key=lambda p: p.x1 - p.x0)


def _side(piece: Piece, main: Piece) -> int:
    """Return 1 if a piece is a superscript of the main piece, -1 for a subscript, 0 for neither."""
    shift = piece.y - main.y
    if not SMALLEST * main.size <= piece.size <= SMALLER * main.size or len(piece.text) > LONGEST:
        return 0
    if abs(shift) < SHIFT * main.size or not LOWEST * main.size < shift < HIGHEST * main.size:
        return 0
    # An underscore or a comma in another font size is not a script.
    return 0 if NO_SCRIPT.match(piece.text) else 1 if shift > 0 else -1


def _adjoins(group: Sequence[Piece], piece: Piece) -> bool:
    """Whether a piece belongs to the formula before it."""
    main, last = _main(group), group[-1]
    size = max(main.size, piece.size)
    if _is_limit(group, piece, main):
        return True
    if abs(piece.y - main.y) > REACH * size:
        return False
    side, before = _side(piece, main), _side(last, main)
    if not side and main.size < piece.size:
        before = before or _side(last, piece)
    apart = abs(piece.y - main.y) > LEVEL * size or not (before or (piece.run and last.run))
    if not side and apart and (main.size > SMALLER * piece.size or not before):
        return False
    # A subscript may be below a superscript of the same base that is drawn before it.
    stacked = [other for other in group[-4:] if side and _side(other, main) == -side]
    # The lower limit of an integral is further to the left than other subscripts.
    lean = 0.9 if any(p.text.endswith(("\u222b", "\u222e")) for p in group[-4:]) else 0.35
    if stacked and piece.x0 >= min(p.x0 for p in stacked) - lean * size:
        return piece.x0 <= max(p.x1 for p in group) + WIDE * size
    gap = piece.x0 - max(p.x1 for p in group[-4:])
    if not side and main.size < piece.size / SMALLER:
        return -0.4 * size <= gap <= (0.3 if main.size < piece.size * SMALLER else WIDE) * size
    return -0.4 * size <= gap <= (0.45 if side and not before else WIDE) * size


def _is_limit(group: Sequence[Piece], piece: Piece, main: Piece) -> bool:
    """Whether a small piece is above or below the operator at the formula's end."""
    shift = (piece.y - main.y) / main.size
    if not SMALLEST * main.size <= piece.size <= SMALLER * main.size or abs(shift) > LIMITS_REACH:
        return False
    if LOWEST < shift < HIGHEST:
        return False
    carrier = next((p for p in reversed(group) if p.size > SMALLER * main.size), main)
    last = group[-1]
    is_under = last.y > main.y > piece.y and abs(last.x0 - piece.x0) < ALIGNED
    if carrier.text.endswith(CLOSING) and ((piece.y < main.y and not is_under) or carrier.text not in CLOSING):
        # The piece is an exponent of brackets that are drawn as one tall sign, or below it without one above.
        return False
    if not LIMIT_WORDS.search(carrier.text):
        return False
    reach = 4 if is_under else 1.2
    return carrier.x1 - 2.6 * main.size <= piece.x0 and piece.x1 <= carrier.x1 + reach * main.size


def linear_text(group: Sequence[Piece], main: Piece) -> str:
    """Join the texts of a line's pieces, with superscripts and subscripts as `^{}` and `_{}`."""
    text = ""
    right: float | None = None
    slanted = False
    place = 0
    while place < len(group):
        scripts = _scripts_at(group, place, main)
        if scripts:
            start, stop = min(piece.x0 for piece in scripts), max(piece.x1 for piece in scripts)
            follower = group[place + len(scripts)] if place + len(scripts) < len(group) else None
            close = follower is not None and follower.x0 - stop < BLANK * main.size
            blank = right is not None and start - right > BEFORE * main.size
            text += " " * blank
            after = "" if follower is None else follower.text if close else f" {follower.text}"
            text += _scripts_text(text, scripts, main, slanted, after)
            right = stop
            place += len(scripts)
            continue
        piece = group[place]
        blank = right is not None and piece.x0 - right > BLANK * main.size
        text += " " * blank + piece.text
        right, slanted = piece.x1, piece.slanted
        place += 1
    return SOLIDUS.sub(r" \1/\2", text).strip()


def _scripts_at(group: Sequence[Piece], place: int, main: Piece) -> list[Piece]:
    """The scripts of one base that begin at the index `place`."""
    scripts: list[Piece] = []
    for piece in group[place:]:
        far = not LOWEST * main.size < piece.y - main.y < HIGHEST * main.size and piece.size <= SMALLER * main.size
        if piece.size > SMALLER * main.size and abs(piece.y - main.y) < SHIFT * main.size:
            break
        nested = any(side and _is_nested(side, piece) for side in _split_sides(scripts, main))
        if not (far or nested or _side(piece, main)):
            break
        if scripts and piece.x0 - max(p.x1 for p in scripts) > 0.6 * main.size:
            break
        scripts.append(piece)
    return scripts


def _scripts_text(text: str, scripts: Sequence[Piece], main: Piece, slanted: bool, after: str) -> str:
    """Text of the scripts that follow `text`; `after` is the text after the scripts."""
    if main.mono:
        return "".join(piece.text for piece in scripts)
    upper, lower = _split_sides(scripts, main)
    # Zeros in symbol fonts without Unicode values are primes, which have the code of a zero there.
    upper = [
        replace(piece, text="\u2032" * len(piece.text))
        if SYMBOLS.search(piece.font) and NOUGHTS.match(piece.text)
        else piece
        for piece in upper
    ]
    above, below = (linear_text(part, _main(part)) if part else "" for part in (upper, lower))
    if not below and (plain := _plain_text(text, above, slanted, upper, after)) is not None:
        return plain
    primes = PRIMES.match(above)
    return (
        (above if primes else "")
        + (f"_{{{below}}}" if below else "")
        + (f"^{{{above}}}" if above and not primes else "")
    )


def _split_sides(scripts: Sequence[Piece], main: Piece) -> tuple[list[Piece], list[Piece]]:
    """Split scripts into superscripts and subscripts; a smaller piece right after a script is a script of it."""
    sides: dict[int, list[Piece]] = {1: [], -1: []}
    for piece in scripts:
        owners = [s for s in (1, -1) if sides[s] and _is_nested(sides[s], piece)]
        owner = min(owners, key=lambda s: abs(_main(sides[s]).y - piece.y), default=0)
        sides[owner or (1 if piece.y > main.y else -1)].append(piece)
    return sides[1], sides[-1]


def _is_nested(side: Sequence[Piece], piece: Piece) -> bool:
    """Whether a piece is a script of a script."""
    head = _main(side)
    right = max(p.x1 for p in side)
    is_close = abs(piece.y - head.y) < REACH * head.size and -0.3 * head.size <= piece.x0 - right <= 0.4 * head.size
    return piece.size <= SMALLER * head.size and is_close


def _plain_text(text: str, above: str, slanted: bool, upper: Sequence[Piece], after: str) -> str | None:
    """Plain text for a raised piece that is not an exponent, such as a footnote marker; None for an exponent."""
    bare = text.rstrip()
    # A letter with space between it and the word before it is the label of a footnote.
    note = f"[^{above}]" if above.isdecimal() or (above.isalpha() and bare == text) else above
    if CARETS.match(above) and (len(above) > 1 or bare[-1:].isdigit()):
        return "^" * len(above)
    if TRADE.match(above) or (bare.endswith("L") and above == "A" and after.startswith("T")):
        return above
    if not bare:
        # The label of a footnote, before the footnote's text, or a marker at the beginning of a line.
        return (f"[^{above}]" if above.isdecimal() else above) if NOTE.match(above) else None
    if bare[-1].isdigit() and (SURE_ORDINAL.match(above) or (ORDINAL.match(above) and not upper[0].slanted)):
        return above
    if not NOTE.match(above) or above == "0" or OPENING.match(after) or RELATED.match(after):
        return None
    if above.isalpha() and MATHEMATICS.search(bare):
        return None
    return note if _is_prose(bare, slanted) else None


def _is_prose(text: str, slanted: bool) -> bool:
    """Whether a text ends in prose: with a word, the end of a sentence, a remark in brackets or a year."""
    if re.search(r"[.!?]\)$", text) or text[-1] in '.,;:!?\u201d\u2019"':
        return True
    word = WORD_END.search(text)
    before = text[: word.start()] if word else ""
    if before.rstrip()[-1:] in OPERANDS or FACTOR.search(before):
        return False
    if word:
        return len(word[0]) > (2 if slanted else 1) and word[0] not in NAMES and not GREEK.search(word[0])
    if text[-1] == ")":
        start = text.rfind("(")
        inner = text[start + 1 : -1]
        words = [word for word in re.findall(r"[^\W\d_]{3,}", inner) if word not in NAMES]
        return start >= 0 and bool(words) and not re.search(r"[=+^_\\\u2212]", inner)
    return bool(YEAR_END.search(text))
