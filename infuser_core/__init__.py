"""INFUSER as a library: `import infuser_core as infuser`.

The public names are those of `__init__.pyi`: each is imported from its module when it is first used, so that the import
of the package loads nothing. Names stay, and functions keep their arguments, as CHANGELOG.md promises.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


@cache
def _modules() -> dict[str, str]:
    """Module of each public name: the imports of the stub, which type checkers read, too."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_modules())
    if name not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_modules()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_modules()})
