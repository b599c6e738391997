"""Where two nested settings differ, leaf by leaf."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One setting with two values."""

    name: str
    """Its keys, joined by dots."""
    old: Any
    """Value before."""
    new: Any
    """Value after."""

    def is_at_or_below(self, key: str) -> bool:
        """Whether the leaf is this key or one under it."""
        return self.name == key or self.name.startswith(f"{key}.")

    @property
    def last(self) -> str:
        """The last of its keys."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.name} {_short(self.old)} -> {_short(self.new)}"


def leaves_that_differ(old: Any, new: Any, where: str = "") -> list[Leaf]:
    """Every leaf with different values; one that only one side has is `(none)` on the other."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in dict.fromkeys([*old, *new]):
            name = f"{where}.{key}".lstrip(".")
            found += leaves_that_differ(old.get(key, MISSING), new.get(key, MISSING), name)
        return found
    return [] if old == new else [Leaf(name=where, old=old, new=new)]


def _short(value: Any, width: int = 40) -> str:
    text = str(value)
    return text if len(text) <= width else text[: width - 3] + "..."
