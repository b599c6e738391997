"""The basic world: eight topics, two of them the target's."""

from infuser_core.nano.world import WORLD, Schedule

__all__ = ["SCHEDULE", "WORLD"]

SCHEDULE = Schedule()
