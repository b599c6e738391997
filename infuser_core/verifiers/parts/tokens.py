r"""Tokens of a written mathematical answer, and the units behind (or before) its value.

A token is a number (`12`, `.5`, `1,250`, `1.2e5`, `0.(3)`), a run of letters, a command (`\pi`), quoted words that came
from `\text{...}` (`"some words`), a matrix environment or row break, or one character. Spaces mean nothing, except that
two numbers are not one. Fractions, roots, binomials, powers and indices always carry their braces.

Units: `42 kg`, `5\text{ cm}^2`, `\$18.90`, `35\%`, `90^\circ`, `17 apples`. A known unit has a scale and dimensions, so
that `500 cm` is `5 m` and not `5 kg`. Words that are no unit name what is counted and change nothing, unless they
could: `43 million`, `43 squared`, `not 43`.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Tokens = tuple[str, ...]

MAX_LENGTH = 512
"""Longest text that is read, characters: no reference answer of the benchmarks comes near."""
MAX_DEPTH = 40
"""Deepest nesting of brackets that is read."""

_FUNCTIONS = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp sqrt max min gcd lcm det"
FUNCTIONS = frozenset(_FUNCTIONS.split())
COMMA = frozenset([",", ";"])
FULL_WIDTH = str.maketrans({0x3000: " ", **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}})
"""Letters, digits and signs as wide as a Chinese character, and the ASCII ones that they stand for."""
_UNICODE = FULL_WIDTH | str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "π": r"\pi ",
        "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\neq ", "≈": r"\approx ", "°": r"^\circ ", "∪": r"\cup ",
        "∈": r"\in ", "±": r"\pm ", "√": r"\sqrt ", "′": "'",
        "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "μ": r"\mu ", "²": "^2", "³": "^3",
        "∅": r"\emptyset ", "→": r"\to ", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    }
)  # fmt: skip
_MEANINGS = {
    "": "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle limits "
    "nolimits mathstrut , ! ; : > quad qquad space thinspace boxed fbox text textrm textnormal textup mbox mathrm "
    "textbf textit textsf texttt emph operatorname mathbf mathit mathsf mathtt mathcal mathbb mathfrak boldsymbol bm "
    "vec hat rm",
    r"\frac": "dfrac tfrac cfrac", r"\binom": "dbinom tbinom", "*": "times cdot ast", "/": "div", "%": "%",
    "<": "lt", ">": "gt", r"\le": "leq leqslant leqq", r"\ge": "geq geqslant geqq", r"\neq": "ne not",
    r"\approx": "simeq sim cong doteq", "|": "lvert rvert vert mid", r"\ldots": "dots cdots dotsc dotsb",
    r"\to": "rightarrow Rightarrow implies longrightarrow Longrightarrow mapsto iff Leftrightarrow leftrightarrow "
    "leftarrow Leftarrow", r"\{": "lbrace", r"\}": "rbrace", "[": "lbrack", "]": "rbrack", "°": "degree", "'": "prime",
    r"\emptyset": "varnothing", r"\infty": "infin", r"\cup": "bigcup", r"\epsilon": "varepsilon", r"\phi": "varphi",
    r"\theta": "vartheta", r"\overline": "bar",
}  # fmt: skip
_COMMANDS = {"\\" + name: meaning for meaning, names in _MEANINGS.items() for name in names.split()}
_WORDS = "text|textrm|textnormal|textup|mbox|mathrm|textbf|textit|textsf|texttt|emph|operatorname"
_UPRIGHT = frozenset(["text", "textrm", "textnormal", "textup", "mbox", "mathrm"])
_NUMBER = (
    r"\d{1,3}(?:(?:\{,\}|,?\\[!,:; ])\d{3})+(?!\d)(?:\.\d+)?"  # thousands as TeX sets them
    r"|[1-9]\d{0,2}(?:,\d{3})+(?!\d)(?:\.\d+)?"
    r"|\d*\.\d*\(\d+\)(?![\dA-Za-z(])"  # repeating digits
    r"|(?:\d+(?:\.\d+)?|\.\d+)[eE][+-]?\d+(?![\dA-Za-z.^])"
    r"|\d+\.(?=\s*\\(?:overline|bar|dot)\b)|\d+\.\d+|\d+|\.\d+"
)
_LEX = re.compile(
    rf"(?P<space>\s+|~|\\ )|(?P<words>\\(?:{_WORDS})\s*\{{[^{{}}]*\}})"
    r"|(?P<environment>\\(?:begin|end)\s*\{[a-zA-Z]+\*?\}(?:\s*\{[lcr| ]+\})?)"
    rf"|(?P<number>{_NUMBER})"
    r"|(?P<ordinal>(?<=\d)\s*\^?\s*\{?\s*(?:\\(?:text|mathrm)\s*\{\s*)?(?:th|st|nd|rd)\b[\s}]*)"
    r"|(?P<circle>\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\}))|(?P<prime>\^\s*(?:\\prime|\{\s*\\prime\s*\}))"
    r"|(?P<command>\\[A-Za-z]+|\\.)|(?P<letters>[A-Za-z]+)|(?P<dots>\.\.\.+)|(?P<power>\*\*)|(?P<other>.)",
    re.DOTALL | re.ASCII,
)
_BASE_NAMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "twelve": 12}
_BASE = re.compile(rf"(?<=\d)_\s*\{{?\s*\\(?:text|mathrm)\s*\{{({'|'.join(_BASE_NAMES)})\}}\s*\}}?", re.IGNORECASE)
_FIXED = {"space": (), "ordinal": (), "circle": ("°",), "prime": ("'",), "dots": (r"\ldots",), "power": ("^",)}
_OPEN, _CLOSE = frozenset(["(", "[", "{", r"\{"]), frozenset([")", "]", "}", r"\}"])
_ARGUMENTS = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1, "^": 1, "_": 1}


def too_big(text: str) -> bool:
    """Whether a text is longer, or nested deeper, than anything that is read."""
    depth = 0
    for character in text if len(text) <= MAX_LENGTH else "":
        depth += 1 if character in "([{" else -1 if character in ")]}" else 0
        if depth > MAX_DEPTH:
            return True
    return len(text) > MAX_LENGTH


@lru_cache(maxsize=16_384)
def tokens(text: str) -> Tokens:
    """The tokens of an answer; the text must not be `too_big`."""
    text = text.translate(_UNICODE).strip()
    if r"\begin" not in text:
        # Two backslashes before a name are an escape too many, except where they end a matrix row.
        text = re.sub(r"\\\\(?=[A-Za-z])", lambda _: "\\", text)
    text = re.sub(r"\\(?:left|right)\s*\.|\\\(|\\\)|\\\[|\\\]|(?<!\\)\$", "", text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", "*", text)
    text = _BASE.sub(lambda match: f"_{{{_BASE_NAMES[match[1].lower()]}}}", text)
    found: list[str] = []
    for match in _LEX.finditer(text):
        found.extend(_read(match, found))
    return _tidy(tuple(_with_braces(found)))


def spell(found: Tokens) -> str:
    """One spelling for the tokens, readable as LaTeX."""
    out = ""
    for token in found:
        numbers = out[-1:].isdigit() and token[0].isdigit()
        names = token[0].isalpha() and re.search(r"\\[A-Za-z]+\Z", out) is not None
        out += (" " if numbers or names else "") + (rf"\text{{{token[1:]}}}" if token[0] == '"' else token)
    return out


def match_of(found: Tokens | list[str], start: int) -> int:
    """Index of the bracket, of any kind, that closes the one at `start`; -1 when none does."""
    depth = 0
    for place in range(start, len(found)):
        depth += (found[place] in _OPEN) - (found[place] in _CLOSE)
        if depth == 0:
            return place
    return -1


def split(found: Tokens, marks: frozenset[str]) -> list[Tokens]:
    """The parts between marks that stand outside all brackets and environments."""
    parts: list[Tokens] = []
    depth, start = 0, 0
    for place, token in enumerate(found):
        depth += (token in _OPEN or token.startswith(r"\begin")) - (token in _CLOSE or token.startswith(r"\end"))
        if depth == 0 and token in marks:
            parts.append(found[start:place])
            start = place + 1
    return [*parts, found[start:]]


def _read(match: re.Match[str], before: list[str]) -> tuple[str, ...]:
    kind, text = match.lastgroup or "", match.group()
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "words":
        name, _, content = text[1:-1].partition("{")
        return _words(name.strip(), " ".join(re.sub(r"~|\\[ ,]", " ", content).split()), before)
    if kind == "number":
        return (re.sub(r"\{,\}|,?\\[!,:; ]", "", text),)
    if kind == "command":
        meaning = _COMMANDS.get(text, text)
        return (meaning,) if meaning else ()
    if kind == "letters":
        return ("\\" + text,) if text in FUNCTIONS or text == "pi" else (text,)
    return (re.sub(r"\s+|(?<=\})\{.*", "", text),) if kind == "environment" else (text,)


def _words(wrapper: str, content: str, before: list[str]) -> tuple[str, ...]:
    """Words stay one token; a letter, a number or a formula that was set upright is what it is."""
    if content in FUNCTIONS and not (content == "min" and before and before[-1][-1].isdigit()):
        return ("\\" + content,)
    letter = re.fullmatch(r"[({\[]?[A-Za-z][)}\]]?", content) is not None
    # Upright after a value a letter is a unit, but for the constants that are often set so.
    after_value = bool(before) and (before[-1][-1].isdigit() or before[-1] in ("}", ")"))
    is_unit = wrapper in _UPRIGHT and after_value and content not in ("e", "i")
    if (letter and not is_unit) or not re.search("[A-Za-z]", content):
        return tokens(content) if content else ()
    return ('"' + content,)


def _with_braces(found: list[str]) -> list[str]:
    r"""`\frac12`, `\sqrt 3`, `sqrt(3)`, `x^10` with their braces; other braces as parentheses, a set, or nothing."""
    out: list[str] = []
    rest = list(found)
    place = 0
    while place < len(rest):
        token = rest[place]
        place += 1
        if token == "{":
            end = match_of(rest, place - 1)
            inner = _with_braces(rest[place : end if end > 0 else len(rest)])
            is_argument = re.fullmatch(r"\\[A-Za-z]+", out[-1]) if out else None
            out.extend(["{", *inner, "}"] if is_argument else _grouped(inner))
            place = end + 1 if end > 0 else len(rest)
            continue
        out.append(token)
        if token == r"\sqrt" and rest[place : place + 1] == ["["]:
            end = match_of(rest, place)
            out.extend(rest[place : end + 1])
            place = max(place, end + 1)
        for _ in range(_ARGUMENTS.get(token, 0)):
            end = _argument_end(rest, place, token)
            argument = rest[place:end]
            if argument[:1] in (["{"], ["("]) and (argument[0] == "{" or token == r"\sqrt"):
                argument = argument[1:-1]
            out.extend(["{", *_with_braces(argument), "}"])
            place = end
    return out


def _grouped(inner: list[str]) -> list[str]:
    if len(split(tuple(inner), COMMA)) > 1:
        return [r"\{", *inner, r"\}"]
    return ["(", *inner, ")"] if len(inner) > 1 and inner[0] in ("+", "-") else inner


def _argument_end(rest: list[str], place: int, command: str) -> int:
    """One past the argument that starts at `place`; a number or a run of letters is cut where TeX would cut it."""
    if place >= len(rest):
        return place
    token = rest[place]
    if token == "{" or (token == "(" and command == r"\sqrt"):
        end = match_of(rest, place)
        return end + 1 if end > 0 else len(rest)
    if token in ("-", "+") and command == "^":
        return _argument_end(rest, place + 1, command)
    whole = command in ("^", "_", r"\sqrt") and token[0].isdigit()
    if not whole and token.isalnum() and len(token) > 1:
        rest[place : place + 1] = [token[0], token[1:]]
    end = place + 1
    for _ in range(_ARGUMENTS.get(token, 0)):
        end = _argument_end(rest, end, token)
    return end


def _tidy(found: Tokens) -> Tokens:
    """Without closing punctuation and without a leading `=`."""
    while len(found) > 1 and found[-1] in (".", ",", ";", ":", "\\"):
        found = found[:-1]
    return found[1:] if len(found) > 1 and found[0] == "=" else found


_BASES = {
    # name: (scale, dimensions); dimensions are letters, repeated for powers, capital letters below the line
    "m": ("1", "m"), "g": ("1/1000", "g"), "s": ("1", "s"), "A": ("1", "a"), "K": ("1", "k"), "mol": ("1", "o"),
    "N": ("1", "gmSS"), "J": ("1", "gmmSS"), "W": ("1", "gmmSSS"), "Pa": ("1", "gMSS"), "Hz": ("1", "S"),
    "V": ("1", "gmmSSSA"), "C": ("1", "sa"), "F": ("1", "GMMssssaa"), r"\Omega": ("1", "gmmSSSAA"), "T": ("1", "gSSA"),
    "H": ("1", "gmmSSAA"), "Wb": ("1", "gmmSSA"), "L": ("1/1000", "mmm"), "l": ("1/1000", "mmm"),
    "eV": ("1.602176634e-19", "gmmSS"), "cal": ("4.184", "gmmSS"),
}  # fmt: skip
_PREFIXES = {
    "G": "1e9", "M": "1e6", "k": "1e3", "d": "1e-1", "c": "1e-2", "m": "1e-3", "u": "1e-6", r"\mu": "1e-6", "n": "1e-9",
    "p": "1e-12",
}  # fmt: skip
_LONG = {
    "meter metre": ("1", "m"), "gram": ("1/1000", "g"), "second sec": ("1", "s"), "inch inche in": ("0.0254", "m"),
    "foot feet ft": ("0.3048", "m"), "yard yd": ("0.9144", "m"), "mile mi": ("1609.344", "m"),
    "min minute": ("60", "s"),
    "h hr hour": ("3600", "s"), "day": ("86400", "s"), "week": ("604800", "s"), "pound lb": ("0.45359237", "g"),
    "ounce oz": ("0.028349523125", "g"), "liter litre": ("1/1000", "mmm"), "newton": ("1", "gmSS"),
    "joule": ("1", "gmmSS"), "watt": ("1", "gmmSSS"), "volt": ("1", "gmmSSSA"), "ohm": ("1", "gmmSSSAA"),
    "kelvin": ("1", "k"), "mph": ("0.44704", "mS"), "kph": ("1000/3600", "mS"), "atm": ("101325", "gMSS"),
    "bar": ("100000", "gMSS"), "dollar usd": ("1", "$"), "cent": ("1/100", "$"), "degree deg": ("1", "°"),
    "percent percentage": ("1/100", "%"), "radian rad": ("1", "r"), "kilometer kilometre": ("1000", "m"),
    "centimeter centimetre": ("1/100", "m"), "millimeter millimetre": ("1/1000", "m"), "kilogram": ("1", "g"),
    "milligram": ("1e-6", "g"), "milliliter millilitre": ("1e-6", "mmm"), "unit": ("1", ""),
    "millisecond": ("1/1000", "s"),
}  # fmt: skip
_NAMES = {name: meaning for names, meaning in _LONG.items() for name in names.split()}
_CHANGING = (
    "not no non nor or and minus plus times over half quarter third twice double squared cubed square root cube "
    "hundred thousand million billion trillion dozen score ten zero one two three four five six seven eight nine "
    "more less least most greater fewer than above below under about approximately approx around nearly almost if "
    "when where unless except but mod modulo base factorial to from between otherwise wrong false incorrect is are "
    "negative positive infinity undefined divided multiplied power powers or/and multiple multiples without "
    "halves thirds fourths quarters fifths sixths sevenths eighths ninths tenths hundredths thousandths but never "
    "am pm noon midnight"
)
ALTERING = frozenset(_CHANGING.split())
"""Words that may change the value they stand beside."""
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of measurement: scale and dimensions."""

    scale: Fraction
    """Factor to the base units."""
    dimensions: str
    """Sorted letters of the base units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A value and what stands around it."""

    value: Tokens
    """The tokens of the value alone."""
    unit: Unit | None
    """Its known unit, if any."""
    factor: Fraction
    """Of a word like million; 1 otherwise."""
    noun: str
    """Words that are no unit, in lower case; empty when there are none."""


def measure(found: Tokens, *, declared: bool, letters: bool) -> Measure | None:
    """The value with its unit taken off; None when words around it may change it.

    `letters`: plain letters may be a unit (`42 kg`), not only words set as words; `declared`: even a single one may.
    """
    money = found[:1] == (r"\$",) or found[-1:] == (r"\$",)
    if money:
        found = found[1:] if found[0] == r"\$" else found[:-1]
    end = _value_end(found, declared=declared, letters=letters)
    value, tail = found[:end], found[end:]
    plain = Measure(value=found, unit=_MONEY if money else None, factor=Fraction(1), noun="")
    if not tail or not value:
        return plain
    if tail == ("°",) and any(token[1:] in FUNCTIONS for token in value):
        return plain
    if tail in (("%",), ("°",)):
        return Measure(value=value, unit=_named("percent" if tail == ("%",) else "degree"), factor=Fraction(1), noun="")
    words = " ".join(token.lstrip('"') for token in tail)
    first, _, rest = words.partition(" ")
    factor = Fraction(_SCALES.get(first.lower(), 1))
    words = rest if factor != 1 else words
    known = parse(words) if words else None
    if known is not None or not words:
        return Measure(value=value, unit=known or plain.unit, factor=factor, noun="")
    return _counted(value, tail, factor, words)


def _counted(value: Tokens, tail: Tokens, factor: Fraction, words: str) -> Measure | None:
    # Unknown words count only when they were set as words: the x of 43x is no noun.
    if any(token[0] != '"' and not (token.isalpha() and len(token) > 3) for token in tail):
        return Measure(value=(*value, *tail), unit=None, factor=Fraction(1), noun="")
    lower = re.findall(r"[a-z/]+", words.lower().replace(".", ""))
    if re.search(r"[^A-Za-z .,'-]", words) or len(lower) > 4 or ALTERING & set(lower):
        return None
    return Measure(value=value, unit=None, factor=factor, noun=" ".join(lower))


def _value_end(found: Tokens, *, declared: bool, letters: bool) -> int:
    """One past the value: behind it stand only words, signs and letters that could be a unit."""
    end, least = len(found), 1 if declared else 2 if letters else 99
    while end:
        token, start = found[end - 1], end - 1
        if token == "}":
            # m^{2}, s^{-1}
            start = max(end - 5, 0) if found[end - 3 : end - 2] == ("-",) else max(end - 4, 0)
            if found[start : start + 2] != ("^", "{") or not _is_name(found, start - 1, least):
                return end
        elif token in ("/", "*", r"\mu", r"\Omega"):
            follows = end < len(found) and _is_name(found, end, 1)
            if not (follows or token == r"\Omega") or not (declared or found[end - 2][0] == '"'):
                return end
        elif token not in ("%", "°") and not _is_name(found, start, least):
            return end
        end = start
    return end


def _is_name(found: Tokens, place: int, least: int) -> bool:
    token = found[place] if place >= 0 else ""
    return token[:1] == '"' or (token.isalpha() and len(token) >= least)


@lru_cache(maxsize=1024)
def parse(text: str) -> Unit | None:
    r"""The unit that a text like `m/s^2`, `\mathrm{~kg}` or `square inches` names; None when it names none."""
    text = re.sub(r"\\(?:mathrm|text|mathbf|rm|operatorname)|[${}~()]|\\[,!;: ]", " ", text)
    text = re.sub(r"\^\s*\\circ\s*C?", "°", text).replace("·", "*").replace(r"\cdot", "*").replace(r"\times", "*")
    text = re.sub(r"\bper\b", "/", text.strip().removesuffix("."))
    power = 2 if re.match(r"(?:square|sq\.?)\s", text) else 3 if re.match(r"(?:cubic|cu\.?)\s", text) else 1
    text = re.sub(r"^(?:square|sq\.?|cubic|cu\.?)\s+", "", text)
    scale, dimensions, below = Fraction(1), "", False
    for part in re.findall(r"/|[^\s*/]+(?:\s*\^\s*[-\s]*\d)?", text):
        if part == "/":
            below = True
            continue
        name, _, exponent = part.partition("^")
        named = _named(name.strip())
        if named is None or not re.fullmatch(r"[-\s]*\d?", exponent):
            return None
        times = int(re.sub(r"\s", "", exponent) or 1) * (-1 if below else 1) * power
        scale *= named.scale**times
        dimensions += named.dimensions * times if times > 0 else named.dimensions.swapcase() * -times
    return Unit(scale=scale, dimensions=_reduced(dimensions)) if text else None


def _reduced(dimensions: str) -> str:
    for letter in set(dimensions.lower()) - {"$", "%", "°"}:
        count = dimensions.count(letter) - dimensions.count(letter.upper())
        dimensions = dimensions.replace(letter, "").replace(letter.upper(), "")
        dimensions += letter * count if count > 0 else letter.upper() * -count
    return "".join(sorted(dimensions))


@lru_cache(maxsize=1024)
def _named(name: str) -> Unit | None:
    if name in ("%", r"\%", "°", r"\$"):
        name = {"%": "percent", r"\%": "percent", "°": "degree", r"\$": "dollar"}[name]
    lower = name.lower()
    found = _BASES.get(name) or _NAMES.get(lower) or _NAMES.get(lower.removesuffix("s"))
    if found is not None:
        return Unit(scale=Fraction(found[0]), dimensions=_reduced(found[1]))
    for prefix, factor in _PREFIXES.items():
        base = _BASES.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if base is not None:
            return Unit(scale=Fraction(base[0]) * Fraction(factor), dimensions=_reduced(base[1]))
    return None


_MONEY = Unit(scale=Fraction(1), dimensions="$")
