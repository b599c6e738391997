"""Conversion of MyST to plain Markdown: directives, roles and references become formulas, code and prose."""

import re
from collections.abc import Iterator

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
CODE = frozenset({"code", "code-block", "code-cell", "sourcecode", "ipython", "prompt"})
SILENT = frozenset({"toctree", "tableofcontents", "bibliography", "index", "raw", "contents", "only"})
"""Directives that print none of the book's text."""
TITLED = re.compile(
    r"(?:prf:)?(?:theorem|lemma|definition|proposition|corollary|example|exercise|proof|remark|algorithm)"
)


def plain_markdown(text: str) -> str:
    """Convert MyST to plain Markdown: `{math}` blocks between $$, code in fences, the rest as prose."""
    # Formulas by their labels, each as one line.
    formulas = {}
    for formula in FORMULA.finditer(text):
        label = formula["label"] or next(iter(LABEL.findall(formula["options"] or "")), "")
        formulas[label] = " ".join(REMARK.sub("", formula["dollars"] or formula["inner"]).split())
    text = "\n".join(_plain_lines(NAMED.sub("", TARGET.sub("", text)).split("\n"), formulas))
    return ROLE.sub(_role_text, text)


def _role_text(role: re.Match[str]) -> str:
    if role["ticks"]:
        return role[0]
    return f"${role['text']}$" if role["name"] == "math" else role["text"].partition("<")[0].strip()


def _plain_lines(lines: list[str], formulas: dict[str, str]) -> Iterator[str]:
    """Yield the lines with the fences of directives, which may be nested, and references replaced."""

    def reference_text(reference: re.Match[str]) -> str:
        label = (reference["target"] or "").rpartition("#")[2]
        if reference["code"] or (reference["embed"] and not reference["target"].startswith("#")):
            return reference[0]
        if reference["embed"] and label in formulas:
            return f"$${formulas[label]}$$"
        return SEPARATORS.sub(" ", label.rpartition("/")[2].removesuffix(".md")).strip()

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
        else:
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
    if name in ("figure", "image", "include", "literalinclude"):
        return "prose", ""
    kind = name.rpartition(":")[2].capitalize() if TITLED.fullmatch(name) else ""
    title = " ".join(each for each in (kind, argument) if each)
    return "prose", f"**{title}**\n" if title else ""
