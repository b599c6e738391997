"""The order of work of the published runs, on whose wall-clock table the planner's constants were fitted.

Rows in fixed micro-batches, every response with its own copy of the prompt, all ranks in step, a question's responses
spread over the ranks when it is scored.
"""

import math
from dataclasses import replace

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.phases import Phase, _sampled, _steps, _trained, _trainers, _weights, _with_glue
from infuser_core.capacity.sampling import Spread
from infuser_core.capacity.training import Terms, Trainers, Work, added
from infuser_core.memory.parts import Layout, cache_tokens

PUBLISHED_SHARE = 0.6
"""Share of a GPU's memory that the published runs' sampler took."""
ENOUGH_TOKENS = 32_768
"""Tokens of cache below which nobody would run a sampler."""
MICRO_ROWS = {"qwen3-4b": 8}
"""Rows of a micro-batch: the authors' configuration; 4 elsewhere (paper)."""
WITHIN = 0.5
"""Assumed share of the variance of lengths that is between answers to one prompt."""


def published_phases(asked: Asked) -> list[Phase]:
    """The published runs' schedule, on which the constants were calibrated.

    Responses may use the room that the prompt leaves, and are cut to the limit afterwards; old log-probabilities take
    a pass of their own with two rows at a time; weights are saved every fifth iteration in bf16.
    """
    volume, prompt_limit = asked.volume, asked.config.cotrain.prompt_tokens
    micro_rows = MICRO_ROWS.get(asked.shape.name, 4)
    asked = replace(asked, layout=published_layout(asked))
    trainers, parameters = _trainers(asked), float(asked.shape.parameters)
    synced = trainers.gathers(1) + trainers.copied(_weights(asked))
    phases = [
        _sampled(asked, name, _with_room(work, prompt_limit), synced)
        for name, work in (
            ("rollout_dev", volume.dev),
            ("generate_questions", volume.written),
            ("rollout_questions", volume.answered),
        )
    ]
    # Moments live in the host's memory between phases.
    moved = {"sweeps": 2 * trainers.copied(8 * parameters / trainers.ranks)}
    if volume.dev_trained:
        done = rows_in_step(trainers, volume.dev_trained, micro_rows=micro_rows, passes=trainers.passes, beside=False)
        phases.append(_trained("dev_gradient", volume.dev_trained, done, 0.0))
    if volume.scored:
        done = added(question_by_question(trainers, volume.scored, micro_rows=micro_rows), moved)
        phases.append(_trained("score_influence", volume.scored, done, 0.0))
    for name, work in (("update_generator", volume.generator), ("update_solver", volume.solver)):
        if work:
            done = rows_in_step(trainers, work, micro_rows=micro_rows, passes=trainers.passes, beside=True)
            before = rows_in_step(trainers, replace(work, steps=1), micro_rows=2, passes=1, beside=True)
            phases.append(_trained(name, work, added(done, before, _steps(trainers, work), moved), 0.0))
    return _with_glue([phase for phase in phases if phase], asked, 2 * 2 * parameters / 5 / asked.disk)


def _with_room(work: Work | None, prompt_limit: int) -> Work | None:
    if work is None:
        return None
    limit = work.response.limit + max(0.0, prompt_limit - work.prompt)
    return replace(work, response=replace(work.response, limit=limit))


def published_layout(asked: Asked) -> Layout:
    """Layout of the published runs: everything divided over all GPUs, layers computed again, a small cache.

    Where weights leave no room in the published share of the memory, the sampler keeps the run's own.
    """
    cluster, layout = asked.cluster, asked.layout
    small = replace(layout, tensor_parallel=1, sampler_share=PUBLISHED_SHARE, bytes_per_weight=2)
    roomy = cache_tokens(asked.shape, cluster.gpu, small) > ENOUGH_TOKENS
    return replace(
        layout,
        trainer_ranks=cluster.ranks,
        sampler_ranks=cluster.ranks,
        turns=True,
        shared=False,
        zero_stage=3,
        offload_optimizer=False,
        offload_weights=False,
        gradient_checkpointing=True,
        tensor_parallel=1,
        sampler_share=PUBLISHED_SHARE if roomy else layout.sampler_share,
        bytes_per_weight=2,
        bytes_sent=2,
    )


def _within(spread: Spread) -> Spread:
    """Lengths of responses to the same prompts: only what differs within a prompt counts."""
    deviation = spread.deviation * math.sqrt(WITHIN)
    return Spread(mean=spread.mean_cut(), deviation=deviation, limit=spread.limit)


def rows_in_step(trainers: Trainers, work: Work, *, micro_rows: int, passes: int, beside: bool) -> Terms:
    """Every rank takes `micro_rows` rows at a time, and all wait for the longest.

    `beside` says that the ranks have responses to the same prompts.
    """
    each = work.groups * work.rows / work.steps
    busy = min(float(trainers.ranks), max(1.0, each))
    rows = min(micro_rows, max(1.0, each / busy))
    response = _within(work.response) if beside else work.response
    tokens = rows * work.prompt + response.longest(round(busy), rows=rows)
    fair = rows * (work.prompt + work.response.mean_cut())
    return trainers.micro_batches(
        tokens, fair, rows, passes=passes, count=work.steps * each / busy / rows, exchange=trainers.exchange(passes)
    )


def question_by_question(trainers: Trainers, work: Work, *, micro_rows: int) -> Terms:
    """Scoring: one question after another, its responses spread over the ranks."""
    busy = min(trainers.ranks, work.rows)
    each = work.rows / busy
    rows = min(micro_rows, each)
    tokens = rows * work.prompt + _within(work.response).longest(busy, rows=rows)
    fair = rows * (work.prompt + work.response.mean_cut())
    passes, exchange = trainers.passes, trainers.exchange(trainers.passes)
    done = trainers.micro_batches(tokens, fair, rows, passes=passes, count=work.groups * each / rows, exchange=exchange)
    # fp32 sweeps of an eager preconditioner over the rank's shard: about fifteen tensors read or written.
    sweeps = work.groups * trainers.sweep(15 * 4.0 * trainers.shape.parameters / trainers.ranks)
    return {**done, "sweeps": sweeps}
