"""Plan of a run: every stage, cached or not, why, and how long it takes by the times of former runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from infuser_core.planning.place import Asked, Salts
from infuser_core.planning.reasons import Before, Reason, Step, reasons, title
from infuser_core.store.recipe import Recipe, Record
from infuser_core.terminal import duration

_LISTED = 8
"""Cached stages in a row of which each gets a line of its own."""
_SAID = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One stage of a plan."""

    recipe: Recipe
    """Recipe of its artifact; with unknown inputs, its key is not the final one."""
    label: str
    """Benchmark or part that tells it from others of its phase and iteration; empty for most."""
    cached: bool
    """Whether the store has it."""
    reasons: Sequence[Reason]
    """Why it would run; empty for a cached stage."""
    seconds: float | None
    """Estimated time, seconds: 0 for a cached stage, None where the store knows no former one."""

    @property
    def title(self) -> str:
        """The stage in words."""
        return f"{title(self.recipe)}{f' ({self.label})' if self.label else ''}"

    @property
    def is_known(self) -> bool:
        """Whether all its inputs are there, so that its key is final."""
        return all(reason.kind != "depends" for reason in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """The stage for scripts."""
        return {
            "phase": self.recipe.phase,
            "iteration": self.recipe.iteration if self.recipe.iteration >= 0 else None,
            "label": self.label or None,
            "key": self.recipe.key if self.is_known else None,
            "state": "cached" if self.cached else "would run",
            "why": [reason.to_json() for reason in self.reasons],
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All stages of a run, in the order of the pipeline."""

    run: str
    """Its name."""
    compared_with: str
    """Run that the reasons speak of; empty where the store has none."""
    stages: Sequence[Planned]
    """The stages."""
    notes: Sequence[str] = ()
    """Notes for a person before starting it."""

    @property
    def running(self) -> list[Planned]:
        """Stages that would run."""
        return [stage for stage in self.stages if not stage.cached]

    @property
    def seconds(self) -> float:
        """Estimated time of the stages for which there is an estimate, seconds."""
        return sum(stage.seconds or 0.0 for stage in self.running)

    @property
    def unknown(self) -> int:
        """Stages that would run and for which there is no estimate."""
        return sum(stage.seconds is None for stage in self.running)

    def to_json(self) -> dict[str, Any]:
        """The plan for scripts."""
        return {
            "run": self.run,
            "compared_with": self.compared_with or None,
            "cached": len(self.stages) - len(self.running),
            "would_run": len(self.running),
            "seconds": round(self.seconds, 3),
            "stages_without_estimate": self.unknown,
            "notes": list(self.notes),
            "stages": [stage.to_json() for stage in self.stages],
        }

    def text(self) -> str:
        """The plan for people."""
        lines = [self._headline(), *_lines(self.stages), *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)

    def _headline(self) -> str:
        against = f"; compared with run {self.compared_with}" if self.compared_with else ""
        if not self.running:
            return f"run {self.run}: all {len(self.stages)} stages are cached{against}"
        time = f"about {duration(self.seconds)} by former runs" if self.unknown < len(self.running) else "time unknown"
        if 0 < self.unknown < len(self.running):
            time += f", and {self.unknown} stages that the store has no time for"
        return f"run {self.run}: {len(self.running)} of {len(self.stages)} stages would run, {time}{against}"


def _lines(stages: Sequence[Planned]) -> list[str]:
    width = max((len(stage.title) for stage in stages), default=0)
    lines = []
    for cached, group in groupby(stages, key=lambda stage: stage.cached):
        together = list(group)
        if cached and len(together) > _LISTED:
            span = f"{together[0].title} .. {together[-1].title}"
            lines.append(f"  {span}: {len(together)} stages cached")
        else:
            lines += [_line(stage, width) for stage in together]
    return lines


def _line(stage: Planned, width: int) -> str:
    if stage.cached:
        return f"  {stage.title:{width}}  cached"
    time = "        ?" if stage.seconds is None else f"{stage.seconds:8.1f}s"
    return f"  {stage.title:{width}}  would run {time}  {'; '.join(_said(stage.reasons))}"


def _said(reasons: Sequence[Reason]) -> list[str]:
    """The first reasons in words; what would run before stands in one of them."""
    ahead = list(dict.fromkeys(str(reason.new) for reason in reasons if reason.kind == "depends"))
    said = [reason.text for reason in reasons if reason.kind != "depends"]
    said += [f"depends on {', '.join(ahead[:_SAID])}{', ...' if len(ahead) > _SAID else ''}"] if ahead else []
    return [*said[:_SAID], f"{len(said) - _SAID} more reasons"] if len(said) > _SAID else said


def plan_of(
    run: str,
    steps: Sequence[Step],
    *,
    before: Before,
    salts: Salts,
    missing: Mapping[str, Recipe],
    known: Sequence[Record],
    compared_with: str,
    asked: Asked,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan of the stages that a survey came by; `known` are all artifacts of the store, for the times."""
    times = Times(before.records, known)
    stages = []
    for step, label in zip(steps, labels(steps), strict=True):
        if asked.only is not None and not asked.only.holds(step.recipe):
            continue
        why = [] if step.stored else reasons(step, before, salts, missing)
        seconds = 0.0 if step.stored else times.of(step.recipe, before.like(step.recipe))
        stages.append(Planned(recipe=step.recipe, label=label, cached=step.stored, reasons=why, seconds=seconds))
    return Plan(run=run, compared_with=compared_with, stages=stages, notes=notes)


def labels(steps: Sequence[Step]) -> list[str]:
    """Labels of stages of one phase and iteration: a label of their own, or of what they were made from."""
    own: dict[str, str] = {}
    found = []
    for step in steps:
        inherited = own.get(step.recipe.inputs.get("responses", ""), "")
        label = str(step.recipe.config.get("label") or inherited)
        own[step.ref.id] = label
        found.append("" if step.recipe.phase == "validate" else label)
    return found


class Times:
    """Expected time of a stage, by former artifacts: the one in its place, else the median of its phase."""

    def __init__(self, nearest: Sequence[Record], known: Sequence[Record]) -> None:
        self._by_phase = [_seconds(records) for records in (nearest, known)]

    def of(self, recipe: Recipe, record: Record | None) -> float | None:
        """Estimated seconds; None where no stage of the phase was ever computed."""
        if record is not None:
            return record.seconds
        return next((median(times[recipe.phase]) for times in self._by_phase if recipe.phase in times), None)


def _seconds(records: Sequence[Record]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for record in records:
        found.setdefault(record.phase, []).append(record.seconds)
    return found
