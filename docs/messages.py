"""The page of error messages: every error that the code raises for its user, with the remedy printed below it."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from infuser_core import errors

ROOT = Path(__file__).parent.parent
PACKAGES = ("flows", "tasks", "corpus", "infuser_core")
CODES = {
    name: kind.exit_code
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.InfuserError)
}
"""Exit code by the error's name."""
HEAD = """# Error messages

All messages with which a command can fail, and the hints below them, read from the code; `…` is your value. Search for
words of the line that you see. Exit codes: 2 wrong usage, configuration or place of the store; 3 a stage failed
(continue with `infuser resume`) or the store is damaged (`infuser doctor --repair`)."""


def page() -> str:
    """The messages in tables, by the part of the code that raises them."""
    parts: dict[str, set[tuple[str, str, int]]] = defaultdict(set)
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts[path.relative_to(ROOT).parent.as_posix()] |= set(messages(path))
    lines = [HEAD]
    for part, rows in parts.items():
        if rows:
            lines += [f"\n## {part}\n", "| Message | Remedy | Exit |", "|---|---|---|"]
            lines += [f"| {_cell(message)} | {_cell(hint)} | {code} |" for message, hint, code in sorted(rows)]
    return "\n".join(lines)


def messages(path: Path) -> Iterator[tuple[str, str, int]]:
    """Message, hint and exit code of each error that a file raises, as far as their text is in the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    shared = _strings(tree.body, {})
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        strings = _strings(ast.walk(function), shared)
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in CODES and call.args:
                hint = next((text(word.value, strings) for word in call.keywords if word.arg == "hint"), "")
                message = text(call.args[0], strings)
                if message.strip("… "):
                    yield message, hint, CODES[call.func.id]


def _strings(nodes: Iterable[ast.AST], outer: dict[str, str]) -> dict[str, str]:
    """Texts of the variables that are assigned, in addition to those of the outer scope."""
    strings = dict(outer)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            strings[node.targets[0].id] = text(node.value, strings)
    return strings


def text(node: ast.expr, strings: dict[str, str]) -> str:
    """The text of an expression, with `…` for values that are only known at run time."""
    match node:
        case ast.Constant(value=str(words)):
            return words
        case ast.JoinedStr(values=parts):
            return "".join(text(part, strings) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text(left, strings) + text(right, strings)
        case ast.FormattedValue(value=value):
            return text(value, strings)
        case ast.Name(id=name):
            return strings.get(name, "…")
    return "…"


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")
