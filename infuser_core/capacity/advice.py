"""Advice on settings that make a run fit: single ones first, then the cheapest ones together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.forecast import held
from infuser_core.capacity.hardware import of_size
from infuser_core.capacity.memory import Held, Layout

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of GPUs that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """Settings, and what they do to a role's memory."""

    settings: tuple[str, ...]
    """`key=value` of the configuration, or `--gpus`."""
    role: str
    """Whose memory."""
    bytes: float
    """The role's need with them, on one GPU."""
    fits: bool
    """Whether that is enough."""
    layout: Layout
    """The layout with them."""


_Turned = tuple[tuple[str, ...], Layout]
"""Settings, and the layout that comes of them."""
_Turns = Callable[[Asked, Layout], Iterator[_Turned]]
"""All that a knob can be turned to."""


def advice(asked: Asked) -> list[Knob]:
    """Knobs for every role that does not fit, the best first; none where all fit."""
    found: list[Knob] = []
    for place, one in enumerate(held(asked)):
        if not one.fits:
            found += _for_role(asked, place, one)
    return found


def _for_role(asked: Asked, place: int, need: Held) -> list[Knob]:
    """Every knob alone; where none is enough, the cheapest ones together; and a larger cluster."""
    turns = _ORDER if need.role == "trainer" else (_tensor_parallel,)
    alone = [_best(asked, asked.layout, place, turn) for turn in turns]
    helpful = [knob for knob in alone if knob is not None and knob.bytes < need.total]
    found = [knob for knob in helpful if knob.fits]
    if not found:
        found = [*sorted(helpful, key=lambda knob: knob.bytes), *_together(asked, place, need, turns)]
    return [*found, *_larger(asked, place)]


def _best(asked: Asked, layout: Layout, place: int, turn: _Turns) -> Knob | None:
    """The first setting of a knob that fits, else the one that needs least; None where there is nothing to turn."""
    best: Knob | None = None
    for settings, changed in turn(asked, layout):
        knob = _knob(settings, replace(asked, layout=changed), place)
        if knob.fits:
            return knob
        if best is None or knob.bytes < best.bytes:
            best = knob
    return best


def _knob(settings: tuple[str, ...], asked: Asked, place: int) -> Knob:
    after = held(asked)[place]
    return Knob(settings=settings, role=after.role, bytes=after.total, fits=after.fits, layout=asked.layout)


def _together(asked: Asked, place: int, need: Held, turns: Sequence[_Turns]) -> list[Knob]:
    """One knob after another until they fit; all that helped where they never do."""
    found: list[Knob] = []
    for turn in turns:
        layout, least = (found[0].layout, found[0].bytes) if found else (asked.layout, need.total)
        knob = _best(asked, layout, place, turn)
        if knob is None or knob.bytes >= least:
            continue
        found = [replace(knob, settings=_joined(found[0].settings if found else (), knob.settings))]
        if knob.fits:
            break
    return found


def _joined(settings: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """The later value of a key replaces the earlier one."""
    keys = {text.partition("=")[0] for text in more}
    return (*(text for text in settings if text.partition("=")[0] not in keys), *more)


def _larger(asked: Asked, place: int) -> list[Knob]:
    """The smallest number of GPUs that the same settings fit on."""
    for ranks in SIZES:
        if ranks <= asked.cluster.ranks:
            continue
        more = asked.on(of_size(asked.cluster.gpu, ranks))
        knob = _knob((f"--gpus {more.cluster.label}",), more, place)
        if knob.fits:
            return [knob]
    return []


def _checkpointing(asked: Asked, layout: Layout) -> Iterator[_Turned]:
    if not layout.gradient_checkpointing:
        yield _change(layout, gradient_checkpointing=True)


def _budget(asked: Asked, layout: Layout) -> Iterator[_Turned]:
    budget = layout.token_budget
    while budget > asked.sequence:
        budget = max(asked.sequence, budget // 2)
        yield _change(layout, token_budget=budget)


def _stages(asked: Asked, layout: Layout) -> Iterator[_Turned]:
    """A sharded trainer on all GPUs, in turns with the sampler."""
    for stage in (2, 3):
        if stage > layout.zero_stage or layout.trainer_ranks < asked.cluster.ranks:
            yield _sharded(asked, layout, zero_stage=stage)


def _offload(asked: Asked, layout: Layout) -> Iterator[_Turned]:
    stage = max(2, layout.zero_stage)
    if not layout.offload_optimizer:
        yield _sharded(asked, layout, zero_stage=stage, offload_optimizer=True)
    if not layout.offload_weights:
        yield _sharded(asked, layout, zero_stage=3, offload_optimizer=True, offload_weights=True)


def _sharded(asked: Asked, layout: Layout, **values: Any) -> _Turned:
    ranks = asked.cluster.ranks
    after = replace(layout, trainer_ranks=ranks, turns=True, shared=False, warm_trainers=1, **values)
    texts = [
        "engine.trainer=deepspeed" if not layout.zero_stage else "",
        f"engine.ranks={ranks}" if ranks != layout.trainer_ranks else "",
        "engine.placement=colocated" if not layout.turns else "",
        f"engine.zero_stage={after.zero_stage}" if after.zero_stage != layout.zero_stage else "",
        f"engine.offload={_offloaded(after)}" if _offloaded(after) != _offloaded(layout) else "",
    ]
    return tuple(text for text in texts if text), after


def _offloaded(layout: Layout) -> str:
    return "all" if layout.offload_weights else "optimizer" if layout.offload_optimizer else "none"


def _tensor_parallel(asked: Asked, layout: Layout) -> Iterator[_Turned]:
    parallel = layout.tensor_parallel * 2
    while parallel <= min(asked.cluster.per_node, asked.shape.kv_heads):
        yield _change(layout, tensor_parallel=parallel)
        parallel *= 2


def _change(layout: Layout, **values: Any) -> _Turned:
    texts = tuple(f"engine.{key}={str(value).lower()}" for key, value in values.items())
    return texts, replace(layout, **values)


_ORDER = (_checkpointing, _budget, _stages, _offload)
"""Cheapest first: recomputation costs a third, smaller micro-batches little, stages traffic, the host's memory most."""
