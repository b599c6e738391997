"""The micro-world's question sets by the names that configurations use."""

from infuser_core.errors import ConfigError
from infuser_core.nano import programs, world
from infuser_core.nano.world import Split, WorldName
from infuser_core.schemas import Question

_FREE_FORM = {"problems": world.problems, "programs": programs.questions}


def questions(topics: str, split: Split, size: int, seed: int, name: WorldName) -> list[Question]:
    """`size` questions on target or transfer topics, problems or programs.

    Raises ConfigError when the world's solver cannot answer without choices.
    """
    chosen = world.WORLDS[name]
    if topics in _FREE_FORM:
        if not chosen.families:
            raise ConfigError(f"nano questions: world {name!r} has no {topics}", hint="add `world: wide`")
        return _FREE_FORM[topics](split, size, seed)
    covered = world.TARGET if topics == "target" else chosen.transfer
    return world.questions(split, covered, size, seed, chosen)
