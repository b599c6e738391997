r"""Split a mathematical answer into tokens.

A token is a number (`12`, `.5`, `1,250`, `1.2e5`, `0.(3)`), a run of letters, a command (`\pi`), the words of
`\text{...}` after a double quote (`"some words`), a matrix environment or row break, or one character. Spaces are
dropped, but they separate numbers. The arguments of fractions, roots, binomials, powers and indices are always braced.
"""

import re
from functools import lru_cache

Tokens = tuple[str, ...]

MAX_LENGTH = 512
"""Longest text that is tokenized, characters: no benchmark has a reference answer nearly as long."""
MAX_DEPTH = 40
"""Deepest nesting of brackets that is tokenized."""

_FUNCTIONS = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp sqrt max min gcd lcm det"
FUNCTIONS = frozenset(_FUNCTIONS.split())
COMMA = frozenset([",", ";"])
FULL_WIDTH = str.maketrans({0x3000: " ", **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}})
"""Translation of full-width letters, digits and signs to ASCII."""
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
    r"\theta": "vartheta", r"\overline": "bar", "i": "imath", "j": "jmath",
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
_OPEN, _CLOSE = frozenset(["(", "[", "{", r"\{", r"\langle"]), frozenset([")", "]", "}", r"\}", r"\rangle"])
_SIGNS = r"\in \notin \setminus \cup \cap \le \ge \neq \approx \to \pm \mp"
_BETWEEN = frozenset(_SIGNS.split())
"""Signs after which braces are not an argument."""
_ARGUMENTS = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1, "^": 1, "_": 1}


def is_too_big(text: str) -> bool:
    """Whether a text is too long or too deeply nested to be tokenized."""
    depth = 0
    for character in text if len(text) <= MAX_LENGTH else "":
        depth += 1 if character in "([{" else -1 if character in ")]}" else 0
        if depth > MAX_DEPTH:
            return True
    return len(text) > MAX_LENGTH


@lru_cache(maxsize=16_384)
def tokenize(text: str) -> Tokens:
    """The tokens of an answer, without closing punctuation and a leading `=`. The text must not be too big."""
    text = text.translate(_UNICODE).strip()
    if r"\begin" not in text:
        # Two backslashes before a name are an escape too many, except where they end a matrix row.
        text = re.sub(r"\\\\(?=[A-Za-z])", lambda _: "\\", text)
    text = re.sub(r"\\(?:left|right)\s*\.|\\\(|\\\)|\\\[|\\\]|(?<!\\)\$", "", text)
    if r"\not" in text:
        text = re.sub(r"\\not\s*(?:=|\\in\b)", lambda match: r"\neq " if match[0][-1] == "=" else r"\notin ", text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", "*", text)
    text = _BASE.sub(lambda match: f"_{{{_BASE_NAMES[match[1].lower()]}}}", text)
    raw: list[str] = []
    for match in _LEX.finditer(text):
        raw.extend(_tokens_of_match(match, raw))
    tokens = tuple(_add_braces(raw))
    while len(tokens) > 1 and tokens[-1] in (".", ",", ";", ":", "\\"):
        tokens = tokens[:-1]
    if len(tokens) > 2 and tokens[0] == "<" and tokens[-1] == ">":
        # The signs around `<1,2>` are brackets.
        tokens = (r"\langle", *tokens[1:-1], r"\rangle")
    return tokens[1:] if len(tokens) > 1 and tokens[0] == "=" else tokens


def spell(tokens: Tokens) -> str:
    """Write tokens as LaTeX. Equal tokens give equal text."""
    text = ""
    for token in tokens:
        numbers = text[-1:].isdigit() and token[0].isdigit()
        names = token[0].isalpha() and re.search(r"\\[A-Za-z]+\Z", text) is not None
        text += (" " if numbers or names else "") + (rf"\text{{{token[1:]}}}" if token[0] == '"' else token)
    return text


def closing_index(tokens: Tokens | list[str], start: int) -> int:
    """Index of the bracket, of any kind, that closes the one at `start`; -1 if none does."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index] in _OPEN) - (tokens[index] in _CLOSE)
        if depth == 0:
            return index
    return -1


def split_at(tokens: Tokens, marks: frozenset[str]) -> list[Tokens]:
    """Split at the marks that are outside all brackets and environments."""
    if marks.isdisjoint(tokens):
        return [tokens]
    parts: list[Tokens] = []
    depth, start = 0, 0
    for index, token in enumerate(tokens):
        depth += (token in _OPEN or token.startswith(r"\begin")) - (token in _CLOSE or token.startswith(r"\end"))
        if depth == 0 and token in marks:
            parts.append(tokens[start:index])
            start = index + 1
    return [*parts, tokens[start:]]


def _tokens_of_match(match: re.Match[str], before: list[str]) -> tuple[str, ...]:
    kind, text = match.lastgroup or "", match.group()
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "words":
        name, _, content = text[1:-1].partition("{")
        return _tokens_of_words(name.strip(), " ".join(re.sub(r"~|\\[ ,]", " ", content).split()), before)
    if kind == "number":
        return (re.sub(r"\{,\}|,?\\[!,:; ]", "", text),)
    if kind == "command":
        meaning = _COMMANDS.get(text, text)
        return (meaning,) if meaning else ()
    if kind == "letters":
        return ("\\" + text,) if text in FUNCTIONS or text == "pi" else (text,)
    return (re.sub(r"\s+|(?<=\})\{.*", "", text),) if kind == "environment" else (text,)


def _tokens_of_words(wrapper: str, content: str, before: list[str]) -> tuple[str, ...]:
    """Words become one quoted token; an upright letter, number or formula is tokenized as usual."""
    if content in FUNCTIONS and not (content == "min" and before and before[-1][-1].isdigit()):
        return ("\\" + content,)
    letter = re.fullmatch(r"[({\[]?[A-Za-z][)}\]]?", content) is not None
    # An upright letter after a value is a unit, except for the constants that are often set upright.
    after_value = bool(before) and (before[-1][-1].isdigit() or before[-1] in ("}", ")"))
    is_unit = wrapper in _UPRIGHT and after_value and content not in ("e", "i")
    if (letter and not is_unit) or not re.search("[A-Za-z]", content):
        return tokenize(content) if content else ()
    return ('"' + content,)


def _add_braces(tokens: list[str]) -> list[str]:
    r"""Brace the arguments of `\frac12`, `\sqrt 3`, `sqrt(3)`, `x^10`.

    Other braces become parentheses around a signed value, a set around a list, and nothing around anything else.
    """
    out: list[str] = []
    rest = list(tokens)
    index = 0
    while index < len(rest):
        token = rest[index]
        index += 1
        if token == "{":
            end = closing_index(rest, index - 1)
            inner = _add_braces(rest[index : end if end > 0 else len(rest)])
            if out and out[-1] not in _BETWEEN and re.fullmatch(r"\\[A-Za-z]+", out[-1]):
                out.extend(["{", *inner, "}"])
            elif len(split_at(tuple(inner), COMMA)) > 1:
                out.extend([r"\{", *inner, r"\}"])
            else:
                out.extend(["(", *inner, ")"] if len(inner) > 1 and inner[0] in ("+", "-") else inner)
            index = end + 1 if end > 0 else len(rest)
            continue
        out.append(token)
        if token == r"\sqrt" and rest[index : index + 1] == ["["]:
            end = closing_index(rest, index)
            out.extend(rest[index : end + 1])
            index = max(index, end + 1)
        for _ in range(_ARGUMENTS.get(token, 0)):
            end = _argument_end(rest, index, token)
            argument = rest[index:end]
            if argument[:1] in (["{"], ["("]) and (argument[0] == "{" or token == r"\sqrt"):
                argument = argument[1:-1]
            out.extend(["{", *_add_braces(argument), "}"])
            index = end
    return out


def _argument_end(rest: list[str], index: int, command: str) -> int:
    """Index after the argument that starts at `index`. Splits a number or a run of letters in place, as TeX does."""
    if index >= len(rest):
        return index
    token = rest[index]
    if token == "{" or (token == "(" and command == r"\sqrt"):
        end = closing_index(rest, index)
        return end + 1 if end > 0 else len(rest)
    if token in ("-", "+") and command == "^":
        return _argument_end(rest, index + 1, command)
    whole = command in ("^", "_", r"\sqrt") and token[0].isdigit()
    if not whole and token.isalnum() and len(token) > 1:
        rest[index : index + 1] = [token[0], token[1:]]
    end = index + 1
    for _ in range(_ARGUMENTS.get(token, 0)):
        end = _argument_end(rest, end, token)
    return end
