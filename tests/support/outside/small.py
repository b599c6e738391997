"""A micro-world of five topics, which the basic anchor can speak of."""

from infuser_core.nano.world import Schedule, WorldConfig

WORLD = WorldConfig(num_topics=5, key_soundness=0.9)
SCHEDULE = Schedule(steps=2)
