"""A run on given GPUs, prepared for the planner: settings, model shape, mean lengths, and use of the GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infuser_core.config.overlays import with_overrides
from infuser_core.config.run import RunConfig
from infuser_core.memory.hardware import Cluster, parse_cluster
from infuser_core.memory.parts import EngineLayout, RoleMemory, layout_of, memory_of_roles, on_more
from infuser_core.memory.shape import Shape, shape_of
from infuser_core.planning.hours import SAMPLING, Lengths, PhaseWork, parse_lengths, phase_work


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A run on given GPUs, with everything that the planner needs."""

    config: RunConfig
    """The run."""
    cluster: Cluster
    """Its accelerators."""
    shape: Shape
    """The model of both roles."""
    lengths: Lengths
    """Mean lengths and shares."""
    layout: EngineLayout
    """Division of the accelerators between trainer and sampler."""

    @staticmethod
    def of(
        config: RunConfig, gpus: str | Cluster, *, shape: Shape | None = None, tokens: Sequence[str] = ()
    ) -> "Setup":
        """Prepare a run on `gpus`. Raises UsageError or ConfigError for an unknown GPU, model or length.

        `shape` replaces the anchor's; `tokens` are lengths as `quantity=value`.
        """
        shape = (shape or shape_of(config.anchor)).adapted(config.cotrain.adapter)
        cluster = parse_cluster(gpus) if isinstance(gpus, str) else gpus
        lengths = parse_lengths(shape.name, config.cotrain, tokens)
        return Setup(config=config, cluster=cluster, shape=shape, lengths=lengths, layout=layout_of(config, cluster))

    @property
    def phases(self) -> list[PhaseWork]:
        """The phases of one iteration."""
        return phase_work(self.config, self.shape, self.lengths)

    @property
    def memory(self) -> list[RoleMemory]:
        """Memory of the trainer and of the sampler on one GPU."""
        return memory_of_roles(self.shape, self.cluster.gpu, self.layout, sequence=self.sequence)

    @property
    def sequence(self) -> int:
        """Tokens of the longest sequence."""
        return self.config.cotrain.prompt_tokens + max(
            self.config.cotrain.generator_tokens, self.config.cotrain.solver_tokens
        )

    def rate(self, kind: str) -> float:
        """Dense FLOP/s of all GPUs that do this kind of work."""
        ranks = self.layout.sampler_ranks if kind == SAMPLING else self.layout.trainer_ranks
        return ranks * self.cluster.gpu.flops

    def having(self, settings: Sequence[str]) -> "Setup":
        """The same run with changed `key=value` settings. Raises ConfigError for invalid ones."""
        config = with_overrides(self.config, settings)
        shape = self.shape.adapted(config.cotrain.adapter)
        return replace(self, config=config, shape=shape, layout=layout_of(config, self.cluster))

    def on(self, other: Cluster) -> "Setup":
        """The same run on other GPUs."""
        return replace(self, cluster=other, layout=on_more(self.layout, self.cluster, other))
