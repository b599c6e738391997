"""The wide world: the basic one with free-form problems, programs, and questions without a document or after examples.

Questions without a document may use the numbers of any split: no textbook restricts them to the train split.
"""

from infuser_core.nano.topics import FAMILIES
from infuser_core.nano.world import Schedule, WorldConfig

WORLD = WorldConfig(num_families=len(FAMILIES))
SCHEDULE = Schedule(steps=1900, drill_until=0.03, mixed_until=0.5, drill_share=0.4, long_rows=16, learning_rate=2e-3)
