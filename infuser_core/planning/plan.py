"""Plan of a run: for each stage whether it is cached or why it would run, and its time by earlier runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import median
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.errors import quantity
from infuser_core.planning.place import SALT, RunPlaces, Salts
from infuser_core.store.recipe import ArtifactRef, Recipe, Record
from infuser_core.store.runs import list_differences
from infuser_core.terminal import format_duration

MISSING = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A setting whose value differs between two configurations."""

    name: str
    """Its keys, joined by dots."""
    old: Any
    new: Any

    def is_at_or_below(self, key: str) -> bool:
        """Whether the setting is this key or nested below it."""
        return self.name == key or self.name.startswith(f"{key}.")

    @property
    def last(self) -> str:
        """The last part of the dotted name."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.name} {_shorten(self.old)} -> {_shorten(self.new)}"


def leaves_that_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Leaf]:
    """Settings whose values differ; a setting that one side lacks is `(none)` there."""
    return [
        Leaf(name=name, old=before, new=after) for name, before, after in list_differences(old, new, absent=MISSING)
    ]


def _shorten(value: Any, width: int = 40) -> str:
    text = str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


UNKNOWN = "0" * 64
"""Digest of an artifact that does not exist yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedStage:
    """A stage reached by a dry run of the pipeline, with its artifact if stored."""

    recipe: Recipe
    """Recipe of the artifact; only phase, iteration and inputs if the rest is unknown."""
    ref: ArtifactRef
    """The artifact, with a placeholder digest if it is not stored."""
    stored: bool
    is_known: bool
    """False if the recipe depends on the content of an artifact that is missing."""

    @property
    def is_final(self) -> bool:
        """Whether the artifact's key is certain: its recipe and the id of every input are known."""
        assumed = [identity for identity in self.recipe.inputs.values() if identity.endswith(f"@{UNKNOWN[:16]}")]
        return self.is_known and not assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReason:
    """One reason why a stage would run."""

    kind: str
    """forced, version, setting, seed, depends, input or missing."""
    text: str
    """Human-readable."""
    key: str = ""
    """Setting, input or phase that changed."""
    old: Any = None
    new: Any = None

    def to_json(self) -> dict[str, Any]:
        """The reason as JSON values, without empty ones."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRun:
    """Artifacts and settings of an earlier run, with which a plan is compared."""

    records: Sequence[Record]
    """Artifacts of the earlier run, in the order of the pipeline."""
    settings: Sequence[Leaf]
    """Settings in which the two runs differ."""
    keys_of_all_runs: frozenset[str]
    """Keys of all artifacts that any run in the store made, including removed ones."""

    def like(self, recipe: Recipe) -> Record | None:
        """The earlier artifact of the same phase, iteration and label, the most similar if several; None if none."""
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
    """Reasons why this stage would run, the most important first.

    `record` is the earlier artifact of this stage, if any; `missing`: recipes of artifacts that are not stored, by id.
    """
    recipe = step.recipe
    if not step.is_known:
        return _input_changes(recipe, None, missing) or [_DEPENDS]
    reasons: list[RunReason] = []
    salt, old = recipe.config.get(SALT), record.config.get(SALT) if record is not None else None
    if salt not in (None, old) and salts.is_forced(recipe.phase, recipe.iteration):
        reasons.append(_change("forced", SALT, old, salt, f"forced: computed again, attempt {salt}"))
    if record is not None:
        if record.version != recipe.version:
            text = f"version of {recipe.phase} {record.version} -> {recipe.version}"
            reasons.append(_change("version", recipe.phase, record.version, recipe.version, text))
        leaves = [leaf for leaf in leaves_that_differ(record.config, recipe.config) if leaf.name != SALT]
        settings = [_as_configured(recipe, leaf, before.settings) for leaf in leaves]
        reasons += [_change("setting", leaf.name, leaf.old, leaf.new) for leaf in settings]
        if record.seed != recipe.seed:
            reasons.append(_change("seed", "seed", record.seed, recipe.seed))
    reasons += _input_changes(recipe, record, missing)
    if not reasons:
        removed = recipe.key in before.keys_of_all_runs
        text = "missing: it was computed, and was removed from the store" if removed else "missing: not computed yet"
        reasons = [RunReason(kind="missing", text=text)]
    return reasons


def _change(kind: str, key: str, old: Any, new: Any, text: str = "") -> RunReason:
    return RunReason(kind=kind, key=key, old=old, new=new, text=text or f"{key} {_shorten(old)} -> {_shorten(new)}")


def _as_configured(recipe: Recipe, leaf: Leaf, changed: Sequence[Leaf]) -> Leaf:
    """A setting of a phase, named as in the configuration where possible: of the `changed` ones, the most alike."""
    same = [other for other in changed if (other.old, other.new) == (leaf.old, leaf.new)]
    alike = [other for other in same if other.last == leaf.last] or same
    # Several settings can match, e.g. the learning rates of both roles: prefer the one named like the phase.
    own = [other for other in alike if any(part in recipe.phase for part in other.name.split("."))] or alike
    return own[0] if own else leaf


def _input_changes(recipe: Recipe, record: Record | None, missing: Mapping[str, Recipe]) -> list[RunReason]:
    before = dict(record.inputs) if record is not None else {}
    changes = []
    for name, identity in recipe.inputs.items():
        if identity in missing:
            source = missing[identity].title
            changes.append(_change("depends", name, None, source, f"depends on {source}, which would run"))
        elif before and identity != before.get(name):
            text = f"input {name} changed: {before.get(name, 'none')} -> {identity}"
            changes.append(_change("input", name, before.get(name), identity, text))
    unused = [name for name in before if name not in recipe.inputs]
    return changes + [_change("input", name, before[name], None, f"input {name} is no longer used") for name in unused]


_DEPENDS = RunReason(kind="depends", text="depends on stages before it, which would run", new="stages before it")

_LISTED = 8
"""Longest list of consecutive cached stages that is printed line by line; a longer one takes a single line."""
_SHOWN = 12
"""Longest list of stages that is printed whole."""
_MAX_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """One stage of a plan."""

    recipe: Recipe
    """Recipe of its artifact; its key can still change if inputs are unknown."""
    label: str
    """Benchmark or part that distinguishes it from others of its phase and iteration; empty for most."""
    cached: bool
    reasons: Sequence[RunReason]
    """Why it would run; empty for a cached stage."""
    seconds: float | None
    """Estimated seconds; 0 for a cached stage, None if the store has no earlier stage of the phase."""

    @property
    def title(self) -> str:
        """Human-readable name of the stage."""
        return f"{self.recipe.title}{f' ({self.label})' if self.label else ''}"

    @property
    def is_known(self) -> bool:
        """Whether all its inputs exist, so that its key is final."""
        return all(reason.kind != "depends" for reason in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """The stage as JSON values."""
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
    compared_with: str
    """Run that the reasons refer to; empty if the store has none."""
    stages: Sequence[PlannedStage]
    notes: Sequence[str] = ()
    """Remarks to read before starting the run."""

    @property
    def running(self) -> list[PlannedStage]:
        """Stages that would run."""
        return [stage for stage in self.stages if not stage.cached]

    @property
    def seconds(self) -> float:
        """Sum of the estimated seconds of stages that have an estimate."""
        return sum(stage.seconds or 0.0 for stage in self.running)

    @property
    def unknown(self) -> int:
        """Number of stages that would run and have no estimate."""
        return sum(stage.seconds is None for stage in self.running)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
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

    def text(self, *, verbose: bool = False) -> str:
        """The plan as text for a terminal; if `verbose`, with every stage."""
        lines = _stage_lines(self.stages)
        if not verbose and len(lines) > _SHOWN:
            lines = [*lines[:_SHOWN], f"  {quantity(len(lines) - _SHOWN, 'more line')}: --verbose"]
        return "\n".join([self._headline(), *lines, *(f"note: {note}" for note in self.notes)])

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
            time += f", and {quantity(self.unknown, 'stage')} that the store has no time for"
        return f"run {self.run}: {len(self.running)} of {len(self.stages)} stages would run, {time}{against}"


def _stage_lines(stages: Sequence[PlannedStage]) -> list[str]:
    width = max((len(stage.title) for stage in stages), default=0)
    lines = []
    for cached, group in groupby(stages, key=lambda stage: stage.cached):
        together = list(group)
        if cached and len(together) > _LISTED:
            span = f"{together[0].title} .. {together[-1].title}"
            lines.append(f"  {span}: {quantity(len(together), 'stage')} cached")
        else:
            for stage in together:
                time = "        ?" if stage.seconds is None else f"{stage.seconds:8.1f}s"
                state = "cached" if cached else f"would run {time}  {'; '.join(_reason_texts(stage.reasons))}"
                lines.append(f"  {stage.title:{width}}  {state}")
    return lines


def _reason_texts(reasons: Sequence[RunReason]) -> list[str]:
    """Texts of the first reasons; dependencies on stages that would run share one text."""
    texts = [reason.text for reason in reasons if reason.kind != "depends"]
    dependencies = list(dict.fromkeys(str(reason.new) for reason in reasons if reason.kind == "depends"))
    if dependencies:
        more = ", ..." if len(dependencies) > _MAX_REASONS else ""
        texts.append(f"depends on {', '.join(dependencies[:_MAX_REASONS])}{more}")
    if len(texts) > _MAX_REASONS:
        return [*texts[:_MAX_REASONS], f"{len(texts) - _MAX_REASONS} more reasons"]
    return texts


def make_plan(
    run: str,
    steps: Sequence[SurveyedStage],
    *,
    before: FormerRun,
    salts: Salts,
    missing: Mapping[str, Recipe],
    stored: Sequence[Record],
    compared_with: str,
    places: RunPlaces,
    notes: Sequence[str] = (),
) -> RunPlan:
    """Make the plan from the surveyed stages; `stored` are all artifacts of the store, for the estimates."""
    usual = usual_seconds(stored) | usual_seconds(before.records)
    stages = []
    for step, label in zip(steps, stage_labels(steps), strict=True):
        if places.only is not None and not places.only.holds(step.recipe):
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
    """Labels that distinguish stages of one phase and iteration: the recipe's, else that of its input `responses`."""
    label_of: dict[str, str] = {}
    labels = []
    for step in steps:
        inherited = label_of.get(step.recipe.inputs.get("responses", ""), "")
        label = str(step.recipe.config.get("label") or inherited)
        label_of[step.ref.id] = label
        labels.append("" if step.recipe.phase == Phase.VALIDATE else label)
    return labels


def usual_seconds(records: Sequence[Record]) -> dict[str, float]:
    """Median seconds of each phase over stored artifacts."""
    seconds_of: dict[str, list[float]] = {}
    for record in records:
        seconds_of.setdefault(record.phase, []).append(record.seconds)
    return {phase: median(seconds) for phase, seconds in seconds_of.items()}
