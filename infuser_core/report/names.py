"""Benchmarks under the paper's headings."""

from collections.abc import Sequence


def row_of(name: str, known: Sequence[str]) -> str:
    """The paper's heading of a benchmark, by letters and digits alone; else the one that begins alike; else itself."""
    own = _folded(name)
    folded = {row: _folded(row) for row in known}
    same = [row for row, key in folded.items() if key == own]
    alike = [row for row, key in folded.items() if key.startswith(own)]
    return same[0] if same else alike[0] if len(alike) == 1 else name


def _folded(name: str) -> str:
    return "".join(char for char in name.lower().replace("+", "plus") if char.isalnum())
