"""MyST Markdown's directives and roles as plain Markdown: formulas, code and prose each as what they are."""

import re
from collections.abc import Iterator

OPEN = re.compile(r"^([ \t]*)(`{3,}|~{3,}|:{3,})[ \t]*\{([\w:.+-]+)\}[ \t]*(.*)$")
PLAIN = re.compile(r"^[ \t]*(`{3,}|~{3,})[^`]*$")
OPTION = re.compile(r"^[ \t]*:[\w-]+:(?:[ \t].*)?$")
ROLE = re.compile(r"\{([\w:-]+)\}`([^`\n]+)`")
TARGET = re.compile(r"(?m)^\([\w:.-]+\)=[ \t]*$")
CODE = frozenset({"code", "code-block", "code-cell", "sourcecode", "ipython", "prompt"})
SILENT = frozenset({"toctree", "tableofcontents", "bibliography", "index", "raw", "contents", "only"})
"""Directives that print nothing of a book's own."""
TITLED = re.compile(
    r"(?:prf:)?(?:theorem|lemma|definition|proposition|corollary|example|exercise|proof|remark|algorithm)"
)


def plain(text: str) -> str:
    """The text without MyST's own marks: `{math}` blocks between $$, code fenced, the rest as prose."""
    made = "\n".join(_lines(TARGET.sub("", text).split("\n")))
    return ROLE.sub(lambda match: f"${match[2]}$" if match[1] == "math" else match[2].partition("<")[0].strip(), made)


def _lines(lines: list[str]) -> Iterator[str]:
    """Lines, with the fences of directives replaced; fences may stand in one another."""
    stack: list[tuple[str, str]] = []
    head = front = False
    for line in lines:
        fence, kind = stack[-1] if stack else ("", "prose")
        if fence and line.strip() == fence:
            stack.pop()
            yield {"math": "$$", "code": "```"}.get(kind, "" if kind != "plain" else line)
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
            yield line


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
