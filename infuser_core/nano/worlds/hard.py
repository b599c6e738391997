"""The hard world: sixteen topics, the basic target, keys right half the time, coordinates of different scales."""

from infuser_core.nano.topics import ALL_TOPICS
from infuser_core.nano.world import Schedule, WorldConfig

WORLD = WorldConfig(num_topics=len(ALL_TOPICS), key_soundness=0.60, solver_soundness=0.42, coordinate_spread=2)
SCHEDULE = Schedule(steps=1500, drill_until=0.04, mixed_until=0.2, drill_share=0.4, learning_rate=2e-3)
