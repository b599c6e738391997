"""Run control: how far a run goes, what it computes again, and the end of all branches once one has failed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from infuser_core.errors import MissingArtifactError
from infuser_core.planning.place import Place, Salts
from infuser_core.planning.plan import UNKNOWN, SurveyedStage
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Store


class Stop(Exception):
    """The run went as far as it was asked to."""


class Halted(Exception):
    """This branch ended because of another one."""


class NotStored(Exception):
    """A look-up came to a stage whose artifact is not in the store."""


class Halt:
    """Called once for a run, by whoever knows a reason; branches ask at their safe points."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason = ""

    def call(self, reason: str) -> None:
        """Let every branch end. The first reason counts."""
        with self._lock:
            self._reason = self._reason or reason

    def check(self) -> None:
        """A safe point. Raises Halted once the run ends."""
        if self._reason:
            raise Halted(self._reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A stage that the pipeline comes by."""

    recipe: Callable[[], Recipe]
    """Makes its recipe. Raises MissingArtifactError where that needs the content of an artifact that is not there."""
    sketch: Callable[[], Recipe]
    """Phase, iteration and inputs alone."""


class Control:
    """Every stage is reused or computed, up to the last one that is wanted."""

    executes = True
    """Whether stages run, as Prefect tasks in Prefect flows."""
    walks = False
    """Whether the pipeline is walked past stages that do not run."""

    def __init__(self, *, last: Place | None = None, salts: Salts | None = None, halt: Halt | None = None) -> None:
        self.salts = salts or Salts()
        """Work that is computed again although the store has it."""
        self.halt = halt or Halt()
        """Ends all branches of this attempt once one has failed."""
        self._last = last
        self.reached: Place | None = None
        """The stage to stop after, once the run stands there."""

    @property
    def is_open(self) -> bool:
        """Whether every stage runs, to the pipeline's end."""
        return self._last is None and self.executes and not self.walks

    def take(self, call: Call) -> ArtifactRef | None:
        """The stage's artifact, or None where the stage has to run. Raises Stop behind the last wanted stage."""
        if self._last is not None:
            self.enter(call.recipe())
        return None

    def enter(self, recipe: Recipe) -> None:
        """A stage is about to begin. Raises Stop when that is one too many."""
        if self.reached is not None and not self.reached.holds(recipe):
            raise Stop(str(self.reached))
        if self._last is not None and self._last.holds(recipe):
            # Without an iteration the first one was meant.
            self.reached = Place(phase=recipe.phase, iteration=recipe.iteration)

    def end(self) -> None:
        """The pipeline is at its end. Raises Stop where the run is not complete by that."""

    def note(self, text: str) -> None:
        """Something that a person should know of a plan."""


class LookUp(Control):
    """A piece of the pipeline is found in the store as a whole, or not at all."""

    executes = False

    def __init__(self, outer: Control, store: Store) -> None:
        super().__init__(last=outer._last, salts=outer.salts, halt=outer.halt)
        self.reached = outer.reached
        self._store = store
        self.found: list[tuple[Recipe, ArtifactRef]] = []
        """Recipes with the artifacts that were found."""

    def take(self, call: Call) -> ArtifactRef:
        """The stage's artifact. Raises NotStored."""
        recipe = call.recipe()
        self.enter(recipe)
        ref = self._store.find(recipe)
        if ref is None:
            raise NotStored(recipe.key)
        self.found.append((recipe, ref))
        self.salts.carry(ref, recipe)
        return ref


class Planning(Control):
    """The pipeline is walked to its end and nothing runs: stages are noted, stored or not.

    A missing artifact is assumed to come out as it did before, where a journal knows its key (`digests`: key to
    digest): what was made from it is found again. Otherwise its id is unknown, and nothing made from it is found.
    """

    executes = False
    walks = True

    def __init__(
        self, store: Store, *, digests: Mapping[str, str], last: Place | None = None, salts: Salts | None = None
    ) -> None:
        super().__init__(last=last, salts=salts)
        self._store, self._digests = store, digests
        self.steps: list[SurveyedStage] = []
        """Stages that the pipeline came by."""
        self.absent: dict[str, Recipe] = {}
        """Missing artifacts by the id that they would have."""
        self.notes: list[str] = []
        """Facts that the plan cannot know."""

    def take(self, call: Call) -> ArtifactRef | None:
        """The stage's artifact, stored or assumed."""
        recipe, known = self._recipe(call)
        self.enter(recipe)
        found = self._store.find(recipe) if known else None
        ref = found or self.assumed(recipe)
        self.steps.append(SurveyedStage(recipe=recipe, ref=ref, stored=found is not None, known=known))
        self.salts.carry(ref, recipe)
        return ref

    def _recipe(self, call: Call) -> tuple[Recipe, bool]:
        try:
            return call.recipe(), True
        except MissingArtifactError:
            return call.sketch(), False

    def assumed(self, recipe: Recipe) -> ArtifactRef:
        """An artifact that is not there, as it will probably be."""
        ref = ArtifactRef(kind=recipe.phase, key=recipe.key, digest=self._digests.get(recipe.key, UNKNOWN))
        self.absent[ref.id] = recipe
        return ref

    def note(self, text: str) -> None:
        self.notes.append(text)


class Only(Planning):
    """The last stage runs alone; the pipeline is walked up to it. A plan has said before that its inputs are there."""

    executes = True

    def take(self, call: Call) -> ArtifactRef | None:
        """The stage's artifact, or None for the wanted one."""
        recipe, _ = self._recipe(call)
        if self._last is None or not self._last.holds(recipe):
            return super().take(call)
        self.enter(recipe)
        return None

    def end(self) -> None:
        raise Stop(str(self.reached))
