"""Data of the charts over iterations: curves from the phase table, and the diagnostics of the optimizer steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from infuser_core.config.phase_table import FACTS, Curve, Phase
from infuser_core.schemas import COLUMNS
from infuser_core.store.recipe import Record
from infuser_core.store.views import Lens

VALIDATION = FACTS[Phase.VALIDATE].curves[0].title
_FIRST = (Phase.VALIDATE, Phase.ROLLOUT_QUESTIONS, Phase.SCORE_INFLUENCE, Phase.GENERATE_QUESTIONS)
_ORDER = [curve.title for phase in _FIRST for curve in phase.facts.curves]
"""Titles of the first charts; the others follow as they come."""
_STEPS = ("entropy", "sampler_kl", "clip_fraction", "flat_share")
"""Columns of the optimizer steps that are drawn, as means over response tokens."""
Point = tuple[float | None, float | None, float | None]
"""A value with the ends of its interval."""
_NOTHING: Point = (None, None, None)
_MEANS: dict[str, list[tuple[str, str, str, float]]] = {}
"""Title, unit, role and value of the numbers of an artifact's rows, by key: a cache, as artifacts never change."""


Lines = dict[str, dict[int, Point]]
"""Points by iteration by the label of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over iterations."""

    title: str
    unit: str
    """Unit of the numbers; `%` for shares from 0 to 1."""
    lines: Lines
    anchor: float | None = None
    """Value of the anchor, a horizontal line."""
    selected: int | None = None
    """Iteration of the selected checkpoint."""

    def to_json(self, since: int = -1) -> dict[str, Any]:
        """Columns for the page's script: iterations, and each line's values and intervals, from one iteration on."""
        iterations = sorted({x for line in self.lines.values() for x in line if x >= since})
        lines = [[line.get(x, _NOTHING) for x in iterations] for line in self.lines.values()]
        return {
            "title": self.title,
            "unit": self.unit,
            "anchor": self.anchor,
            "selected": self.selected,
            "labels": list(self.lines),
            "columns": [iterations, *([value for value, _, _ in line] for line in lines)],
            "bands": [[[low for _, low, _ in line], [high for _, _, high in line]] for line in lines],
        }


def charts(lens: Lens, names: Mapping[str, str]) -> list[Chart]:
    """Charts of these runs, whose lines have these labels; charts without points are left out."""
    units: dict[str, str] = {}
    lines: dict[str, Lines] = {}
    for title, unit, run, role, iteration, point in [*_from_tables(lens, names), *_from_records(lens, names)]:
        units[title] = unit
        label = " ".join(part for part in (names[run] if len(names) > 1 else "", role) if part) or names[run]
        lines.setdefault(title, {}).setdefault(label, {})[iteration] = point
    titles = sorted(lines, key=lambda title: _ORDER.index(title) if title in _ORDER else len(_ORDER))
    marks = _marks(lens, lines) if len(names) == 1 else {}
    return [
        Chart(title=title, unit=units[title], lines=lines[title], **(marks if title == VALIDATION else {}))
        for title in titles
    ]


def _marks(lens: Lens, lines: Mapping[str, Lines]) -> dict[str, Any]:
    """The anchor's accuracy and the iteration of the selected checkpoint, for the chart of validation."""
    line = next(iter(lines.get(VALIDATION, {}).values()), {})
    rows = lens.query("select selected_iteration from selections limit 1")
    return {"anchor": line.get(0, _NOTHING)[0], "selected": rows[0]["selected_iteration"] if rows else None}


def _from_records(lens: Lens, names: Mapping[str, str]) -> Iterator[tuple[str, str, str, str, int, Point]]:
    """Points of the curves of the phase table and of the time per iteration: no table of rows is opened."""
    for run in names:
        seconds: dict[int, float] = {}
        for entry in lens.catalogue.journal_entries(run):
            record = lens.catalogue.record(entry.key)
            if entry.iteration >= 0:
                seconds[entry.iteration] = seconds.get(entry.iteration, 0.0) + record.seconds
            for curve in FACTS[entry.phase].curves if entry.phase in FACTS else ():
                point = _point(record, curve)
                if point[0] is not None:
                    yield curve.title, curve.unit, run, "", entry.iteration, point
        for iteration, value in seconds.items():
            yield "Time per iteration", "s", run, "", iteration, (value, None, None)


def _point(record: Record, curve: Curve) -> Point:
    value, low, high = (_number(record.summary.get(name)) for name in (curve.value, curve.low, curve.high))
    if curve.over and value is not None:
        whole = record.rows.get(curve.over) or _number(record.summary.get(curve.over))
        value = value / whole if whole else None
    return value, low, high


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _from_tables(lens: Lens, names: Mapping[str, str]) -> Iterator[tuple[str, str, str, str, int, Point]]:
    """Points of the diagnostics of optimizer steps, and of the share of repeated questions."""
    phases: tuple[str, ...] = (Phase.UPDATE_SOLVER, Phase.UPDATE_GENERATOR, Phase.GENERATE_QUESTIONS)
    for run in names:
        entries = [entry for entry in lens.catalogue.journal_entries(run) if entry.phase in phases]
        _read_means(lens, [entry.key for entry in entries if entry.key not in _MEANS])
        for entry in sorted(entries, key=lambda entry: (phases.index(entry.phase), entry.iteration)):
            for title, unit, role, value in _MEANS[entry.key]:
                yield title, unit, run, role, entry.iteration, (value, None, None)


def _read_means(lens: Lens, keys: Sequence[str]) -> None:
    """Compute the numbers of artifacts that are not in the cache."""
    _MEANS.update({key: [] for key in keys})
    steps: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in lens.rows("updates", keys, ("role", "num_tokens", *_STEPS)):
        steps.setdefault((row["artifact_key"], row["role"]), []).append(row)
    for (key, role), rows in steps.items():
        tokens = sum(row["num_tokens"] for row in rows)
        for name in _STEPS if tokens else ():
            column = COLUMNS[name]
            mean = sum((row[name] or 0.0) * row["num_tokens"] for row in rows) / tokens
            title, unit = capitalize(column.label or name), "%" if column.is_share else column.unit
            _MEANS[key].append((title, unit, role, mean))
    texts: dict[str, list[str]] = {}
    for row in lens.rows("questions", keys, ("text",)):
        texts.setdefault(row["artifact_key"], []).append(row["text"])
    for key, lines in texts.items():
        _MEANS[key].append(("Repeated questions", "%", "", 1 - len(set(lines)) / len(lines)))


def capitalize(label: str) -> str:
    """A label as a title: its first letter is a capital, others stay."""
    return label[:1].upper() + label[1:]


def average(separate: Sequence[Chart], variants: Mapping[str, str]) -> list[Chart]:
    """Replace the lines of runs of a variant by their mean, with a band from the lowest to the highest.

    `variants` are names of variants by label of the run, with which the labels of its lines begin.
    """
    joined = []
    for chart in separate:
        groups: dict[str, dict[int, list[float]]] = {}
        for label, line in chart.lines.items():
            run = max((each for each in variants if label.startswith(each)), key=len)
            group = groups.setdefault(variants[run] + label.removeprefix(run), {})
            for x, (value, _, _) in line.items():
                group.setdefault(x, []).extend([] if value is None else [value])
        lines: Lines = {
            label: {x: (fmean(values), min(values), max(values)) for x, values in group.items() if values}
            for label, group in groups.items()
        }
        joined.append(Chart(title=chart.title, unit=chart.unit, lines=lines))
    return joined
