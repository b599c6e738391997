"""The broad world: the hard one with two topics of many operand pairs, hundreds of them in its target test."""

from dataclasses import replace

from infuser_core.nano.topics import BROAD
from infuser_core.nano.world import Schedule
from infuser_core.nano.worlds import hard

WORLD = replace(hard.WORLD, num_broad=len(BROAD))
SCHEDULE = Schedule(
    steps=2500, drill_until=0.06, mixed_until=0.5, drill_share=0.5, late_drill_share=0.25, learning_rate=2e-3
)
