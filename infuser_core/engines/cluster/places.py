"""Accelerators that ranks ask Ray for: one of their own, or half of one shared with a rank of the other role.

Ray fills an accelerator before it takes the next, and two ranks of one group must not meet on one. Shared accelerators
are therefore bundles of one placement group, and rank i of every group goes to bundle i.
"""

from dataclasses import dataclass
from typing import Any

from infuser_core.errors import EngineError

SHARE = 0.5
"""A rank's part of an accelerator that two roles use in turn."""

_bundles: dict[int, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Resources of one rank."""

    gpus: float
    """Accelerators, by Ray's count; it reserves no memory."""
    bundle: int | None
    """Place in the shared placement group; None where Ray may choose."""


def requests(ranks: int, *, gpus: float, shared: bool) -> list[Request]:
    """One request per rank, of `gpus` accelerators each."""
    if not shared or not gpus:
        return [Request(gpus=gpus, bundle=None) for _ in range(ranks)]
    return [Request(gpus=gpus * SHARE, bundle=rank) for rank in range(ranks)]


def options(ray: Any, request: Request, *, ranks: int, seconds: float) -> dict[str, Any]:
    """A request in Ray's words. Raises EngineError where the shared accelerators are not there within some seconds."""
    found: dict[str, Any] = {"num_cpus": 0, "num_gpus": request.gpus}
    if request.bundle is not None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        found["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            placement_group=_shared(ray, ranks, seconds), placement_group_bundle_index=request.bundle
        )
    return found


def _shared(ray: Any, ranks: int, seconds: float) -> Any:
    """One accelerator per rank, kept until the process ends."""
    if ranks not in _bundles:
        group = ray.util.placement_group([{"GPU": 1}] * ranks, strategy="PACK")
        if not group.wait(timeout_seconds=seconds):
            ray.util.remove_placement_group(group)
            there = ray.cluster_resources().get("GPU", 0)
            raise EngineError(
                f"{ranks} ranks need {ranks} accelerators, and Ray has {there:g}", hint="set engine.ranks to fewer"
            )
        _bundles[ranks] = group
    return _bundles[ranks]
