"""The composed world: the hard one with two topics whose method takes two steps, each the method of another topic.

A solver gets few of them right before it knows the steps.
"""

from dataclasses import replace

from infuser_core.nano.topics import COMPOSED
from infuser_core.nano.world import Schedule
from infuser_core.nano.worlds import hard

WORLD = replace(hard.WORLD, solver_soundness=0.30, num_composed=len(COMPOSED))
SCHEDULE = Schedule(steps=1500, drill_until=0.04, mixed_until=0.2, drill_share=0.4, learning_rate=2e-3)
