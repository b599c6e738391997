"""The question to the planner: a run, a cluster, a model and its lengths, with everything looked up."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from infuser_core.capacity.hardware import Cluster, Efficiency, calibrated, cluster, from_file
from infuser_core.capacity.memory import Layout, layout_of, on_more
from infuser_core.capacity.shape import Shape, named, shape_of
from infuser_core.capacity.volume import Lengths, Volume, changed, lengths_of, volume_of, within
from infuser_core.config.overlays import merge, parse_override, validate
from infuser_core.config.run import RunConfig

DISK = 3e9
"""Bytes/s of the store's disk where none is given: one fast NVMe drive, or a modest shared file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question to the planner, with everything looked up."""

    config: RunConfig
    """The run."""
    cluster: Cluster
    """On what."""
    shape: Shape
    """The model of both roles."""
    lengths: Lengths
    """Mean lengths and shares."""
    layout: Layout
    """Use of the GPUs."""
    disk: float = DISK
    """Bytes/s of the store."""
    efficiency: Efficiency = field(default_factory=calibrated)
    """Constants: those of the published runs, or one's own (`infuser plan --calibrate`)."""

    batch: Volume | None = None
    """Work in the place of an iteration's: a rehearsal's."""

    @staticmethod
    def of(config: RunConfig, gpus: str | Cluster, *, shape: Shape | None = None) -> "Asked":
        """Look everything up for a run on `gpus`. Raises UsageError or ConfigError for what is not known."""
        found = cluster(gpus) if isinstance(gpus, str) else gpus
        chosen = (shape or shape_of(config.anchor)).adapted(config.cotrain.adapter)
        lengths = within(lengths_of(chosen.name), config.cotrain)
        return Asked(config=config, cluster=found, shape=chosen, lengths=lengths, layout=layout_of(config, found))

    @property
    def volume(self) -> Volume:
        """Work of one iteration."""
        return self.batch or volume_of(self.config, self.lengths)

    @property
    def sequence(self) -> int:
        """Tokens of the longest sequence."""
        return self.config.cotrain.prompt_tokens + max(
            self.config.cotrain.generator_tokens, self.config.cotrain.solver_tokens
        )

    def having(self, settings: Sequence[str]) -> "Asked":
        """The same run with `key=value` settings. Raises ConfigError for what cannot be."""
        values = self.config.model_dump(mode="json")
        for setting in settings:
            values = merge(values, parse_override(setting))
        config = validate(values)
        shape = self.shape.adapted(config.cotrain.adapter)
        return replace(self, config=config, shape=shape, layout=layout_of(config, self.cluster))

    def on(self, other: Cluster) -> "Asked":
        """The same run on other GPUs."""
        return replace(self, cluster=other, layout=on_more(self.layout, self.cluster, other))


def ask(
    config: RunConfig,
    gpus: str,
    *,
    model: str | None,
    tokens: Sequence[str],
    disk: float,
    efficiency: Path | None = None,
) -> Asked:
    """The question as a command puts it: model, lengths, disk in GB/s, constants.

    Raises UsageError or ConfigError for what is not known.
    """
    asked = Asked.of(config, gpus, shape=named(model) if model else None)
    lengths = within(changed(asked.lengths, tokens), config.cotrain)
    constants = from_file(efficiency) if efficiency else asked.efficiency
    return replace(asked, lengths=lengths, disk=disk * 1e9, efficiency=constants)
