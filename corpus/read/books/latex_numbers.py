"""Numbers of LaTeX's chapters, floats, formulas, statements and items, written where the text refers to them.

pandoc counts few of these, and anew in each chapter. Counters follow LaTeX's standard classes; a reference to what has
no number, or no place in the book, becomes a mark (`doubt.unresolved`).
"""

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass

from corpus.read.doubt import unresolved

VERBATIM = (
    r"(?<!\\)%.*|\\begin\{(?P<verbatim>[vV]erbatim\*?|lstlisting|minted|comment|alltt)\}(?s:.*?)\\end\{(?P=verbatim)\}"
    r"|\\(?:verb\*?|lstinline)(?P<bar>[^\w\s*{\[]).*?(?P=bar)"
)
"""Comments and text that LaTeX prints as it is."""
BRACED = functools.reduce(lambda inner, _: rf"\{{(?:[^{{}}]|{inner})*\}}", range(4), r"\{[^{}]*\}")
"""An argument with braces inside, to a depth of five."""
OPTION = r"\[(?:[^\[\]{}]|\[[^\[\]]*\]|" + BRACED + r")*\]"
"""An argument in square brackets."""
DEFINED = (
    rf"\\(?:(?:re)?newcommand|providecommand)\*?\s*\{{?\\[A-Za-z]+\}}?\s*(?:\[[^\[\]]*\]\s*){{0,2}}{BRACED}"
    rf"|\\(?:re)?newenvironment\*?\s*\{{[^{{}}]*\}}\s*(?:\[[^\[\]]*\]\s*){{0,2}}{BRACED}\s*{BRACED}"
)
"""Definitions, which count where they are used."""
TOKEN = re.compile(
    rf"(?P<skip>{VERBATIM}|{DEFINED})|(?P<row>\\\\)"
    rf"|\\(?P<level>part|chapter|(?:sub)*section)(?P<star>\*?)\s*(?:{OPTION}\s*)?(?P<title>{BRACED})"
    rf"|\\(?P<edge>begin|end)\{{(?P<environment>[A-Za-z]+)(?P<plain>\*?)\}}(?P<options>\s*{OPTION})?"
    r"|\\(?P<command>appendix|frontmatter|mainmatter|nonumber|notag|item(?![ \t]*\[)"
    rf"|caption\s*(?:{OPTION}\s*)?(?=\{{))(?![A-Za-z])"
    r"|\\tag\*?\{(?P<tag>[^{}]*)\}|\\label\s*\{(?P<label>[^{}]*)\}"
    r"|\\(?P<reference>[A-Za-z]*ref)\*?\s*\{(?P<targets>[^{}#\\]*)\}"
)
THEOREM = re.compile(
    rf"\\newtheorem(?P<star>\*?)\s*\{{(?P<name>[A-Za-z]+)\}}\s*(?:\[(?P<shared>\w+)\])?\s*(?P<title>{BRACED})"
    r"\s*(?:\[(?P<within>\w+)\])?"
)
ENVIRONMENT = re.compile(
    rf"\\(?:re)?newenvironment\*?\s*\{{(?P<name>\w+)\}}\s*(?:\[[^\[\]]*\]\s*){{0,2}}(?P<beginning>{BRACED})"
)
STEP = re.compile(r"\\refstepcounter\{(\w+)\}")
WITHIN = re.compile(r"\\(?:numberwithin|counterwithin\*?)\s*\{(?P<counter>\w+)\}\s*\{(?P<within>\w+)\}")
COMMAND = re.compile(rf"\\(?:re)?newcommand\*?\s*\{{?\\(?P<name>[A-Za-z]+)\}}?\s*\[1\]\s*(?P<body>{BRACED})")
LEVELS = ("chapter", "section", "subsection", "subsubsection")
FLOATS = {"figure": "Figure", "table": "Table", "longtable": "Table", "algorithm": "Algorithm", "listing": "Listing"}
PARTS = frozenset({"subfigure", "subtable"})
ROWS = frozenset({"align", "gather", "eqnarray", "alignat", "flalign"})
"""Formulas of which every row has a number."""
FORMULAS = ROWS | {"equation", "multline"}
BY_NUMBER, BY_TITLE = frozenset({"ref", "subref"}), frozenset({"nameref", "Nameref", "titleref"})
BY_KIND = frozenset({"autoref", "cref", "Cref", "vref", "Vref", "thref", "fref", "Fref", "labelcref"})
STYLE = re.compile(r"\\(arabic|alph|Alph|roman|Roman)\*")
ROMAN = ((100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Target of a label: its kind, such as `Figure`, its number and its title."""

    kind: str = ""
    number: str = ""
    title: str = ""


class _Frame:
    """An open environment: its name, and the place of the text around it."""

    def __init__(self, name: str, outer: _Place, *, is_counted: bool) -> None:
        self.name, self.outer = name, outer
        self.is_counted = is_counted
        """Whether it, or each of its rows, has a number; false for those with a star."""
        self.is_numbered = True
        """Whether the formula, or its current row, has a number."""
        self.style = ""
        """For a list the form of its numbers."""
        self.count = 0
        """Items of a list, or parts of a figure, so far."""
        self.tag = ""
        self.caption = -1
        """Position of the text of a float's caption; -1 before it."""
        self.labels: list[re.Match[str]] = []
        """Labels of a float, or of a row of a formula."""


def write_numbers(text: str, preamble: str) -> str:
    """Replace the references of a LaTeX document by numbers, and number what they refer to; see the module."""
    return _Counting(_expand_own_references(text), preamble).result()


def _expand_own_references(text: str) -> str:
    r"""Expand the book's commands for references, such as `\figref{x}` for `Figure~\ref{fig:x}`."""
    bodies = {each["name"]: each["body"][1:-1] for each in COMMAND.finditer(text)}
    bodies = {name: body for name, body in bodies.items() if re.search(r"ref\*?\{[^{}]*#1", body)}
    if not bodies:
        return text
    text = COMMAND.sub(lambda each: "" if each["name"] in bodies else each[0], text)
    call = re.compile(rf"\\({'|'.join(bodies)})\s*\{{([^{{}}]*)\}}")
    return call.sub(lambda each: bodies[each[1]].replace("#1", each[2]), text)


class _Counting:
    """One pass over a document: counters, the places of labels, and the changes to the text."""

    def __init__(self, text: str, preamble: str) -> None:
        self._text = text
        self._levels = LEVELS if re.search(r"\\chapter\b", text) else LEVELS[1:]
        top = self._levels[0] if self._levels[0] == "chapter" else ""
        self._within = dict(zip(self._levels, ("", *self._levels), strict=False))
        self._within |= dict.fromkeys((*FLOATS, "equation"), top)
        self._values: dict[str, int] = {}
        self._statements: dict[str, tuple[str, str]] = {}
        """Counter and title of each kind of statement."""
        for each in THEOREM.finditer(f"{preamble}\n{text}"):
            if not each["star"]:
                counter = each["shared"] or each["name"]
                counter = self._statements.get(counter, (counter, ""))[0]
                self._statements[each["name"]] = (counter, each["title"][1:-1])
                if not each["shared"]:
                    self._within[counter] = each["within"] or ""
        own = ENVIRONMENT.finditer(f"{preamble}\n{text}")
        self._stepped = {each["name"]: step[1] for each in own if (step := STEP.search(each["beginning"]))}
        """Counter of each environment of the book that has a number."""
        self._floats = FLOATS.keys() - self._statements
        self._within |= {each["counter"]: each["within"] for each in WITHIN.finditer(preamble)}
        self._is_appendix = self._is_front = False
        self._place = _Place()
        self._frames: list[_Frame] = []
        self._places: dict[str, _Place] = {}
        self._captions: list[tuple[int, _Place, list[str]]] = []
        self._tags: list[tuple[str, list[re.Match[str]]]] = []
        self._references: list[re.Match[str]] = []
        self._edits: list[tuple[int, int, str]] = []

    def result(self) -> str:
        """The text with its changes."""
        for token in TOKEN.finditer(self._text):
            self._read(token)
        names = {name for each in self._references for name in _targets(each)}
        self._edits += [(each.start(), each.end(), self._reference_text(each)) for each in self._references]
        for start, place, labels in self._captions:
            if names.intersection(labels):
                self._edits.append((start, start, f"\\textbf{{{place.kind} {place.number}.}} "))
        for number, tokens in self._tags:
            # The first label becomes the printed number; a label in a formula prints nothing.
            is_used = bool(number) and any(each["label"].strip() in names for each in tokens)
            for index, each in enumerate(tokens):
                self._edits.append((each.start(), each.end(), f"\\tag{{{number}}}" if is_used and not index else ""))
        parts, position = [], 0
        for start, end, new in sorted(self._edits):
            parts += [self._text[position:start], new]
            position = end
        return "".join([*parts, self._text[position:]])

    def _read(self, token: re.Match[str]) -> None:
        if token["level"]:
            self._begin_section(token)
        elif token["edge"] == "begin":
            self._open(token)
        elif token["edge"]:
            self._close(token["environment"])
        elif token["row"]:
            if self._frames and self._frames[-1].name in ROWS:
                self._end_row(self._frames[-1])
        elif token["reference"]:
            if token["reference"] in BY_NUMBER | BY_TITLE | BY_KIND | {"eqref", "pageref"}:
                self._references.append(token)
        elif token["label"] is not None:
            self._label(token)
        elif token["tag"] is not None or token["command"]:
            self._command(token)

    def _begin_section(self, token: re.Match[str]) -> None:
        level, title = token["level"], token["title"][1:-1]
        if token["star"] or self._is_front or level not in ("part", *self._levels[:3]):
            self._place = _Place(title=title)
            return
        kind = "Section" if level.endswith("section") else level.capitalize()
        kind = "Appendix" if self._is_appendix and level == self._levels[0] else kind
        self._place = _Place(kind=kind, number=self._step(level), title=title)

    def _open(self, token: re.Match[str]) -> None:
        name, options = token["environment"], token["options"] or ""
        frame = _Frame(name, self._place, is_counted=not token["plain"])
        depth = sum(each.name == "enumerate" for each in self._frames)
        self._frames.append(frame)
        if name in self._floats:
            counter = FLOATS[name].lower()
            self._place = _Place(kind=FLOATS[name], number=self._number(counter, self._values.get(counter, 0) + 1))
        elif name in PARTS:
            outer = self._innermost(self._floats) or frame
            outer.count += 1
            self._place = _Place(kind=self._place.kind, number=f"{self._place.number}{_letters(outer.count)}")
        elif name == "enumerate":
            frame.style = _list_style(options, depth)
        elif name in self._stepped:
            # What a counter of the book prints is not known: a reference to it becomes a mark.
            counter = self._stepped[name]
            self._place = _Place(number=self._step(counter) if counter in self._within else "")
        elif name in self._statements and frame.is_counted:
            counter, kind = self._statements[name]
            title = options.strip()[1:-1]
            self._place = _Place(kind=kind, number=self._step(counter), title=title)
            # The filter reads the number that the statement prints from the name of its division.
            self._edits.append((token.end(), token.end(), f"\\label{{={self._place.number}}}"))

    def _close(self, name: str) -> None:
        depth = next((each for each in reversed(range(len(self._frames))) if self._frames[each].name == name), None)
        if depth is None:
            return
        frame = self._frames[depth]
        if frame.name in FORMULAS:
            self._end_row(frame)
        elif frame.name in self._floats:
            labels = [each["label"].strip() for each in frame.labels]
            if frame.caption >= 0:
                self._captions.append((frame.caption, self._place, labels))
            for label in labels if frame.caption < 0 else ():
                self._places.pop(label, None)
        self._place = frame.outer
        del self._frames[depth:]

    def _end_row(self, frame: _Frame) -> None:
        number = frame.tag or (self._step("equation") if frame.is_counted and frame.is_numbered else "")
        for each in frame.labels if number else ():
            self._places.setdefault(each["label"].strip(), _Place(kind="Equation", number=number))
        self._tags.append(("" if frame.tag else number, frame.labels))
        frame.labels, frame.tag, frame.is_numbered = [], "", True

    def _label(self, token: re.Match[str]) -> None:
        if formula := self._innermost(FORMULAS):
            formula.labels.append(token)
            return
        if figure := self._innermost(self._floats):
            figure.labels.append(token)
        if self._place.number or self._place.title:
            self._places.setdefault(token["label"].strip(), self._place)
        if any(each.name in self._statements for each in self._frames):
            self._edits.append((token.start(), token.end(), ""))

    def _command(self, token: re.Match[str]) -> None:
        frame = self._frames[-1] if self._frames else None
        command = token["command"] or "tag"
        if command == "appendix":
            self._is_appendix = True
            self._values[self._levels[0]] = 0
        elif command in ("frontmatter", "mainmatter"):
            self._is_front = command == "frontmatter"
        elif frame is None:
            return
        elif command == "item" and frame.name == "enumerate":
            frame.count += 1
            self._place = _Place(kind="item", number=_item_number(frame))
        elif command == "tag" or command in ("nonumber", "notag"):
            formula = self._innermost(FORMULAS) or frame
            formula.tag, formula.is_numbered = token["tag"] or "", False
        elif command.startswith("caption"):
            figure = self._innermost(self._floats | PARTS)
            if figure and figure.name in self._floats and figure.caption < 0:
                figure.caption = token.end() + 1
                self._step(FLOATS[figure.name].lower())

    def _innermost(self, names: Collection[str]) -> _Frame | None:
        return next((each for each in reversed(self._frames) if each.name in names), None)

    def _step(self, counter: str) -> str:
        """Count one more; counters within this one begin again. Returns the number."""
        value = self._values.get(counter, 0) + 1
        self._values[counter] = value
        self._restart_within(counter)
        return self._number(counter, value)

    def _restart_within(self, counter: str) -> None:
        for name, outer in self._within.items():
            if outer == counter and name != counter:
                self._values[name] = 0
                self._restart_within(name)

    def _number(self, counter: str, value: int) -> str:
        if counter == "part":
            return _roman(value).upper()
        if self._is_appendix and counter == self._levels[0]:
            return _letters(value).upper()
        outer = self._within.get(counter, "")
        above = self._values.get(outer, 0)
        return f"{self._number(outer, above)}.{value}" if outer and above else str(value)

    def _reference_text(self, reference: re.Match[str]) -> str:
        command = reference["reference"]
        texts = []
        for name in _targets(reference):
            place = self._places.get(name, _Place())
            is_in_brackets = place.number and place.kind == "Equation" and command != "ref"
            number = f"({place.number})" if is_in_brackets else place.number
            text = f"{place.kind}~{number}" if number and command in BY_KIND else number
            text = {**dict.fromkeys(BY_TITLE, place.title), "pageref": ""}.get(command, text)
            # A section without a number is known by its title.
            title = f"``{place.title}''" if place.title and command != "pageref" else ""
            texts.append(text or title or unresolved(name))
        return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else unresolved("")


def _targets(reference: re.Match[str]) -> list[str]:
    return [name for each in reference["targets"].split(",") if (name := " ".join(each.split()))]


def _list_style(options: str, depth: int) -> str:
    """Form of a list's numbers, in which a command such as `\\alph*` is the number."""
    if STYLE.search(options):
        label = re.search(r"label\s*=\s*(?:\{(?P<braced>(?:[^{}]|\{[^{}]*\})*)\}|(?P<bare>[^,\]]*))", options)
        return re.sub(
            r"\\(?:text)?(?:bf|it|rm|sc)\w*|[{}]", "", (label["braced"] or label["bare"] or "") if label else ""
        )
    letter = re.search(r"(?<![A-Za-z\\])[aAiI1](?![A-Za-z])", options) if "=" not in options else None
    if letter:
        style = {"a": "alph", "A": "Alph", "i": "roman", "I": "Roman", "1": "arabic"}[letter[0]]
        return f"{options[: letter.start()]}\\{style}*{options[letter.end() :]}".strip()[1:-1]
    return ("\\arabic*", "\\alph*", "\\roman*", "\\Alph*")[min(depth, 3)]


def _item_number(frame: _Frame) -> str:
    def count_in_style(style: re.Match[str]) -> str:
        forms = {"arabic": str(frame.count), "alph": _letters(frame.count), "roman": _roman(frame.count)}
        return forms.get(style[1]) or forms[style[1].lower()].upper()

    number = STYLE.sub(count_in_style, frame.style)
    return number.rstrip(".") if frame.style else str(frame.count)


def _letters(number: int) -> str:
    return chr(ord("a") + (number - 1) % 26)


def _roman(number: int) -> str:
    text = ""
    for value, sign in ROMAN:
        text += sign * (number // value)
        number %= value
    return text
