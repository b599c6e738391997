"""MyST Markdown's directives, roles and references as plain Markdown: formulas, code and prose as what they are."""

import re
from collections.abc import Iterator

OPEN = re.compile(r"^([ \t]*)(`{3,}|~{3,}|:{3,})[ \t]*\{([\w:.+-]+)\}[ \t]*(.*)$")
PLAIN = re.compile(r"^[ \t]*(`{3,}|~{3,})[^`]*$")
OPTION = re.compile(r"^[ \t]*:[\w-]+:(?:[ \t].*)?$")
ROLE = re.compile(r"\{([\w:-]+)\}`([^`\n]+)`")
TARGET = re.compile(r"(?m)^\([\w:.-]+\)=[ \t]*$")
FORMULA = re.compile(
    r"(?ms)^[ \t]*(?P<fence>`{3,}|:{3,})[ \t]*\{math\}[^\n]*\n(?P<options>(?:[ \t]*:[\w-]+:[^\n]*\n)*)(?P<inner>.*?)"
    r"^[ \t]*(?P=fence)"
    r"|\$\$(?P<dollars>.+?)\$\$[ \t]*\((?P<label>[\w:.-]+)\)[ \t]*$"
)
"""A formula that may have a label."""
NAMED = re.compile(r"(?m)(?<=\$\$)[ \t]*\([\w.]*[-_:][\w:.-]*\)[ \t]*$")
"""The label of a formula behind it: a word with a separator; other words in brackets are text."""
LABEL = re.compile(r":label:[ \t]*(\S+)")
REMARK = re.compile(r"(?m)(?<!\\)%.*$")
REFERENCE = re.compile(
    r"(?P<code>(?P<ticks>`+).+?(?P=ticks))|(?P<embed>!?)\[\]\((?P<target>#?[^\s():]+(?::[^\s()/][^\s()]*)?)\)"
)
"""A reference without text, for which the page prints a number; code may look like one."""
SEPARATORS = re.compile(r"[-_:.]+")
CODE = frozenset({"code", "code-block", "code-cell", "sourcecode", "ipython", "prompt"})
SILENT = frozenset({"toctree", "tableofcontents", "bibliography", "index", "raw", "contents", "only"})
"""Directives that print nothing of a book's own."""
TITLED = re.compile(
    r"(?:prf:)?(?:theorem|lemma|definition|proposition|corollary|example|exercise|proof|remark|algorithm)"
)


def plain(text: str) -> str:
    """The text without MyST's own marks: `{math}` blocks between $$, code fenced, the rest as prose."""
    made = "\n".join(_lines(NAMED.sub("", TARGET.sub("", text)).split("\n"), _formulas(text)))
    return ROLE.sub(lambda match: f"${match[2]}$" if match[1] == "math" else match[2].partition("<")[0].strip(), made)


def _formulas(text: str) -> dict[str, str]:
    """The labelled formulas of a text, each in one line."""
    made = {}
    for found in FORMULA.finditer(text):
        label = found["label"] or next(iter(LABEL.findall(found["options"] or "")), "")
        made[label] = " ".join(REMARK.sub("", found["dollars"] or found["inner"]).split())
    return made


def _lines(lines: list[str], formulas: dict[str, str]) -> Iterator[str]:
    """Lines, with the fences of directives replaced; fences may stand in one another."""

    def referred(found: re.Match[str]) -> str:
        label = (found["target"] or "").rpartition("#")[2]
        if found["code"] or (found["embed"] and not found["target"].startswith("#")):
            return found[0]
        if found["embed"] and label in formulas:
            return f"$${formulas[label]}$$"
        return SEPARATORS.sub(" ", label.rpartition("/")[2].removesuffix(".md")).strip()

    stack: list[tuple[str, str]] = []
    head = front = False
    for line in lines:
        kind = stack[-1][1] if stack else "prose"
        ended = _ended(stack, line.strip())
        if ended < len(stack):
            for _, inner in reversed(stack[ended:]):
                yield {"math": "$$", "code": "```"}.get(inner, "" if inner != "plain" else line)
            del stack[ended:]
            head = front = False
        elif head and (front or OPTION.match(line) or line.strip() == "---"):
            front = front != (line.strip() == "---")
        elif kind in ("math", "code", "plain", "silent"):
            head = False
            # A blank line would end the formula.
            if kind != "silent" and (kind != "math" or line.strip()):
                yield line
        elif match := OPEN.match(line):
            kind, first = _opened(match[3], match[4])
            stack.append((match[2], kind))
            head = True
            yield from ("", first) if first else ("",)
        else:
            head = False
            if match := PLAIN.match(line):
                stack.append((match[1], "plain"))
            # A heading's link to itself is a sign beside it.
            yield line if match or line.startswith("#") else REFERENCE.sub(referred, line)


def _ended(stack: list[tuple[str, str]], line: str) -> int:
    """Place in the stack of the fence that a line closes with all in it: one as long, or the outermost shorter one."""
    if not stack or stack[-1][0] == line:
        return max(len(stack) - 1, 0)
    shorter = (
        place for place, (fence, _) in enumerate(stack) if line == line[:1] * len(line) and line.startswith(fence)
    )
    return next(shorter, len(stack))


def _opened(name: str, argument: str) -> tuple[str, str]:
    """Kind of a directive, and the line that stands for its beginning."""
    if name == "math":
        return "math", "$$"
    if name in CODE:
        language = argument.split()[0] if argument else ""
        return "code", f"```{'python' if language.startswith('ipython') else language}"
    if name in SILENT:
        return "silent", ""
    if name in ("figure", "image", "include", "literalinclude"):
        return "prose", ""
    named = name.rpartition(":")[2].capitalize() if TITLED.fullmatch(name) else ""
    title = " ".join(each for each in (named, argument) if each)
    return "prose", f"**{title}**\n" if title else ""
