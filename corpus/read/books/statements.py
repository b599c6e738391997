r"""Statements of pseudocode in LaTeX, as algorithmicx and algorithm2e write them, on lines with indentation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

DEFINE = re.compile(
    r"\\(?:(?:alg)?(?:re)?newcommand|providecommand|def)\*?\s*\{?\\(?P<name>[A-Za-z]+)\}?\s*(?:\[(?P<count>\d)\])?\s*(?=\{)"
)
KEYWORD = re.compile(
    r"\\SetKw(?P<kind>Data|Function|InOut|Input|Prog|For|Block|Comment|)\s*\{\\?(?P<name>\w+)\}\s*(?=\{)"
)
PIECE = re.compile(r"\\[A-Za-z@]+\*?|\\\\(?:\[-?[\d.]+\w+\])?|\\.|\n\s*\n|\s+|\$\$?|[{}~]|[^\\\s${}~]+|\\", re.DOTALL)
EDGE = re.compile(r"\\.|[${}]", re.DOTALL)
OPENING = re.compile(r"\s*\{")
NAMED = re.compile(r"\{[^{}]+\}")
OPTION = re.compile(r"\s*\[(?P<text>[^\]]*)\]")
IN_PARENTHESES = re.compile(r"\s*\((?P<text>(?:[^()]|\([^()]*\))*)\)(?=\s*\{)")
"""A comment between the name of one of algorithm2e's blocks and its condition."""
ENDS, ENDS_BESIDE_BRACES = re.compile(r"\\\\"), re.compile(r"\\\\|\\;|\n\s*\n")
"""Pieces that end a line, of algorithmic and of algorithm2e."""
CLOSE = {"$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]", "{": "}"}
SIZED = re.compile(r"(?:[ul]|l?e)(?=[A-Z])")
"""Forms of algorithm2e's blocks: without an end, on one line, with two branches."""
SPELLED = {"elsif": "else if", "elseif": "else if", "foreach": "for each", "forall": "for all", "other": "otherwise"}
THEN = {"if": "then", "elsif": "then", "elseif": "then", "for": "do", "foreach": "do", "forall": "do", "while": "do"}
BARE = frozenset({"else", "other", "repeat", "loop", "begin"})
"""Blocks without a condition."""
OPEN = frozenset({"if", "for", "foreach", "forall", "while", "repeat", "loop", "procedure", "function"})
MIDDLE = frozenset({"else", "elsif", "elseif", "until"})
"""At the level of the block that they end."""
BLOCKS = OPEN | MIDDLE | BARE | {"switch", "case"}
STARTS = dict.fromkeys(("item", "State", "STATE", "Statex", "STATEX", "newline", "linebreak"), 0)
STARTS |= {"Indp": 1, "Indent": 1, "Indm": -1, "EndIndent": -1}
"""Commands that begin a line, and by how many levels it is indented more."""
REMARKS = frozenset({"tcp", "tcc", "Comment", "COMMENT", "LComment"})
_PLAIN = (
    "textbf textit textsl emph textsc texttt textrm textsf textnormal textup text mbox hbox underline textproc bf it "
    "em sc rm tt bfseries itshape scshape sffamily ttfamily normalfont FuncSty KwSty ArgSty DataSty centering nl par "
    "raggedright noindent tiny scriptsize footnotesize small normalsize large hfill quad qquad xspace strut BlankLine "
    "DontPrintSemicolon LinesNumbered LinesNotNumbered"
)
PLAIN = frozenset(_PLAIN.split())
"""Commands that print nothing but what stands in their braces."""
GONE = re.compile(r"Set(?:Kw|Al|Nl|Arg|Func|Prog|Data|Side|Ind)\w*|(?:re)?set\w+|addto\w+|[vh]space|RestyleAlgo|lnl")
"""Commands of the layout, with what stands in their braces."""
TEXTS = {"Call": ("#1(#2)", 2), "CALL": ("#1(#2)", 2), "ensuremath": ("$#1$", 1), "KwRet": ("return ", 0)}
TEXTS |= {each: ("[#1]", 1) for each in ("ref", "eqref", "cref", "Cref", "autoref")}
TEXTS |= {"KwIn": ("\\item Input: #1\\item ", 1), "KwOut": ("\\item Output: #1\\item ", 1)}
TEXTS |= {f"Kw{each}": (f"\\item {each}: #1\\item ", 1) for each in ("Data", "Result")}
for _name in ("Require", "Ensure", "Input", "Output"):
    TEXTS[f"algorithmic{_name.lower()}"] = f"{_name}:", 0
    TEXTS[_name] = TEXTS[_name.upper()] = f"\\item \\algorithmic{_name.lower()}{{}} ", 0
for _name in ("And", "Or", "Not", "Xor", "To", "True", "False"):
    TEXTS[_name] = TEXTS[_name.upper()] = TEXTS[f"Kw{_name}"] = f" {_name.lower()}", 0
for _name in ("Return", "Print"):
    TEXTS[_name], TEXTS[_name.upper()] = (f" {_name.lower()}", 0), (f"\\item {_name.lower()}", 0)
"""Text in place of a command, with the number of its arguments."""
MAX_PIECES = 100_000
"""Pieces of one algorithm: commands that a book defines may call themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Commands of a book's algorithms."""

    texts: Mapping[str, tuple[str, int]]
    """Text in place of a command, with the number of its arguments."""
    blocks: Mapping[str, tuple[str, str | None]]
    """Words before and behind the condition of a block; None where it has no condition."""


def closed(text: str, place: int, close: str = "}") -> tuple[str, int]:
    """A group or formula from behind its sign to the one that closes it, and where the text goes on."""
    depth = 0
    for edge in EDGE.finditer(text, place):
        if depth <= 0 and text.startswith(close, edge.start()):
            return text[place : edge.start()], edge.start() + len(close)
        depth += {"{": 1, "}": -1}.get(edge[0], 0)
    raise ValueError(f"nothing closes the text before {close}")


def arguments(text: str, place: int, most: int) -> tuple[list[str], int]:
    """As many arguments in braces as there are, at most these, and where the text goes on."""
    found: list[str] = []
    while len(found) < most and (opening := OPENING.match(text, place)):
        inner, place = closed(text, opening.end())
        found.append(inner)
    return found, place


def commands(text: str) -> Commands:
    """The commands that a book's text defines, beside the usual ones."""
    texts = dict(TEXTS)
    blocks = {each: (SPELLED.get(each, each), None if each in BARE else THEN.get(each, "")) for each in BLOCKS}
    for found in (*DEFINE.finditer(text), *KEYWORD.finditer(text)):
        try:
            parts, _ = arguments(text[found.end() : found.end() + 2000], 0, 2)
        except ValueError:
            continue
        name, said, kind = found["name"], parts[0], found.groupdict().get("kind")
        if kind is None:
            texts[name] = said, int(found["count"] or 0)
        elif kind in ("Prog", "For", "Block"):
            blocks[name.lower()] = said, None if kind == "Block" else parts[-1]
        elif kind in ("InOut", "Input"):
            texts[name] = f"\\item {said}: #1\\item ", 1
        elif kind == "Comment":
            texts[name] = r"\tcp", 0
        else:
            texts[name] = f"{said}(#1)" if kind == "Function" else said, int(kind == "Function")
    return Commands(texts=texts, blocks=blocks)


class Statements:
    r"""The lines of one algorithm: of algorithm2e, with bodies in braces (`\If{...}{...}`), or of algorithmicx, and in
    capitals of algorithmic (`\If{...} ... \EndIf`)."""

    def __init__(self, text: str, known: Commands, *, in_braces: bool) -> None:
        self.lines: list[str] = []
        self._known, self._ends = known, ENDS_BESIDE_BRACES if in_braces else ENDS
        self._block = self._with_bodies if in_braces else self._with_end
        self._opened = OPEN | {name.lower() for name in re.findall(r"(?i)\\end([a-z]+)", text)}
        self._run, self._depth, self._next_depth, self._left = "", 0, 0, MAX_PIECES
        self._read(text)
        self._line()

    def _line(self, levels: int = 0) -> None:
        """Ends a line, if it has begun; the next one is indented by so many levels more."""
        if words := self._run.split():
            self.lines.append("  " * self._depth + " ".join(words))
        self._next_depth = max(self._next_depth + levels, 0)
        self._run, self._depth = "", self._next_depth

    def _read(self, text: str) -> None:
        """Adds a text to the lines."""
        place = 0
        while found := PIECE.match(text, place):
            self._left -= 1
            if self._left < 0:
                raise ValueError("commands without an end")
            text, place = self._piece(found[0], text, found.end())

    def _piece(self, piece: str, text: str, place: int) -> tuple[str, int]:
        """Reads one piece; returns the text, which may begin with what stands for a command, and where it goes on."""
        if piece in CLOSE:
            inner, end = closed(text, place, CLOSE[piece])
            if piece == "{":
                self._read(inner)
            else:
                self._run += text[place - len(piece) : end]
            return text, end
        if piece == "}":
            raise ValueError("a brace closes nothing")
        if re.match(r"\\[A-Za-z@]", piece):
            return self._command(piece, text, place)
        if self._ends.match(piece):
            self._line()
        elif re.match(r"[\s~]|\\[\s,:;!/>@-]", piece):
            self._run += " "
        else:
            self._run += piece[1:] if re.fullmatch(r"\\[%&_#{}]", piece) else piece
        return text, place

    def _command(self, piece: str, text: str, place: int) -> tuple[str, int]:
        name = piece[1:].rstrip("*")
        if name == "begin" and (found := NAMED.match(text, place)):
            end = text.index(f"\\end{found[0]}", place) + len(f"\\end{found[0]}")
            self._run += text[place - len(piece) : end]
            return text, end
        if found := DEFINE.match(text, place - len(piece)):
            return text, arguments(text, found.end(), 1)[1]
        if GONE.fullmatch(name):
            while text.startswith("{", place):
                place = closed(text, place + 1)[1]
        elif name in STARTS:
            self._line(STARTS[name])
            if name == "item" and (option := OPTION.match(text, place)):
                return f"{option['text']} {text[option.end() :]}", 0
        elif name in REMARKS:
            place = self._remark(name, text, place)
        elif (end := self._block(name, text, place)) >= 0:
            place = end
        elif name in self._known.texts:
            return self._own(name, text, place)
        elif name.startswith("algorithmic"):
            self._run += f" {name.removeprefix('algorithmic')}"
        elif name not in PLAIN:
            self._run += piece
            while text.startswith("{", place):
                inner, place = closed(text, place + 1)
                self._read(rf"\{{{inner}\}}")
        return text, place

    def _remark(self, name: str, text: str, place: int) -> int:
        if name == "LComment":
            self._line()
        option = OPTION.match(text, place)
        parts, place = arguments(text, option.end() if option else place, 1)
        self._run += " // "
        self._read("".join(parts))
        if name in ("tcp", "tcc") and not (option and "h" in option["text"]):
            self._line()
        return place

    def _own(self, name: str, text: str, place: int) -> tuple[str, int]:
        said, count = self._known.texts[name]
        parts, place = arguments(text, place, count)
        if not parts:
            said = said.replace("(#1)", "")
        for number in range(count):
            said = said.replace(f"#{number + 1}", parts[number] if number < len(parts) else "")
        return said + text[place:], 0

    def _with_end(self, name: str, text: str, place: int) -> int:
        """Reads the head or the end of a block; returns where the text goes on, -1 for no command of a block."""
        ending = name.lower().startswith("end") and name.lower()[3:] in self._opened
        name = name[3:] if ending else name
        lower = name.lower()
        if lower not in self._opened | MIDDLE:
            return -1
        spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
        words, then = self._known.blocks.get(lower, (spelled, ""))
        remark, place = _noted(OPTION.match(text, place), place) if name.isupper() else ("", place)
        parts = list[str]()
        if not ending and then is not None:
            parts, place = arguments(text, place, 2 if lower in ("procedure", "function") else 1)
        self._line(-1 if ending or lower in MIDDLE else 0)
        if ending:
            self._head(f"end {words}", None, remark)
        else:
            self._head(f"{words} {'('.join(parts)}{')' * (len(parts) - 1)}", then, remark)
            self._next_depth += lower != "until"
        return place

    def _with_bodies(self, name: str, text: str, place: int) -> int:
        """Reads a block with its bodies; returns where the text goes on, -1 for no command of a block."""
        size = SIZED.match(name)
        plain, branches = (name[size.end() :], 1 + size[0].endswith("e")) if size else (name, 1)
        words, then = self._known.blocks.get(plain.lower(), ("", None))
        remark, place = _noted(IN_PARENTHESES.match(text, place), place)
        conditions = int(then is not None or plain == "Repeat")
        parts, place = arguments(text, place, conditions + branches)
        if not words or len(parts) < conditions + branches:
            return -1
        condition, bodies, until = " ".join(parts[:conditions]), parts[conditions:], ""
        if plain == "Repeat":
            condition, then, bodies, until = "", None, bodies[:1], f"until {condition}"
        for body in bodies:
            self._line()
            self._head(f"{words} {condition}", then, remark)
            self._line(1)
            self._read(body)
            self._line(-1)
            words, condition, then, remark = "else", "", None, ""
        self._read(until)
        self._line()
        return place

    def _head(self, words: str, then: str | None, remark: str) -> None:
        """Adds the head of a block to a line: the words behind its condition follow a blank, a sign does not."""
        self._read(words)
        if then is not None:
            self._run = self._run.rstrip() + (" " if then[:1].isalnum() or then[:1] == "\\" else "")
            self._read(then)
        self._read(remark)


def _noted(found: re.Match[str] | None, place: int) -> tuple[str, int]:
    """The comment behind a block's name, and where the text goes on."""
    said = found["text"] if found else ""
    is_marked = not said or said.lstrip().startswith("\\")
    return f" {said}" if is_marked else f" // {said}", found.end() if found else place
