"""A model of random weights in the configured shape, and the longest batch of rollouts that a run could meet."""

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
"""Seed of weights and prompts: two rehearsals are alike."""


def random_anchor(config: RunConfig, folder: Path) -> tuple[Checkpoint, str, int]:
    """A first checkpoint with the anchor's shape and tokenizer; the name of its architecture, and its vocabulary."""
    plain = folder / "random"
    name, vocabulary = hub.random_model(anchor_folder(config.anchor), plain, seed=SEED)
    optimizer, adapter = config.cotrain.optimizer.options(), config.cotrain.adapter
    first = folder / "anchor"
    if adapter is None:
        hub.prepare_anchor(plain, first, optimizer=optimizer)
    else:
        first.mkdir()
        hub.prepare_adapter(plain, first, adapter=adapter, seed=SEED, optimizer=optimizer)
    return checkpoint_at(first, step=0), name, vocabulary


def checkpoint_at(folder: Path, *, step: int) -> Checkpoint:
    """The solver's checkpoint in a folder."""
    return Checkpoint(checkpoint_id=f"rehearsal-{folder.name}", role=Role.SOLVER, path=str(folder), step=step)


def prompts(config: RunConfig, vocabulary: int, *, groups: int) -> list[PromptGroup]:
    """Prompts of random tokens, each as long as the configuration lets a prompt be."""
    draw, rows = random.Random(SEED), config.cotrain.group_size
    return [
        PromptGroup(
            group_id=f"rehearsal/{place}",
            token_ids=[draw.randrange(vocabulary) for _ in range(config.cotrain.prompt_tokens)],
            seeds=[place * rows + row for row in range(rows)],
        )
        for place in range(groups)
    ]


def longest_rollouts(
    groups: Sequence[PromptGroup], drawn: Sequence[Sequence[Completion]], *, tokens: int
) -> list[Rollout]:
    """The completions as solver rollouts whose rewards differ; what ended early goes on with its own tokens.

    Random weights end a response at any place, and the longest batch is the one that may not fit.
    """
    return [
        Rollout(
            rollout_id=f"{group.group_id}/{place}",
            group_id=group.group_id,
            sample_index=place,
            role=Role.SOLVER,
            checkpoint_id="rehearsal",
            prompt_token_ids=group.token_ids,
            token_ids=repeated(completion.token_ids, tokens),
            sampler_logprobs=repeated(completion.logprobs, tokens),
            text="",
            finish_reason="stop",
            verdict="correct" if place % 2 else "wrong",
            reward=float(place % 2),
            malformed_reason="",
        )
        for group, completions in zip(groups, drawn, strict=True)
        for place, completion in enumerate(completions)
    ]


def repeated(values: Sequence[Value], length: int) -> list[Value]:
    """The values again and again, up to a length."""
    return [values[place % len(values)] for place in range(length)]


def question_of(name: str) -> Question:
    """A question that a rollout may name."""
    return Question(question_id=name, text="", choices=[], answer="", verifier="", document_id=name, rollout_id=name)
