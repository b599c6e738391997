"""Work that is done again although the store has it: which places of a run, and the salt that their recipes carry.

Nothing is deleted. From the named place on, recipes hold `attempt`, a number that no other run of the store has used:
what is computed under it has keys of its own, also after a resume, and the former artifacts stay what they are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from infuser_core.errors import StoreError
from infuser_core.planning.files import write_json
from infuser_core.planning.place import Place
from infuser_core.runs import runs_folder

FILE = "again.json"
SALT = "attempt"
"""Name of the salt among a recipe's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One place from which work was asked for again."""

    phase: str
    """Phase name."""
    iteration: int
    """Co-training iteration, or -1 outside the loop."""
    attempt: int
    """The salt: larger than any other in the store when it was asked for."""
    asked_by: str = ""
    """The flow run that asked; asking twice by the same one is asking once."""


class Salts:
    """The salts of one run: of the places that were asked for, and of whatever is made from their artifacts."""

    def __init__(self, repeats: Sequence[Repeat] = ()) -> None:
        self._places = {(repeat.phase, repeat.iteration): repeat.attempt for repeat in repeats}
        self._made: dict[str, int] = {}

    def of(self, phase: str, iteration: int, inputs: Mapping[str, str]) -> int:
        """Salt of a stage; 0 for none. The highest of its place's and its inputs'."""
        inherited = (self._made.get(identity, 0) for identity in inputs.values())
        return max(self._places.get((phase, iteration), 0), *inherited, 0)

    def forced(self, phase: str, iteration: int) -> bool:
        """Whether this very place was asked for."""
        return (phase, iteration) in self._places

    def carry(self, artifact_id: str, salt: int) -> None:
        """An artifact was made, or found, under a salt."""
        if salt:
            self._made[artifact_id] = salt


def repeats_of(root: Path, name: str) -> list[Repeat]:
    """What was asked for again in a run. Raises StoreError when the record is damaged."""
    path = runs_folder(root) / name / FILE
    try:
        return [Repeat(**row) for row in json.loads(path.read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        hint = "delete it: the run's former artifacts are used again"
        raise StoreError(f"the record {path} is damaged: {error}", hint=hint) from error


def with_repeat(root: Path, name: str, place: Place, *, asked_by: str = "") -> list[Repeat]:
    """The run's repeats with one more, under a salt of its own."""
    known = repeats_of(root, name)
    if asked_by and any(repeat.asked_by == asked_by for repeat in known):
        return known
    assert place.iteration is not None, "settled() names the iteration"
    others = (folder.parent.name for folder in runs_folder(root).glob(f"*/{FILE}"))
    used = max((repeat.attempt for other in others for repeat in repeats_of(root, other)), default=0)
    new = Repeat(phase=place.phase, iteration=place.iteration, attempt=used + 1, asked_by=asked_by)
    kept = [repeat for repeat in known if (repeat.phase, repeat.iteration) != (new.phase, new.iteration)]
    return [*kept, new]


def record(root: Path, name: str, repeats: Sequence[Repeat]) -> None:
    """Remember the run's repeats, in one atomic step."""
    write_json(runs_folder(root) / name / FILE, [asdict(repeat) for repeat in repeats])
