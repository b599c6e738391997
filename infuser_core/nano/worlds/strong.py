"""Micro-world `strong`: the basic one with a better-trained anchor, for a strong generator or a strong solver."""

from infuser_core.nano.world import Schedule, WorldConfig

WORLD = WorldConfig(key_soundness=0.97, solver_soundness=0.97)
SCHEDULE = Schedule(steps=500, drill_until=0.02, mixed_until=0.1, drill_share=0.2, learning_rate=2e-3)
