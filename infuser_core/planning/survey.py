"""The store as a plan sees it: what is missing is noted and assumed, so that the pipeline can be walked to its end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from infuser_core.schemas import Selection
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Manifest, Store

Row = TypeVar("Row")
_UNKNOWN = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A stage that the pipeline came by."""

    recipe: Recipe
    """What it would make."""
    ref: ArtifactRef
    """The artifact; an assumed one where it is not stored."""
    stored: bool
    """Whether the store has it."""
    assumes: Sequence[Recipe] = ()
    """Missing artifacts whose content enters the recipe: it holds if they come out like the last of their kind."""


class _Ones(dict[str, Any]):
    """Counts that nobody knows yet: one of each."""

    def __missing__(self, key: str) -> int:
        return 1


class Survey(Store):
    """A store that has an answer for everything, writes nothing, and remembers what it was asked for.

    A missing artifact is assumed to come out as it did before, where the store has seen its key (`digests`: key to
    digest): what was made from it is found again. Otherwise its id is unknown, and nothing made from it is found.
    """

    def __init__(self, root: Path, *, digests: Mapping[str, str], catalogue: Callable[[], Catalogue]) -> None:
        super().__init__(root)
        self.steps: list[Step] = []
        self.absent: dict[str, Recipe] = {}
        """Assumed artifacts by id."""
        self._read: dict[str, Recipe] = {}
        self._digests = digests
        self._catalogue = catalogue

    def find(self, recipe: Recipe) -> ArtifactRef:
        """The artifact, stored or assumed."""
        found = super().find(recipe)
        ref = found or self.assume(recipe)
        assumes = [source for identity, source in self._read.items() if identity not in recipe.inputs.values()]
        self._read.clear()
        self.steps.append(Step(recipe=recipe, ref=ref, stored=found is not None, assumes=assumes))
        return ref

    def assume(self, recipe: Recipe) -> ArtifactRef:
        """An artifact that is not there, as it will probably be."""
        digest = self._digests.get(recipe.key, _UNKNOWN)
        ref = ArtifactRef(kind=recipe.phase, key=recipe.key, digest=digest)
        self.absent[ref.id] = recipe
        return ref

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """The commit record; for an assumed artifact, the newest of its phase with as many rows."""
        recipe = self.absent.get(ref.id)
        if recipe is None:
            return super().manifest(ref)
        self._read[ref.id] = recipe
        like = self._like(ref)
        if like is not None:
            return super().manifest(like)
        counts = _Ones()
        return Manifest(
            ref=ref, recipe=recipe.to_json(), files={}, volatile=[], rows=counts, summary=counts, seconds=0.0
        )

    def rows(self, ref: ArtifactRef, table: str, row_type: type[Row]) -> list[Row]:
        """Rows of a table; those of the newest artifact of the phase for an assumed one, if there is any."""
        recipe = self.absent.get(ref.id)
        if recipe is None:
            return super().rows(ref, table, row_type)
        self._read[ref.id] = recipe
        if cast(type, row_type) is Selection:
            return [cast(Row, _last_candidate(recipe))]
        like = self._like(ref)
        return super().rows(like, table, row_type) if like is not None else []

    def _like(self, ref: ArtifactRef) -> ArtifactRef | None:
        same = [record for record in self._catalogue().records.values() if record.phase == ref.kind]
        return max(same, key=lambda record: record.created).ref if same else None


def _last_candidate(recipe: Recipe) -> Selection:
    """Nobody knows yet which checkpoint is chosen: the last one stands for it."""
    last = max(int(name.rpartition("-")[2]) for name in recipe.inputs)
    return Selection(selected_iteration=last, checkpoint_id="", accuracy=0.0)
