"""Inputs of a rehearsal: a model with random weights in the configured shape, and the longest possible batch."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from infuser_core.config.run import RunConfig
from infuser_core.engines.local import hub
from infuser_core.evaluation.anchors import anchor_folder
from infuser_core.protocols import Completion, PromptGroup
from infuser_core.schemas import Checkpoint, Question, Role, Rollout

Value = TypeVar("Value")

SEED = 0
"""Seed of random weights and prompts."""


def random_anchor(config: RunConfig, folder: Path) -> tuple[Checkpoint, str, int]:
    """Make a random checkpoint in the anchor's shape; returns it, the architecture's name and the vocabulary's size."""
    model = folder / "random"
    name, vocabulary = hub.random_model(anchor_folder(config.anchor), model, seed=SEED)
    optimizer, adapter = config.cotrain.optimizer.options(), config.cotrain.adapter
    anchor = folder / "anchor"
    if adapter is None:
        hub.prepare_anchor(model, anchor, optimizer=optimizer)
    else:
        anchor.mkdir()
        hub.prepare_adapter(model, anchor, adapter=adapter, seed=SEED, optimizer=optimizer)
    return checkpoint_at(anchor, step=0), name, vocabulary


def checkpoint_at(folder: Path, *, step: int) -> Checkpoint:
    """Name the checkpoint in a folder as a solver's."""
    return Checkpoint(checkpoint_id=f"rehearsal-{folder.name}", role=Role.SOLVER, path=str(folder), step=step)


def prompts(config: RunConfig, vocabulary: int, *, groups: int) -> list[PromptGroup]:
    """Make prompts of random tokens with the maximum length that the configuration allows."""
    draw, rows = random.Random(SEED), config.cotrain.group_size
    return [
        PromptGroup(
            group_id=f"rehearsal/{index}",
            token_ids=[draw.randrange(vocabulary) for _ in range(config.cotrain.prompt_tokens)],
            seeds=[index * rows + row for row in range(rows)],
        )
        for index in range(groups)
    ]


def longest_rollouts(
    groups: Sequence[PromptGroup], samples: Sequence[Sequence[Completion]], *, tokens: int
) -> list[Rollout]:
    """Convert completions to solver rollouts with different rewards; short ones are padded by repeating their tokens.

    Random weights end responses at any length, but the longest batch is the one that may not fit.
    """
    return [
        Rollout(
            rollout_id=f"{group.group_id}/{index}",
            group_id=group.group_id,
            sample_index=index,
            role=Role.SOLVER,
            checkpoint_id="rehearsal",
            prompt_token_ids=group.token_ids,
            token_ids=repeated(completion.token_ids, tokens),
            sampler_logprobs=repeated(completion.logprobs, tokens),
            text="",
            finish_reason="stop",
            verdict="correct" if index % 2 else "wrong",
            reward=float(index % 2),
            malformed_reason="",
        )
        for group, completions in zip(groups, samples, strict=True)
        for index, completion in enumerate(completions)
    ]


def repeated(values: Sequence[Value], length: int) -> list[Value]:
    """Repeat the values up to a length."""
    return [values[index % len(values)] for index in range(length)]


def question_of(name: str) -> Question:
    """Make an empty question for a rollout."""
    return Question(question_id=name, text="", choices=[], answer="", verifier="", document_id=name, rollout_id=name)
