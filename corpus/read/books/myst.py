"""Conversion of MyST to plain Markdown: directives, roles and references become formulas, code and prose."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

import yaml

from corpus.read.books.references import ResolvedTree, Targets
from corpus.read.doubt import unresolved

OPEN = re.compile(r"^([ \t]*)(`{3,}|~{3,}|:{3,})[ \t]*\{([\w:.+-]+)\}[ \t]*(.*)$")
PLAIN = re.compile(r"^[ \t]*(`{3,}|~{3,})[^`]*$")
OPTION = re.compile(r"^[ \t]*:[\w-]+:(?:[ \t].*)?$")
ROLE = re.compile(r"\{(?P<name>[A-Za-z][\w:.+-]*)\}`(?P<text>[^`\n]+)`|(?P<ticks>`+)(?!`)[^\n]+?(?<!`)(?P=ticks)(?!`)")
"""A role; code that may look like one is matched first."""
TARGET = re.compile(r"(?m)^\([\w:.-]+\)=[ \t]*$")
FORMULA = re.compile(
    r"(?ms)^[ \t]*(?P<fence>`{3,}|:{3,})[ \t]*\{math\}[^\n]*\n(?P<options>(?:[ \t]*:[\w-]+:[^\n]*\n)*)(?P<inner>.*?)"
    r"^[ \t]*(?P=fence)"
    r"|\$\$(?P<dollars>.+?)\$\$[ \t]*\((?P<label>[\w:.-]+)\)[ \t]*$"
)
"""A formula that may have a label."""
NAMED = re.compile(r"(?m)(?<=\$\$)[ \t]*\([\w.]*[-_:][\w:.-]*\)[ \t]*$")
"""The label after a formula: a word with a separator in brackets; other words in brackets are text."""
LABEL = re.compile(r":label:[ \t]*(\S+)")
REMARK = re.compile(r"(?m)(?<!\\)%.*$")
REFERENCE = re.compile(
    r"(?P<code>(?P<ticks>`+).+?(?P=ticks))|(?P<embed>!?)\[\]\((?P<target>#?[^\s():]+(?::[^\s()/][^\s()]*)?)\)"
)
"""A reference without text, for which the page prints a number; code that may look like one is matched first."""
SEPARATORS = re.compile(r"[-_:.]+")
LABELLED = re.compile(r"(?m)^\((?P<label>[\w:. -]+)\)=[ \t]*\n(?:[ \t]*\n)*(?:#+[ \t]+(?P<title>\S.*))?")
"""A label, with the heading below it."""
DIRECTIVE = re.compile(
    r"(?m)^[ \t]*(?:`{3,}|~{3,}|:{3,})[ \t]*\{(?P<kind>[\w:.+-]+)\}[ \t]*(?P<title>.*)\n"
    r"(?P<options>(?:[ \t]*:[\w-]+:.*\n|---[ \t]*\n(?:[\w-]+:.*\n)*---[ \t]*\n)*)(?:[ \t]*\n)*(?P<body>.*)"
)
NAME = re.compile(r"(?m)^[ \t]*:?(?:name|label):[ \t]*(\S+)")
CAPTION = re.compile(
    r"(?m)^[ \t]+caption:[ \t]*[|>]?-?[ \t]*\n?[ \t]*(?P<caption>\S.*)\n(?:.*\n)??[ \t]+name:[ \t]*(?P<name>\S+)"
)
"""The caption and the name of a figure that a code cell draws."""
SUBSTITUTION = re.compile(
    r"(?ms)(?P<code>^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?:\{code[\w-]*\}[^\n]*|[\w+-]*)[ \t]*\n.*?^[ \t]*(?P=fence)"
    r"|(?P<ticks>`+)[^\n]+?(?P=ticks))"
    r"|\{\{[ \t]*(?P<name>[A-Za-z_][\w.-]*)[ \t]*\}\}"
)
"""A name in double braces, except in code."""
REFERRING = frozenset({"doc", "eq", "numref", "ref", "any", "prf:ref", "cite", "cite:t", "cite:p"})
"""Roles that print something else than the name which they contain; those of `glue` print a result."""
CELL = re.compile(
    r"(?ms)^(?P<fence>[ \t]*(?:`{3,}|~{3,}|:{3,}))[ \t]*\{code-cell\}[^\n]*\n"
    r"(?P<options>(?:[ \t]*:[\w-]+:[^\n]*\n|---[ \t]*\n.*?^---[ \t]*\n)+)(?P<code>.*?)^(?P=fence)[ \t]*$"
)
"""A complete code cell with its options."""
REMOVED = re.compile(r"\bremove[-_](?:cell|input)\b")
"""Tags of a cell whose code the book does not print; it prints what a reader can unfold (`hide-input`)."""
BREAK = re.compile(r"\+{3}(?:[ \t].*)?$")
"""A line that parts two cells of a notebook."""
CODE = frozenset({"code", "code-block", "code-cell", "sourcecode", "ipython", "prompt"})
SILENT = frozenset({"toctree", "tableofcontents", "bibliography", "index", "raw", "contents", "only"})
"""Directives that print none of the book's text."""
FIGURES = frozenset({"figure", "image", "glue:figure"})
"""Directives with the name of a picture after them, and a caption below."""
TITLED = re.compile(
    r"(?:prf:)?(?:theorem|lemma|definition|proposition|corollary|example|exercise|proof|remark|algorithm)"
)


def find_titles(text: str) -> Iterator[tuple[str, str]]:
    """Yield the labels of a MyST file, each with the title, caption or number below, and the title of the file."""
    for match in LABELLED.finditer(text):
        directive = DIRECTIVE.match(text, match.end())
        title = _title_of(directive) if directive else match["title"] or ""
        if title:
            yield match["label"], title
    for directive in DIRECTIVE.finditer(text):
        if (name := NAME.search(directive["options"])) and (title := _title_of(directive)):
            yield name[1], title
    for match in CAPTION.finditer(text):
        yield match["name"], match["caption"].strip()
    for number, formula in enumerate(filter(_label_of, FORMULA.finditer(text)), 1):
        yield _label_of(formula), f"({number})"
    if first := re.search(r"(?m)^#[ \t]+(\S.*)$", text):
        yield "", first[1].strip()


def _title_of(directive: re.Match[str]) -> str:
    return (directive["body"] if directive["kind"] in FIGURES else directive["title"]).strip()


def _label_of(formula: re.Match[str]) -> str:
    return formula["label"] or next(iter(LABEL.findall(formula["options"] or "")), "")


def resolve(text: str, targets: Targets) -> str:
    """Replace the references, citations and substitutions of a MyST file by what they print; number its formulas."""

    def printed(role: re.Match[str]) -> str:
        plain = None if role["ticks"] or role["name"] == "math" else targets.role(role["name"], role["text"])
        return role[0] if plain is None else plain

    def title(reference: re.Match[str]) -> str:
        target = reference["target"] or ""
        # A link in a heading is only a sign next to it.
        line = reference.string.rfind("\n", 0, reference.start()) + 1
        in_heading = reference.string.startswith("#", line)
        if reference["code"] or reference["embed"] or in_heading:
            return reference[0]
        if "://" in target:
            return f"<{target}>"
        path, _, label = target.rpartition("#")
        return targets.document(target) if target.endswith((".md", ".ipynb", ".rst")) else targets.title(label or path)

    def tagged(formula: re.Match[str]) -> str:
        label = _label_of(formula)
        number = targets.title(label).strip("()")
        if (
            not label
            or not number.isdecimal()
            or not re.search(rf"(?:\{{eq\}}`|(?<!!\[\]\()#){re.escape(label)}\b", text)
        ):
            return formula[0]
        group = "dollars" if formula["dollars"] else "inner"
        place = formula.start(group) - formula.start() + len(formula[group].rstrip())
        return f"{formula[0][:place]} \\tag{{{number}}}{formula[0][place:]}"

    def substitute(use: re.Match[str]) -> str:
        if use["code"]:
            return use[0]
        value = substitutions.get(use["name"])
        return str(value) if value is not None else unresolved(use["name"]) if is_enabled else use[0]

    substitutions, is_enabled = _substitutions(text, targets.tree)
    if substitutions or is_enabled:
        text = SUBSTITUTION.sub(substitute, text)
    return FORMULA.sub(tagged, REFERENCE.sub(title, ROLE.sub(printed, text)))


def _substitutions(text: str, tree: ResolvedTree) -> tuple[dict[str, object], bool]:
    """Texts that a file and its book define for names in double braces, and whether the book has such names."""
    front = re.match(r"(?s)---[ \t]*\n(.*?)^---", text, re.MULTILINE)
    names = [name for name in tree.names() if posixpath.basename(name) in ("_config.yml", "myst.yml")]
    book = [tree.settings, *(load_settings(tree.text(name)) for name in names)]
    values: dict[str, object] = {}
    for each in _values_of([*book, load_settings(front[1]) if front else None], "myst_substitutions", "substitutions"):
        values |= each if isinstance(each, dict) else {}
    extensions = list(_values_of(book, "myst_enable_extensions"))
    is_enabled = "myst_substitutions" in tree.settings or any("substitution" in (each or ()) for each in extensions)
    return values, is_enabled


def _values_of(settings: object, *names: str) -> Iterator[Any]:
    """Yield the values of the settings with these names, at any depth."""
    parts = settings if isinstance(settings, dict) else dict(enumerate(settings if isinstance(settings, list) else ()))
    for name, value in parts.items():
        if name in names:
            yield value
        yield from _values_of(value, *names)


def load_settings(text: str) -> Any:
    """Settings in YAML, without the values of unknown tags; None if they are invalid."""
    try:
        return yaml.load(text, _LenientLoader)
    except (yaml.YAMLError, RecursionError):
        return None


class _LenientLoader(yaml.SafeLoader):
    """YAML loader that ignores unknown tags, which settings of site generators may have."""


_LenientLoader.add_multi_constructor("", lambda loader, suffix, node: None)


def plain_markdown(text: str) -> str:
    """Convert MyST to plain Markdown: `{math}` blocks between $$, code in fences, the rest as prose."""

    def visible(cell: re.Match[str]) -> str:
        return f"```{{=hidden}}\n{cell['code']}```" if REMOVED.search(cell["options"]) else cell[0]

    text = CELL.sub(visible, text)
    # Formulas by their labels, each as one line.
    formulas = {}
    for formula in FORMULA.finditer(text):
        formulas[_label_of(formula)] = " ".join(REMARK.sub("", formula["dollars"] or formula["inner"]).split())
    text = "\n".join(_plain_lines(NAMED.sub("", TARGET.sub("", text)).split("\n"), formulas))
    return ROLE.sub(_role_text, text)


def _role_text(role: re.Match[str]) -> str:
    if role["ticks"]:
        return role[0]
    if role["name"] == "math":
        return f"${role['text']}$"
    words, _, target = role["text"].partition("<")
    is_reference = role["name"].startswith("glue") or (role["name"] in REFERRING and not target)
    return unresolved(words) if is_reference else words.strip()


def _plain_lines(lines: list[str], formulas: dict[str, str]) -> Iterator[str]:
    """Yield the lines with the fences of directives, which may be nested, and references replaced."""

    def reference_text(reference: re.Match[str]) -> str:
        label = (reference["target"] or "").rpartition("#")[2]
        if reference["code"] or (reference["embed"] and not reference["target"].startswith("#")):
            return reference[0]
        if reference["embed"] and label in formulas:
            return f"$${formulas[label]}$$"
        return unresolved(label)

    stack: list[tuple[str, str]] = []
    head = front = False
    for line in lines:
        kind = stack[-1][1] if stack else "prose"
        stay = _num_still_open(stack, line.strip())
        if stay < len(stack):
            for _, inner in reversed(stack[stay:]):
                yield {"math": "$$", "code": "```"}.get(inner, "" if inner != "plain" else line)
            del stack[stay:]
            head = front = False
        elif head and (front or OPTION.match(line) or line.strip() == "---"):
            front = front != (line.strip() == "---")
        elif kind in ("math", "code", "plain", "silent"):
            head = False
            # A blank line would end the formula.
            if kind != "silent" and (kind != "math" or line.strip()):
                yield line
        elif match := OPEN.match(line):
            kind, first = _open_directive(match[3], match[4])
            stack.append((match[2], kind))
            head = True
            yield from ("", first) if first else ("",)
        elif not BREAK.match(line):
            head = False
            if match := PLAIN.match(line):
                stack.append((match[1], "plain"))
            # Keep references in a heading: a link to itself is only a sign next to it.
            yield line if match or line.startswith("#") else REFERENCE.sub(reference_text, line)


def _num_still_open(stack: list[tuple[str, str]], line: str) -> int:
    """Number of fences still open after a line, which closes an equal inner fence, else the outermost shorter one."""
    if not stack or stack[-1][0] == line:
        return max(len(stack) - 1, 0)
    shorter = (
        place for place, (fence, _) in enumerate(stack) if line == line[:1] * len(line) and line.startswith(fence)
    )
    return next(shorter, len(stack))


def _open_directive(name: str, argument: str) -> tuple[str, str]:
    """Kind of a directive, and the text that replaces its first line."""
    if name == "math":
        return "math", "$$"
    if name in CODE:
        language = argument.split()[0] if argument else ""
        return "code", f"```{'python' if language.startswith('ipython') else language}"
    if name in SILENT:
        return "silent", ""
    if name in FIGURES or name in ("include", "literalinclude") or name.startswith("glue"):
        return "prose", ""
    kind = name.rpartition(":")[2].capitalize() if TITLED.fullmatch(name) else ""
    title = " ".join(each for each in (kind, argument) if each)
    return "prose", f"**{title}**\n" if title else ""
