"""LaTeX books: the main file with the files it inputs, cut into chapters that each get the preamble's definitions."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from corpus.read.books.citations import citation_text, cited_works
from corpus.read.books.format import BookTree, Format
from corpus.read.books.latex_numbers import BRACED, OPTION, VERBATIM, write_numbers
from corpus.read.books.order import order_by_inclusion, resolve_name
from corpus.read.doubt import unresolved

SUFFIXES = (".tex", ".ltx", ".latex")
INCLUDE = re.compile(
    r"\\(?:(?:input|include|subfile)|(?:sub)?(?:import|inputfrom|includefrom)\*?\s*\{(?P<folder>[^{}\n]*)\})"
    r"\s*\{(?P<name>[^{}\n]+)\}|\\input[ \t]+(?P<bare>[^\s\\{}%]+)"
)
OWN = re.compile(
    r"\\(?:(?:re)?newcommand|providecommand|(?:Declare|New)DocumentCommand|DeclareRobustCommand|[egx]?def)\*?\s*\{?\\"
    r"(?P<name>[A-Za-z]+)(?P<body>.{0,1500}?)(?=^\\[A-Za-z]|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""The definition of a command, up to the next command at the beginning of a line."""
READS = re.compile(r"\\(?:input|include|subfile|import|subimport|includefrom)\s*\{(?P<path>[^{}\n]*#\d[^{}\n]*)\}")
PLAIN = re.compile(
    r"\\(?:(?:re)?newcommand|providecommand|[egx]?def)\*?\s*\{?\\(?P<name>[A-Za-z]+)\}?\s*\{(?P<value>[^{}\\#\n]*)\}"
)
"""The definition of a command that is plain text, such as the number of a chapter."""
CALL = re.compile(r"\\([A-Za-z]+)")
PACKAGE = re.compile(
    rf"\\(?:usepackage|RequirePackage|documentclass|LoadClass)\s*(?:{OPTION}\s*)?\{{(?P<names>[^{{}}]*)\}}"
)
"""Packages or a class, which may be files of the book that define its commands."""
LEVEL = re.compile(r"(part|chapter|(?:sub)*section)$")
ENVIRONMENT = re.compile(
    r"\\newenvironment\*?\s*\{(?P<name>[A-Za-z]+)\}.{0,1500}?\\(?P<level>part|chapter|(?:sub)*section)\*?\{#",
    re.DOTALL,
)
LISTING = re.compile(
    r"\\(?:lstnewenvironment|DefineVerbatimEnvironment|CustomVerbatimEnvironment)\s*\{(?P<name>[A-Za-z]+\*?)\}"
)
"""The definition of an environment whose content is a listing."""
ARGUMENTS = r"(?:[ \t]*\[[^\]\n]*\])?(?:\{[^{}\n]*\})*"
"""Arguments of an environment, on its first line."""
UNNAMED = re.compile(r"(\\begin\{lstlisting\}(?:\[[^\]\n]*\])?)\{\}")
"""A listing with an empty argument, which would become its first line."""
TITLE = re.compile(r"\{((?:[^{}\n]|\{[^{}\n]*\})*)\}")
ARGUMENT = re.compile(r"\{([^{}\n]*)\}")
DEFINING = (*SUFFIXES, ".sty", ".cls")
NESTED = re.compile(r"\\documentclass(?:(?!\\documentclass).)*?\\begin\{document\}", re.DOTALL)
BEGIN, END = r"\begin{document}", r"\end{document}"
COMMENT = re.compile(r"(?m)(?<!\\)((?:\\\\)*)%.*$")
# Definitions that formulas need, at the beginning of a line: indented ones are inside another definition.
DEFINITION = re.compile(r"(?m)^\\(?:(?:re)?newcommand|providecommand|DeclareMathOperator|newtheorem|def)(?![A-Za-z])")
CHAPTER = re.compile(r"(?m)^[ \t]*\\(?:chapter|part)\b(?!\*?\{#)")
SECTION = re.compile(r"(?m)^[ \t]*\\(?:sub)*section\b(?!\*?\{#)")
COMMAND = re.compile(r"\\(?:(?:re)?newcommand|providecommand|DeclareMathOperator|def)\*?\s*\{?\\([A-Za-z]+)")
LET = re.compile(r"\\let\s*\\(?P<name>[A-Za-z]+)\s*=?\s*\\(?P<old>[A-Za-z]+)")
STANDARD = re.compile(
    r"(?:sub)*(?:section|paragraph)|part|chapter|caption|item|label|footnote|url|emph|text[a-z]+|[a-z]*(?:ref|cite)[a-z]*"
)
"""Commands of LaTeX that pandoc reads, however a book defines them."""
BRACES = re.compile(r"\\[{}\\]")
HEAD = re.compile(
    r"\\(?:(?:re)?newcommand|providecommand|DeclareMathOperator)\*?\s*\{?\\[A-Za-z]+\}?\s*(?:\[[^\[\]]*\]\s*){0,2}\{"
    r"|\\newtheorem|\\def.*?\{",
    re.DOTALL,
)
"""A definition up to the opening brace of its body."""
PROGRAM = re.compile(r"@|\\(?:expandafter|csname|csuse|let|edef|begingroup|noexpand|the[a-z]|if[a-z]|IfNoValue)")
DELIMITED = re.compile(r"\\def\s*\\[A-Za-z]+(?:[^#{\s]|#\d[^#{])")
BARE = re.compile(r"\\((?:sub)*section|chapter|paragraph)(\*?)(\\[A-Za-z]+)")
"""A heading whose title is a macro without braces."""
SKIP = re.compile(r"(\\[vhm]skip[ \t]*-?[ \t]*)(?=\\[A-Za-z])")
"""A skip by a length macro without a factor, which pandoc takes for an error."""
DIAGRAM = re.compile(
    r"(?P<math>(?:\\\[|\$|\\begin\{(?:equation|align|gather|multline|displaymath)\*?\}(?:\s*\\label\{[^{}]*\})?)\s*)?"
    r"(?P<all>\\begin\{tikzcd\}.*?\\end\{tikzcd\})",
    re.DOTALL,
)
"""A diagram of arrows, within a formula, or outside one, where pandoc would drop it."""
_DRAWINGS = (
    "asy asydef axis bytefield chronology circuitikz dependency dot2tex emp empfile feynman feynmandiagram fmffile "
    "forest gantt loglogaxis mfpic mplibcode music overpic pgfpicture picture psgraph pspicture quantikz semilogxaxis "
    "semilogyaxis tikzpicture timeline yquant"
)
DRAWING = re.compile(
    rf"\\begin\{{(?P<name>{_DRAWINGS.replace(' ', '|')})(?P<star>\*?)\}}(?P<code>(?s:.*?))\\end\{{(?P=name)(?P=star)\}}"
    rf"|\\(?:tikz|Tree|feynmandiagram)(?![A-Za-z])\s*(?:{OPTION}\s*)?(?:{BRACED}|[^;\n]*;|)"
)
"""Commands of a language for drawings, which pandoc takes for text."""
SIGNS = re.compile(r"[\\{}\[\]%#$&~^_\s]+")
COLUMNS = re.compile(r"(?P<begin>\\begin\{(?:tabular|longtable)\}(?:\s*\[[^\]\n]*\])?\s*\{)(?P<columns>[^{}]*)(?=\})")
OTHER = re.compile(r"[^\W\d_lcr]")
"""A kind of column that the book defines, for which pandoc does not read the table."""
GLOSSARY = re.compile(rf"(\\(?:long)?new(?:glossaryentry|acronym)\s*{BRACED})\s+(?=\{{)")
"""An entry of a glossary whose text pandoc would take for a paragraph, because it begins on another line."""
RULE = re.compile(r"\\cmidrule(?:\[[^\]\n]*\])?(?:\([^()\n]*\))?\{[^{}\n]*\}|\\cline[ \t]*\{[^{}\n]*\}")
"""A rule below some columns of a table, whose numbers pandoc takes for text."""
_SIZES = r"(?:[ \t]*(?:\[[^\]\n]*\]|\{(?:[A-Za-z]|[-.\d]*[ \t]*(?:[a-z]{2}|\\[a-z]*(?:width|sep|skip|size))?)\})){0,4}"
FLOAT = re.compile(rf"\\(?:(begin)\{{(?:wrap|floating|sideways|SC|margin)(figure|table)\*?\}}{_SIZES}"
                   r"|(end)\{(?:wrap|floating|sideways|SC|margin)(figure|table)\*?\})")  # fmt: skip
"""The beginning and end of a figure or table at an unusual place, whose caption pandoc would drop."""
SPACED = re.compile(rf"(\\begin\{{(?:multicols|paracol|spacing|adjustwidth|addmargin|changemargin)\*?\}}){_SIZES}")
"""The beginning of text with its number of columns or its margins, which pandoc takes for text."""
THEOREM = re.compile(
    rf"\\(?:declaretheorem\s*(?P<settings>{OPTION})?\s*\{{(?P<name>[A-Za-z]+)\}}"
    rf"|newtcbtheorem\s*(?P<counted>{OPTION})?\s*\{{(?P<box>[A-Za-z]+)\}}\s*(?P<title>{BRACED})\s*{BRACED}\s*"
    rf"\{{(?P<prefix>[^{{}}]*)\}}|newmdtheoremenv\s*(?:{OPTION})?(?=\s*\{{))"
)
"""The definition of a statement by thmtools, tcolorbox or mdframed."""
SETTING = re.compile(rf"(?P<key>[A-Za-z ]+?)\s*=\s*(?P<value>{BRACED}|[^,\]]*)")
SHARED = ("sibling", "numberlike", "sharenumber", "use counter from")
WITHIN = ("numberwithin", "within", "parent", "number within")
BOX = re.compile(
    rf"\\(?:newenvironment|newtcolorbox|newmdenv|New(?:TColorBox|DocumentEnvironment))\*?\s*(?:{OPTION})?\s*\{{(\w+)\}}"
)
"""The definition of an environment that may print its argument in brackets as a title."""
BOXED = re.compile(rf"\\begin\{{(?P<name>[A-Za-z]+\*?)\}}\s*(?P<option>{OPTION})")
BOX_TITLE = re.compile(rf"(?:^\[|,)\s*(?:frame)?title\s*=\s*(?P<title>{BRACED}|[^,\]]*)")
WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{4}")
LISTINGS = frozenset({"lstlisting", "minted", "verbatim", "Verbatim"})
NOTE = re.compile(OPTION)
CITATION = re.compile(
    rf"(?P<skip>{VERBATIM})|\\(?P<command>(?:paren|foot|text|auto|smart|full|super)?[cC]ite(?:p|t|alp|alt|author|year)?)\*?"
    rf"(?P<notes>(?:\s*{OPTION}){{0,2}})\s*\{{(?P<keys>[^{{}}#\\]+)\}}"
)
IN_TEXT = frozenset({"citet", "textcite", "citealt"})
"""Commands that cite a work as a part of the sentence."""
MAX_LINES = 12
"""Longest definition, lines."""


def prepare(text: str) -> str:
    """Prepare a LaTeX file for pandoc: reduce its preamble to definitions; a file without a preamble is all body."""
    text = UNNAMED.sub(r"\1", BARE.sub(r"\\\1\2{\3}", SKIP.sub(r"\g<1>1", text)))
    text = COLUMNS.sub(lambda table: table["begin"] + OTHER.sub("c", table["columns"]), GLOSSARY.sub(r"\1", text))
    text = FLOAT.sub(r"\\\1\3{\2\4}", SPACED.sub(r"\1", RULE.sub("", text)))
    text = DRAWING.sub(
        lambda each: rf"\includegraphics{{{SIGNS.sub(' ', each['code'] or '').strip() or 'drawing'}}}", text
    )
    text = DIAGRAM.sub(lambda diagram: diagram[0] if diagram["math"] else f"\\[{diagram['all']}\\]", text)
    text = _box_titles(_plain_theorems(text))
    preamble, begin, body = text.partition(BEGIN)
    if not begin:
        return write_numbers(text, "")
    # Remove the preambles of parts that can be typeset separately, as documents within the document.
    body = NESTED.sub("", body)
    body = (body.rpartition(END)[0] or body).replace(END, "")
    return write_numbers("\n".join([definitions(preamble), BEGIN, body]), preamble)


def _plain_theorems(text: str) -> str:
    """Define the statements of packages as LaTeX's, and write their titles and labels as for those."""
    prefixes = {}

    def plain(definition: re.Match[str]) -> str:
        name = definition["name"] or definition["box"]
        if not name:
            return r"\newtheorem"
        options = (definition["settings"] or definition["counted"] or "")[1:]
        settings = {each["key"].strip(): each["value"].strip("{} \n") for each in SETTING.finditer(options)}
        title = definition["title"][1:-1] if definition["box"] else settings.get("name") or settings.get("title")
        shared = next((settings[key] for key in SHARED if key in settings), "")
        within = next((settings[key] for key in WITHIN if key in settings), "")
        if definition["box"]:
            prefixes[name] = definition["prefix"]
        star = "*" if settings.get("numbered") in ("no", "false") else ""
        end = f"[{shared}]{{{title or name.capitalize()}}}" if shared else f"{{{title or name.capitalize()}}}"
        return f"\\newtheorem{star}{{{name}}}{end}" + (f"[{within}]" if within and not shared else "")

    def titled(use: re.Match[str]) -> str:
        title, label = use["title"][1:-1].strip(), (use["label"] or "")[1:-1].strip()
        label = f"\\label{{{prefixes[use['name']]}:{label}}}" if label else ""
        return f"\\begin{{{use['name']}}}" + (f"[{{{title}}}]" if title else "") + label

    text = THEOREM.sub(plain, text)
    if not prefixes:
        return text
    names = "|".join(prefixes)
    use = rf"\\begin\{{(?P<name>{names})\}}\s*(?:{OPTION})?\s*(?P<title>{BRACED})[ \t]*(?P<label>{BRACED})?"
    return re.sub(use, titled, text)


def _box_titles(text: str) -> str:
    """Turn the titles of boxes, which pandoc drops, into arguments; its filter makes these paragraphs."""
    boxes = set(BOX.findall(text))

    def titled(box: re.Match[str]) -> str:
        option, name = box["option"], box["name"]
        title = BOX_TITLE.search(option)
        is_title = name in boxes and "=" not in option and WORD.search(option)
        if name in LISTINGS or not (title or is_title):
            return box[0]
        words = title["title"].strip() if title else option
        return f"\\begin{{{name}}}{{{words[1:-1] if words[:1] in '{[' else words}}}"

    return BOXED.sub(titled, text)


def definitions(text: str) -> str:
    """Return the definitions of macros and theorems in a text, each followed by a line feed."""
    text = COMMENT.sub(r"\1", text)
    result = list(_find_definitions(text))
    for copy in LET.finditer(text):
        # A command that is redefined by its own copy would be expanded endlessly: it stays what LaTeX defines.
        again = re.compile(rf"(?s)\\\w+\*?\s*\{{?\\{copy['old']}(?![A-Za-z]).*\\{copy['name']}(?![A-Za-z])")
        others = [each for each in result if not again.match(each)]
        if len(others) < len(result):
            result = [*others, rf"\newcommand{{\{copy['name']}}}{{\{copy['old']}}}"]
    names = {match[1] for each in result if (match := COMMAND.match(each))}
    own = (COMMAND.match(text, match.start()) for match in DEFINITION.finditer(text))
    programs = dict.fromkeys(each[1] for each in own if each and not each[0].startswith(r"\renew"))
    # In a formula the name of a command that is a TeX program would stay, and a sentence would lose its text.
    result += [
        rf"\newcommand{{\{name}}}{{\textrm{{{unresolved(name)}}}}}"
        for name in programs
        if name not in names and not STANDARD.fullmatch(name)
    ]
    return "".join(f"{definition}\n" for definition in result)


def _find_definitions(text: str) -> Iterator[str]:
    """Yield the definitions up to their closing braces, except those that are TeX programs.

    Names with @ and arguments without braces make other readers of LaTeX expand them endlessly.
    """
    place = 0
    while match := DEFINITION.search(text, place):
        lines, depth, opened = [], 0, False
        for line in text[match.start() :].split("\n")[:MAX_LINES]:
            lines.append(line)
            bare = BRACES.sub("", line)
            depth += bare.count("{") - bare.count("}")
            opened = opened or HEAD.match("\n".join(lines)) is not None
            if opened and depth <= 0:
                break
        definition = "\n".join(lines)
        place = match.start() + len(definition)
        is_whole = definition.count(r"\begin{") == definition.count(r"\end{")
        name = COMMAND.match(definition)
        is_program = PROGRAM.search(definition, name.end() if name else 0) or DELIMITED.match(definition)
        if opened and depth == 0 and is_whole and not is_program:
            yield definition


class _ExpandedTree:
    r"""View of a tree with a book's own commands for reading files, such as `\chapterof{2}{sets}`, as LaTeX's."""

    def __init__(self, tree: BookTree) -> None:
        self._tree = tree
        self._paths: dict[str, list[str]] = {}
        self._heads: dict[str, str] = {}
        self._listings: set[str] = set()
        self._works = cited_works(tree)
        for name in tree.names():
            if name.lower().endswith(DEFINING):
                self._learn(COMMENT.sub(r"\1", tree.text(name)))
        names = "|".join(map(re.escape, sorted(self._listings)))
        self._edge = re.compile(rf"\\(?:(begin)\{{(?:{names})\}}{ARGUMENTS}|(end)\{{(?:{names})\}})")
        self._call = _call_pattern(self._paths, r"(?P<all>(?:\{[^{}\n]*\})+)")
        self._head = _call_pattern(self._heads, r"(?P<all>(?:\{(?:[^{}\n]|\{[^{}\n]*\})*\})+)")

    def _learn(self, text: str) -> None:
        """Collect the commands that read files or print headings, and the environments of listings."""
        for match in OWN.finditer(text):
            level = LEVEL.search(match["name"])
            if paths := [inclusion["path"] for inclusion in READS.finditer(match["body"])]:
                self._paths[match["name"]] = paths
            elif level and level[0] != match["name"] and "{#" in match["body"] and "ref{" not in match["body"]:
                self._heads[match["name"]] = level[0]
        self._listings |= {match["name"] for match in LISTING.finditer(text)}
        for match in ENVIRONMENT.finditer(text):
            self._heads[f"begin{{{match['name']}}}"] = match["level"]

    def names(self) -> Sequence[str]:
        """Paths of all files."""
        return self._tree.names()

    def text(self, name: str) -> str:
        """A file's text, with the book's own commands replaced."""
        text = self._tree.text(name)
        if not name.lower().endswith(SUFFIXES):
            return text
        if self._listings:
            text = self._edge.sub(lambda edge: f"\\{edge[1] or edge[2]}{{lstlisting}}", text)
        text = PACKAGE.sub(lambda use: use[0] + "".join(self._own_packages(name, use["names"])), text)
        text = CITATION.sub(self._citation_text, INCLUDE.sub(_plain_path, text))
        text = self._head.sub(self._expand_heading, text) if self._heads else text
        return self._call.sub(self._expand_inclusions, text) if self._paths else text

    def _own_packages(self, name: str, packages: str) -> Iterator[str]:
        """Yield the inclusion of each package that is a file of the book."""
        for package in packages.split(","):
            for suffix in (".sty", ".cls"):
                if resolve_name(self._tree, name, package.strip() + suffix, ()):
                    yield f"\\input{{{package.strip()}{suffix}}}"

    def _citation_text(self, citation: re.Match[str]) -> str:
        if citation["skip"]:
            return citation[0]
        command, keys = citation["command"].lower(), citation["keys"]
        if "author" in command:
            return " and ".join(
                self._works.get(key, (unresolved(key), ""))[0] for key in map(str.strip, keys.split(","))
            )
        note = ", ".join(each[1:-1] for each in NOTE.findall(citation["notes"]) if each != "[]")
        return citation_text(self._works, keys, note=note, in_text=command in IN_TEXT)

    def _expand_heading(self, call: re.Match[str]) -> str:
        title, name = TITLE.findall(call["all"])[-1], call["name"]
        environment = f"\n\\{name}" if name.startswith("begin{") else ""
        return f"\\{self._heads[name]}{{{title}}}{environment}"

    def _expand_inclusions(self, call: re.Match[str]) -> str:
        arguments = ARGUMENT.findall(call["all"])
        paths = []
        for path in self._paths[call["name"]]:
            for place, argument in enumerate(arguments, 1):
                path = path.replace(f"#{place}", argument)
            paths.append(path)
        if any("#" in path or "\\" in path for path in paths):
            # The command computes the path from its arguments, which usually are a folder and a file.
            return f"\\subimport{{{call['folder'] or '.'}}}{{{arguments[0]}}}"
        return "\n".join(f"\\input{{{path}}}" for path in paths)


def _plain_path(inclusion: re.Match[str]) -> str:
    """An inclusion with the text of the commands that its path contains, as its file defines them above it."""
    if "\\" not in inclusion[0][1:]:
        return inclusion[0]
    texts = {each["name"]: each["value"] for each in PLAIN.finditer(inclusion.string, 0, inclusion.start())}
    return CALL.sub(lambda call: texts.get(call[1], call[0]), inclusion[0])


def _call_pattern(names: Iterable[str], arguments: str) -> re.Pattern[str]:
    """Pattern of calls of the named commands, with their arguments in brackets and in braces."""
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"\\(?P<name>{longest_first})\*?(?:\[(?P<folder>[^\[\]\n]*)\])?{arguments}")


view = lru_cache(maxsize=2)(_ExpandedTree)


FORMATS = (
    Format(
        suffixes=SUFFIXES,
        reader="latex",
        include=INCLUDE,
        view=view,
        prepare=prepare,
        carry=definitions,
        split=CHAPTER,
        finer=SECTION,
        layouts=lambda tree: order_by_inclusion(view(tree), SUFFIXES, INCLUDE, BEGIN),
    ),
)
