"""Suggested settings for a run that exceeds GPU memory: single changes first, then the cheapest combination."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infuser_core.config.optimizers import DEFAULT
from infuser_core.errors import ConfigError
from infuser_core.memory.hardware import cluster_of_size
from infuser_core.memory.parts import RoleMemory
from infuser_core.memory.sizes import AUTOMATIC
from infuser_core.planning.setup import Setup

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Candidate numbers of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A suggested change of settings, with the GPU memory that a role needs after it."""

    settings: tuple[str, ...]
    """`key=value` of the configuration, or `--gpus`."""
    role: str
    bytes: float
    """GPU memory that the role needs with these settings, per GPU."""
    fits: bool


def advice(setup: Setup) -> list[Knob]:
    """Suggested changes for every role (trainer, sampler) that does not fit; empty if all fit.

    For each role single changes, the best first; if none suffices, a combination; then adapters and more GPUs.
    """
    advised: list[Knob] = []
    for place, need in enumerate(setup.memory):
        if need.fits:
            continue
        choices = _trainer_options(setup) if need.role == "trainer" else [_tensor_parallel_options(setup)]
        alone = [_best_knob(setup, place, (), options) for options in choices]
        helpful = [knob for knob in alone if knob is not None and knob.bytes < need.total]
        knobs = [knob for knob in helpful if knob.fits]
        if not knobs:
            knobs = [*sorted(helpful, key=lambda knob: knob.bytes), *_combine(setup, place, need, choices)]
        advised += [*knobs, *_other_training(setup, place, need), *_more_gpus(setup, place)]
    return advised


def _other_training(setup: Setup, place: int, need: RoleMemory) -> list[Knob]:
    """Suggest 8-bit moments, and adapters, on a plain or a 4-bit model, on one GPU: those that fit.

    They are never combined with other changes, because they change the algorithm.
    """
    if need.role != "trainer":
        return []
    cotrain, four_bit = setup.config.cotrain, "cotrain.adapter.base=nf4"
    local = [] if setup.config.engine.trainer == "local" else ["engine.trainer=local", "engine.ranks=1"]
    if cotrain.adapter is not None:
        choices = [[[four_bit]]]
    else:
        adapters = [*local, "cotrain.adapter.type=lora"]
        moments = [[*local, "cotrain.optimizer.name=adamw8bit"]] if cotrain.optimizer.name == DEFAULT else []
        choices = [moments, [adapters, [*adapters, four_bit]]]
    knobs = [_best_knob(setup, place, (), options) for options in choices]
    return [knob for knob in knobs if knob is not None and knob.fits]


def _best_knob(setup: Setup, place: int, before: Sequence[str], options: Iterable[Sequence[str]]) -> Knob | None:
    """Of alternative settings, the first that fits, else the one that needs least memory; None if all are invalid."""
    knobs: list[Knob] = []
    for settings in options:
        # A later value of a key replaces an earlier one.
        together = tuple({text.partition("=")[0]: text for text in (*before, *settings)}.values())
        try:
            knob = _knob(together, setup.having([*before, *settings]), place)
        except ConfigError:
            continue
        if knob.fits:
            return knob
        knobs.append(knob)
    return min(knobs, key=lambda knob: knob.bytes, default=None)


def _knob(settings: tuple[str, ...], setup: Setup, place: int) -> Knob:
    after = setup.memory[place]
    return Knob(settings=settings, role=after.role, bytes=after.total, fits=after.fits)


def _combine(setup: Setup, place: int, need: RoleMemory, choices: Sequence[Iterable[Sequence[str]]]) -> list[Knob]:
    """Combine changes one after another until the role fits; if it never does, combine all that save memory."""
    best: Knob | None = None
    for options in choices:
        before, least = (best.settings, best.bytes) if best else ((), need.total)
        knob = _best_knob(setup, place, before, options)
        if knob is not None and knob.bytes < least:
            best = knob
            if knob.fits:
                break
    return [best] if best else []


def _more_gpus(setup: Setup, place: int) -> list[Knob]:
    """Suggest the smallest larger cluster on which the role fits with unchanged settings."""
    for ranks in SIZES:
        if ranks > setup.cluster.ranks:
            more = setup.on(cluster_of_size(setup.cluster.gpu, ranks))
            knob = _knob((f"--gpus {more.cluster.label}",), more, place)
            if knob.fits:
                return [knob]
    return []


def _trainer_options(setup: Setup) -> list[list[list[str]]]:
    """Alternatives for the trainer, cheapest first.

    Recomputation costs a third more time, smaller micro-batches little, ZeRO stages traffic, host memory most.
    """
    engine, budget = setup.config.engine, setup.layout.token_budget
    budgets = []
    while budget > setup.sequence:
        budget = max(setup.sequence, budget // 2)
        budgets.append([f"engine.token_budget={budget}"])
    # Settings of a trainer that is sharded over all GPUs and takes turns with the sampler.
    sharded = [
        *(["engine.trainer=deepspeed"] if engine.trainer != "deepspeed" else []),
        *([f"engine.ranks={setup.cluster.ranks}"] if engine.ranks != setup.cluster.ranks else []),
        *(["engine.placement=colocated"] if engine.placement != "colocated" else []),
        *([f"engine.token_budget={AUTOMATIC}"] if engine.token_budget == "auto" else []),
        *(["engine.overlap=false"] if engine.overlap else []),
    ]
    return [
        [] if engine.gradient_checkpointing is True else [["engine.gradient_checkpointing=true"]],
        budgets,
        [[*sharded, f"engine.zero_stage={stage}"] for stage in (2, 3)],
        [
            [*sharded, "engine.offload=optimizer"],
            [*sharded, "engine.zero_stage=3", "engine.offload=all"],
        ],
    ]


def _tensor_parallel_options(setup: Setup) -> list[list[str]]:
    most = min(setup.cluster.per_node, setup.shape.kv_heads)
    sizes = [setup.layout.tensor_parallel * 2**step for step in range(1, 10)]
    return [[f"engine.tensor_parallel={size}"] for size in sizes if size <= most]
