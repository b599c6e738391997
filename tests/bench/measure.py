"""Lines of a benchmark: one measure each, beside what was asked for."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result."""

    name: str
    """What was measured."""
    value: float
    """The measure."""
    unit: str
    """Its unit."""
    target: str = ""
    """What was asked for; empty for information."""
    detail: str = ""
    """Numbers behind it."""

    @property
    def met(self) -> bool | None:
        """Whether the target is met."""
        if not self.target:
            return None
        sign, bound = self.target.split()
        return self.value >= float(bound) if sign == ">=" else self.value <= float(bound)


def shown(rows: Iterable[Row], *, as_json: bool) -> int:
    """Print every row as soon as it is there, as a Markdown table or JSON lines; 1 where a target is missed."""
    missed = []
    if not as_json:
        print("| measure | value | unit | target | met | |\n|---|---|---|---|---|---|")
    for row in rows:
        print(json.dumps(asdict(row) | {"met": row.met}) if as_json else _line(row), flush=True)
        missed += [row.name] if row.met is False else []
    if not as_json:
        print(f"\nmissed: {'; '.join(missed)}" if missed else "\nevery target is met")
    return 1 if missed else 0


def _line(row: Row) -> str:
    met = {True: "yes", False: "no", None: ""}[row.met]
    value = f"{row.value:,.0f}" if row.value >= 1000 else f"{row.value:.3g}"
    return f"| {row.name} | {value} | {row.unit} | {row.target} | {met} | {row.detail} |"
