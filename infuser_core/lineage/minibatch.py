"""Which optimizer step a group of rollouts entered: the order of the update phases, followed from their inputs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.algorithm.advantage import advantages, is_flat
from infuser_core.algorithm.selection import stratified_order
from infuser_core.algorithm.shaping import mid_eos_shaped
from infuser_core.lineage.index import Record
from infuser_core.lineage.sight import Sight

UPDATE = (
    "role", "step", "num_groups", "num_tokens", "loss", "gradient_norm", "learning_rate", "clip_fraction",
    "mean_ratio", "mean_tis", "skipped",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """Where a group went in an update."""

    update: Record
    """Artifact of the update."""
    row: Mapping[str, Any] | None
    """The optimizer step it entered; None where it entered none."""
    place: int
    """Position of the minibatch in the update, from 1; 0 where it entered none."""
    of: int
    """Optimizer steps of the update."""
    advantages: Sequence[float]
    """Advantage of every row of the group."""
    reason: str
    """Why it entered no step; empty otherwise."""


def solver_step(sight: Sight, update: Record, group_id: str) -> Entered:
    """The step of the solver's update that a question's answers entered."""
    inputs = sight.graph.inputs(update.key)
    records = sight.graph.catalogue.records
    columns = ("group_id", "reward", "verdict", "finish_reason")
    rollouts = sight.rows([records[inputs["rollouts"]]], "rollouts", columns)
    outside = _outside(sight, update)
    written = [records[inputs["questions"]]]
    table = "questions" if "questions" in written[0].rows else "reference_questions"
    questions = sight.rows(written, table, ("question_id", "document_id"))
    documents = {row["question_id"]: row["document_id"] for row in questions}
    config = json.loads(update.config)
    left_out = set(config.get("left_out", ()))
    rewards = _grouped((row["group_id"], _shaped(row, config)) for row in rollouts if row["group_id"] not in left_out)
    varied = [name for name, values in rewards.items() if not is_flat(values) and name not in outside]
    order = [varied[place] for place in stratified_order([documents[name] for name in varied])]
    reason = "its accuracy lies outside the band" if group_id in outside else "all answers had the same reward"
    reason = "the configuration leaves it out" if group_id in left_out else reason
    return _entered(sight, update, config, rewards, order, group_id, reason)


def generator_step(sight: Sight, update: Record, document_id: str) -> Entered:
    """The step of the generator's update that a document's texts entered."""
    columns = ("document_id", "reward", "trained", "advantage")
    rows = sight.rows([update], "generator_scores", columns)
    rewards = _grouped((row["document_id"], row["reward"]) for row in rows)
    trained = {row["document_id"] for row in rows if row["trained"]}
    order = [name for name in rewards if name in trained]
    config = json.loads(update.config)["step"]
    reason = "all texts of the document had the same reward, or there was no dev signal"
    return _entered(sight, update, config, rewards, order, document_id, reason)


def _outside(sight: Sight, update: Record) -> set[str]:
    """Questions that the band of accuracies leaves out; none where the update has no band."""
    if "difficulties" not in update.rows:
        return set()
    rows = sight.rows([update], "difficulties", ("question_id", "inside"))
    return {row["question_id"] for row in rows if not row["inside"]}


def _shaped(row: Mapping[str, Any], config: Mapping[str, Any]) -> float:
    penalty = config.get("mid_eos_penalty", 0.0)
    verdicts = config["options"]["mid_eos_verdicts"] if penalty else ()
    return mid_eos_shaped(row["reward"], row["verdict"], row["finish_reason"], penalty=penalty, verdicts=verdicts)


def _grouped(pairs: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _entered(
    sight: Sight,
    update: Record,
    config: Mapping[str, Any],
    rewards: Mapping[str, list[float]],
    order: Sequence[str],
    group: str,
    reason: str,
) -> Entered:
    steps = sight.rows([update], "updates", UPDATE)
    credit: Sequence[float] = ()
    if group in rewards:
        options, name = config["options"], config["advantage"]
        values = advantages(
            list(rewards.values()),
            # What the preset resolves the name to; the recipe has the preset's options written out.
            normaliser=options["batch_std"] if name == "batch_std" else name,
            sigma_b=options["sigma_b"],
            single_row=options["single_row"],
        )
        credit = dict(zip(rewards, values, strict=True))[group]
    place = order.index(group) // config["minibatch"] + 1 if group in order else 0
    row = steps[place - 1] if 0 < place <= len(steps) else None
    return Entered(
        update=update,
        row=row,
        place=place if row else 0,
        of=len(steps),
        advantages=credit,
        reason="" if row else reason,
    )
