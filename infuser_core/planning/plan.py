"""Plan of a run: every stage, cached or not, and how long it takes by the times of former runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import median
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.planning.place import SALT, RunPlaces, Salts
from infuser_core.store.recipe import ArtifactRef, Recipe, Record
from infuser_core.store.runs import differing
from infuser_core.terminal import format_duration

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
        return f"{self.name} {_shorten(self.old)} -> {_shorten(self.new)}"


def leaves_that_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Leaf]:
    """Every leaf with different values; one that only one side has is `(none)` on the other."""
    return [Leaf(name=name, old=before, new=after) for name, before, after in differing(old, new, absent=MISSING)]


def _shorten(value: Any, width: int = 40) -> str:
    text = str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


UNKNOWN = "0" * 64
"""Digest of an artifact that nobody has seen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedStage:
    """A stage that the pipeline came by."""

    recipe: Recipe
    """Recipe of the artifact; phase, iteration and inputs alone where more is not known."""
    ref: ArtifactRef
    """The artifact; an assumed one where it is not stored."""
    stored: bool
    """Whether the store has it."""
    known: bool
    """False where the recipe depends on the content of an artifact that is not there."""

    @property
    def is_final(self) -> bool:
        """Whether its key is certain: the recipe is known, and the id of every input."""
        return self.known and not any(identity.endswith(f"@{UNKNOWN[:16]}") for identity in self.recipe.inputs.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReason:
    """One reason for which a stage would run."""

    kind: str
    """forced, version, setting, seed, depends, input or missing."""
    text: str
    """For people."""
    key: str = ""
    """Setting, input or phase that it is about."""
    old: Any = None
    """Value before."""
    new: Any = None
    """Value now."""

    def to_json(self) -> dict[str, Any]:
        """The reason for scripts."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRun:
    """Former artifacts that a plan is compared with."""

    records: Sequence[Record]
    """Artifacts of the run that it is compared with, in the order of the pipeline."""
    settings: Sequence[Leaf]
    """Settings in which the two runs differ."""
    seen: frozenset[str]
    """Keys that some run of the store has had."""

    def like(self, recipe: Recipe) -> Record | None:
        """The artifact in the recipe's place, the most similar of several; None where there was none."""
        place = [r for r in self.records if (r.phase, r.iteration) == (recipe.phase, recipe.iteration)]
        alike = [record for record in place if record.config.get("label") == recipe.config.get("label")]

        def distance(record: Record) -> tuple[int, str]:
            inputs = leaves_that_differ(record.inputs, recipe.inputs)
            settings = leaves_that_differ(record.config, recipe.config)
            return len(inputs) + len(settings), record.key

        return min(alike, key=distance, default=None)


def reasons_to_run(
    step: SurveyedStage, record: Record | None, before: FormerRun, salts: Salts, missing: Mapping[str, Recipe]
) -> list[RunReason]:
    """Reasons for which this stage would run, the most telling first.

    `record` is the artifact in its place, if any; `missing` are assumed artifacts by id.
    """
    recipe = step.recipe
    if not step.known:
        return _input_changes(recipe, None, missing) or [_DEPENDS]
    found = _forced_repeat(recipe, record, salts)
    if record is not None:
        if record.version != recipe.version:
            said = f"version of {recipe.phase} {record.version} -> {recipe.version}"
            found.append(_change("version", recipe.phase, record.version, recipe.version, said))
        found += _setting_changes(recipe, record, before.settings)
        if record.seed != recipe.seed:
            found.append(_change("seed", "seed", record.seed, recipe.seed))
    found += _input_changes(recipe, record, missing)
    gone = "missing: it was computed, and is gone from the store"
    return found or [RunReason(kind="missing", text=gone if recipe.key in before.seen else "missing: not computed yet")]


def _change(kind: str, key: str, old: Any, new: Any, text: str = "") -> RunReason:
    return RunReason(kind=kind, key=key, old=old, new=new, text=text or f"{key} {_shorten(old)} -> {_shorten(new)}")


def _forced_repeat(recipe: Recipe, record: Record | None, salts: Salts) -> list[RunReason]:
    salt = recipe.config.get(SALT)
    if salt is None or not salts.is_forced(recipe.phase, recipe.iteration):
        return []
    old = record.config.get(SALT) if record is not None else None
    if old == salt:
        return []
    return [_change("forced", SALT, old, salt, f"forced: computed again, attempt {salt}")]


def _setting_changes(recipe: Recipe, record: Record, changed: Sequence[Leaf]) -> list[RunReason]:
    """Settings of the phase that differ, each under the name that it has in the configuration, where it has one."""
    leaves = leaves_that_differ(record.config, recipe.config)
    named = [_as_configured(recipe, leaf, changed) for leaf in leaves if leaf.name != SALT]
    return [_change("setting", leaf.name, leaf.old, leaf.new) for leaf in named]


def _as_configured(recipe: Recipe, leaf: Leaf, changed: Sequence[Leaf]) -> Leaf:
    same = [other for other in changed if (other.old, other.new) == (leaf.old, leaf.new)]
    alike = [other for other in same if other.last == leaf.last] or same
    # Both roles have a learning rate: the phase's name says whose.
    own = [other for other in alike if any(part in recipe.phase for part in other.name.split("."))] or alike
    return own[0] if own else leaf


def _input_changes(recipe: Recipe, record: Record | None, missing: Mapping[str, Recipe]) -> list[RunReason]:
    before = dict(record.inputs) if record is not None else {}
    found = []
    for name, identity in recipe.inputs.items():
        if identity in missing:
            source = missing[identity].title
            found.append(_change("depends", name, None, source, f"depends on {source}, which would run"))
        elif before and identity != before.get(name):
            said = f"input {name} changed: {before.get(name, 'none')} -> {identity}"
            found.append(_change("input", name, before.get(name), identity, said))
    gone = [name for name in before if name not in recipe.inputs]
    return found + [_change("input", name, before[name], None, f"input {name} is no longer used") for name in gone]


_DEPENDS = RunReason(kind="depends", text="depends on stages before it, which would run", new="stages before it")


_LISTED = 8
"""Cached stages in a row of which each gets a line of its own."""
_SAID = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """One stage of a plan."""

    recipe: Recipe
    """Recipe of its artifact; with unknown inputs, its key is not the final one."""
    label: str
    """Benchmark or part that tells it from others of its phase and iteration; empty for most."""
    cached: bool
    """Whether the store has it."""
    reasons: Sequence[RunReason]
    """Why it would run; empty for a cached stage."""
    seconds: float | None
    """Estimated time, seconds: 0 for a cached stage, None where the store knows no former one."""

    @property
    def title(self) -> str:
        """The stage in words."""
        return f"{self.recipe.title}{f' ({self.label})' if self.label else ''}"

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
class RunPlan:
    """All stages of a run, in the order of the pipeline."""

    run: str
    """Its name."""
    compared_with: str
    """Run that the reasons speak of; empty where the store has none."""
    stages: Sequence[PlannedStage]
    """The stages."""
    notes: Sequence[str] = ()
    """Notes for a person before starting it."""

    @property
    def running(self) -> list[PlannedStage]:
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
        lines = [self._headline(), *_stage_lines(self.stages), *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)

    def _headline(self) -> str:
        against = f"; compared with run {self.compared_with}" if self.compared_with else ""
        if not self.running:
            return f"run {self.run}: all {len(self.stages)} stages are cached{against}"
        time = (
            f"about {format_duration(self.seconds)} by former runs"
            if self.unknown < len(self.running)
            else "time unknown"
        )
        if 0 < self.unknown < len(self.running):
            time += f", and {self.unknown} stages that the store has no time for"
        return f"run {self.run}: {len(self.running)} of {len(self.stages)} stages would run, {time}{against}"


def _stage_lines(stages: Sequence[PlannedStage]) -> list[str]:
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


def _line(stage: PlannedStage, width: int) -> str:
    if stage.cached:
        return f"  {stage.title:{width}}  cached"
    time = "        ?" if stage.seconds is None else f"{stage.seconds:8.1f}s"
    return f"  {stage.title:{width}}  would run {time}  {'; '.join(_reason_texts(stage.reasons))}"


def _reason_texts(reasons: Sequence[RunReason]) -> list[str]:
    """The first reasons in words; what would run before stands in one of them."""
    ahead = list(dict.fromkeys(str(reason.new) for reason in reasons if reason.kind == "depends"))
    said = [reason.text for reason in reasons if reason.kind != "depends"]
    said += [f"depends on {', '.join(ahead[:_SAID])}{', ...' if len(ahead) > _SAID else ''}"] if ahead else []
    return [*said[:_SAID], f"{len(said) - _SAID} more reasons"] if len(said) > _SAID else said


def make_plan(
    run: str,
    steps: Sequence[SurveyedStage],
    *,
    before: FormerRun,
    salts: Salts,
    missing: Mapping[str, Recipe],
    known: Sequence[Record],
    compared_with: str,
    asked: RunPlaces,
    notes: Sequence[str] = (),
) -> RunPlan:
    """The plan of the stages that a survey came by; `known` are all artifacts of the store, for the times."""
    usual = usual_seconds(known) | usual_seconds(before.records)
    stages = []
    for step, label in zip(steps, stage_labels(steps), strict=True):
        if asked.only is not None and not asked.only.holds(step.recipe):
            continue
        why: list[RunReason] = []
        seconds: float | None = 0.0
        if not step.stored:
            record = before.like(step.recipe)
            why = reasons_to_run(step, record, before, salts, missing)
            seconds = record.seconds if record else usual.get(step.recipe.phase)
        stages.append(PlannedStage(recipe=step.recipe, label=label, cached=step.stored, reasons=why, seconds=seconds))
    return RunPlan(run=run, compared_with=compared_with, stages=stages, notes=notes)


def stage_labels(steps: Sequence[SurveyedStage]) -> list[str]:
    """Labels of stages of one phase and iteration: a label of their own, or of what they were made from."""
    own: dict[str, str] = {}
    found = []
    for step in steps:
        inherited = own.get(step.recipe.inputs.get("responses", ""), "")
        label = str(step.recipe.config.get("label") or inherited)
        own[step.ref.id] = label
        found.append("" if step.recipe.phase == Phase.VALIDATE else label)
    return found


def usual_seconds(records: Sequence[Record]) -> dict[str, float]:
    """Median time of each phase by former artifacts."""
    found: dict[str, list[float]] = {}
    for record in records:
        found.setdefault(record.phase, []).append(record.seconds)
    return {phase: median(seconds) for phase, seconds in found.items()}
