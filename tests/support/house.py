"""The project's own modules as syntax trees, for the tests of the house's rules."""

import ast
from collections.abc import Iterator
from pathlib import Path

from places import ROOT

PACKAGES = ("flows", "tasks", "corpus", "infuser_core")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def at(path: Path, node: ast.AST) -> str:
    return f"{name(path)}:{getattr(node, 'lineno', 0)}"


def nodes(kind: type | tuple[type, ...], *rooms: str) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of a kind in the files of the rooms, or everywhere."""
    for path, tree in TREES.items():
        if not rooms or name(path).startswith(rooms):
            yield from ((path, node) for node in ast.walk(tree) if isinstance(node, kind))


def is_docstring(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
