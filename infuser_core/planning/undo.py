"""`infuser run --without`: what depends on a textbook, chunk or question, and the plan of a run without it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import merge, validate
from infuser_core.config.phase_table import CHECKPOINTS, UPDATES, Phase
from infuser_core.config.run import RunConfig
from infuser_core.errors import NUMBER, UsageError
from infuser_core.results.lineage.graph import graph_of
from infuser_core.results.lineage.question_story import generated_texts
from infuser_core.results.lineage.run_view import RunView
from infuser_core.store.recipe import Record
from infuser_core.store.runs import find_run, read_config
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.system.sealed import digest_of
from infuser_core.terminal import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionPlan:
    """Plan of a run without a textbook, chunk or question."""

    run: str
    """The existing run."""
    fork: str
    """Name of the run without it."""
    without: str
    """Description of the excluded item."""
    config: Mapping[str, Any]
    """Resolved configuration of the fork."""
    exclude: Mapping[str, Any]
    """Exclusions that the fork adds to the run's configuration."""
    documents: Sequence[str]
    """Ids of excluded chunks."""
    questions: Sequence[str]
    """Ids of the generated questions that are excluded with the chunks."""
    affected: Sequence[Record]
    """Artifacts that depend on the item and are computed again, in the order of the pipeline."""
    reused: int
    """Artifacts of the run that the fork reuses."""
    steps: int
    """Optimizer steps among the affected updates."""

    @property
    def seconds(self) -> float:
        """Time that the affected artifacts took, seconds."""
        return sum(record.seconds for record in self.affected)

    def of(self, *phases: str) -> list[str]:
        """Keys of the affected artifacts of these phases."""
        return [record.key for record in self.affected if record.phase in phases]

    def change(self, config: RunConfig) -> RunConfig:
        """The run's configuration with the fork's exclusions."""
        return validate(_extend(config.model_dump(mode="json"), self.exclude))

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "run": self.run,
            "fork": self.fork,
            "without": self.without,
            "documents": list(self.documents),
            "questions": list(self.questions),
            "artifacts": [record.key for record in self.affected],
            "checkpoints": self.of(*CHECKPOINTS),
            "updates": len(self.of(*UPDATES)),
            "optimizer_steps": self.steps,
            "seconds": round(self.seconds, 3),
            "reused": self.reused,
            "exclude": self.config["corpus"]["exclude"],
            "exclude_questions": self.config["cotrain"]["exclude_questions"],
        }

    def text(self, *, applied: bool) -> str:
        """The plan as text for a terminal."""
        lines = [f"run {self.run} without {self.without}"]
        if not self.affected:
            lines.append(f"nothing of the run depends on it: all {self.reused} artifacts stay")
        else:
            lines += [
                f"goes: {len(self.documents)} documents, {len(self.questions)} questions written from them",
                f"computed again: {len(self.affected)} artifacts, among them {len(self.of(*UPDATES))} updates with "
                f"{self.steps} optimizer steps and {len(self.of(*CHECKPOINTS))} checkpoints",
                f"reused: {self.reused} artifacts",
                f"cost: about {format_duration(self.seconds)}, from the recorded times",
            ]
        lines.append(f"making run {self.fork}" if applied else f"without --dry-run it is made, as run {self.fork}")
        return "\n".join(lines)


def plan_exclusion(root: Path, run: str | None, name: str) -> ExclusionPlan:
    """Plan the run without the question, chunk or textbook of this name. Raises UsageError for an unknown one."""
    with closing(Lens(Store(root), runs=[])) as lens:
        view = RunView(lens=lens, graph=graph_of(lens.catalogue, find_run(root, run)))
        if re.match("[0-9]+/", name):
            return _plan_without_question(view, name)
        is_chunk = view.row("documents", "source_id", document_id=name)
        return _plan_without_material(view, "document" if is_chunk else "source", name)


def _plan_without_material(view: RunView, kind: str, name: str) -> ExclusionPlan:
    key: dict[str, Any] = {f"{kind}_id": name}
    rows = view.rows("documents", "document_id", "source_id", **key)
    if not rows:
        examples = view.rows("documents", "document_id", "source_id", of=view.graph.of("chunk", "pool"))[:1]
        hint = f'`infuser sql "select distinct {kind}_id from documents"` lists them'
        example = f", e.g. {examples[0][f'{kind}_id']}" if examples else ""
        raise UsageError(f"the pool of run {view.graph.run} has no {kind} {name}", hint=hint + example)
    documents = sorted({row["document_id"] for row in rows})
    texts = generated_texts(view, documents)
    direct_keys = {row["artifact_key"] for row in texts}
    exclude = {"corpus": {"exclude": {f"{kind}s": [name]}}}
    questions = sorted(row["question_id"] for row in texts if row["question_id"])
    return _build_plan(view, f"{kind} {name}", exclude, direct_keys, documents, questions)


def _plan_without_question(view: RunView, name: str) -> ExclusionPlan:
    iteration = name.partition("/")[0]
    number = int(iteration) if re.fullmatch(NUMBER, iteration) else -1
    records = view.graph.of(Phase.GENERATE_QUESTIONS, iteration=number)
    row = view.row("questions", "question_id", of=records, question_id=name)
    if row is None:
        raise UsageError(
            f"run {view.graph.run} has no generated question {name}",
            hint='`infuser sql "select question_id from questions"` lists them',
        )
    users = view.graph.users(row["artifact_key"])
    direct_keys = {user.key for user in users if user.phase in UPDATES}
    return _build_plan(view, f"question {name}", {"cotrain": {"exclude_questions": [name]}}, direct_keys, [], [name])


def _build_plan(
    view: RunView,
    without: str,
    exclude: Mapping[str, Any],
    direct_keys: set[str],
    documents: Sequence[str],
    questions: Sequence[str],
) -> ExclusionPlan:
    run = view.graph.run
    affected = view.graph.below(direct_keys)
    config = validate(read_config(view.lens.catalogue.root, run)).model_dump(mode="json")
    config_without = validate(_extend(config, exclude)).model_dump(mode="json")
    exclusions = [config_without["corpus"]["exclude"], config_without["cotrain"]["exclude_questions"]]
    steps = view.rows("updates", "skipped", of=[record for record in affected if record.phase in UPDATES])
    return ExclusionPlan(
        run=run,
        fork=f"{run}-without-{digest_of(exclusions)[:6]}",
        without=without,
        config=config_without,
        exclude=exclude,
        documents=documents,
        questions=questions,
        affected=affected,
        reused=len(view.graph.records) - len(affected),
        steps=sum(not row["skipped"] for row in steps),
    )


def _extend(config: Mapping[str, Any], exclude: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with exclusions added to those it has."""
    more: dict[str, Any] = {}
    for key, value in exclude.items():
        old = config[key]
        if isinstance(value, Mapping):
            more[key] = _extend(old, value)
        else:
            more[key] = sorted({*old, *value})
    return merge(config, more)
