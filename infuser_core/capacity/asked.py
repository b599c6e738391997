"""The question to the planner: a run, a cluster, a model and its lengths, with everything looked up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infuser_core.capacity.volume import Lengths, Volume, assigned, lengths_of, volume_of, within
from infuser_core.config.overlays import changed
from infuser_core.config.run import RunConfig
from infuser_core.memory.hardware import Cluster, Efficiency, calibrated, cluster
from infuser_core.memory.parts import Layout, layout_of, on_more
from infuser_core.memory.shape import Shape, shape_of

DISK = 3.0
"""GB/s of the store's disk where none is given: one fast NVMe drive, or a modest shared file system."""


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
    disk: float
    """Bytes/s of the store."""
    efficiency: Efficiency
    """Constants: those of the published runs, or one's own (`infuser plan --calibrate`)."""
    batch: Volume | None = None
    """Work in the place of an iteration's: a rehearsal's."""

    @staticmethod
    def of(
        config: RunConfig,
        gpus: str | Cluster,
        *,
        shape: Shape | None = None,
        tokens: Sequence[str] = (),
        disk: float = DISK,
        efficiency: Efficiency | None = None,
    ) -> "Asked":
        """Look everything up for a run on `gpus`. Raises UsageError or ConfigError for what is not known.

        `shape` stands for the anchor, `tokens` are lengths as `quantity=value`, `disk` is in GB/s.
        """
        found = cluster(gpus) if isinstance(gpus, str) else gpus
        chosen = (shape or shape_of(config.anchor)).adapted(config.cotrain.adapter)
        return Asked(
            config=config,
            cluster=found,
            shape=chosen,
            lengths=within(assigned(lengths_of(chosen.name), tokens), config.cotrain),
            layout=layout_of(config, found),
            disk=disk * 1e9,
            efficiency=efficiency or calibrated(),
        )

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
        config = changed(self.config, settings)
        shape = self.shape.adapted(config.cotrain.adapter)
        return replace(self, config=config, shape=shape, layout=layout_of(config, self.cluster))

    def on(self, other: Cluster) -> "Asked":
        """The same run on other GPUs."""
        return replace(self, cluster=other, layout=on_more(self.layout, self.cluster, other))
