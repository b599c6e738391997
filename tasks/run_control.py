"""Run control: how far a run goes, what it computes again, and the end of all branches after a failure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from infuser_core.errors import MissingArtifactError
from infuser_core.planning.place import Place, Salts
from infuser_core.planning.plan import UNKNOWN, SurveyedStage
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Store


class Stop(Exception):
    """The run reached the stage at which it was to stop."""


class Halted(Exception):
    """This branch ended because another one failed or the run was stopped."""


class NotStored(Exception):
    """A look-up reached a stage whose artifact is not in the store."""


class Halt:
    """Flag that ends all branches of an attempt; they check it at their safe points."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason = ""

    def call(self, reason: str) -> None:
        """End every branch. The first reason is kept."""
        with self._lock:
            self._reason = self._reason or reason

    def check(self) -> None:
        """A safe point: raises Halted after a call."""
        if self._reason:
            raise Halted(self._reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCall:
    """A stage call, before the control decides whether the stage runs."""

    recipe: Callable[[], Recipe]
    """Builds its recipe. Raises MissingArtifactError if that needs the content of an artifact that is not stored."""
    sketch: Callable[[], Recipe]
    """Builds a recipe of phase, iteration and inputs alone."""


class RunControl:
    """Control of a normal run: every stage is reused or computed, up to the `last` one."""

    executes = True
    """Whether stages run, as Prefect tasks in Prefect flows."""
    walks = False
    """Whether the pipeline continues past stages that do not run."""

    def __init__(self, *, last: Place | None = None, salts: Salts | None = None, halt: Halt | None = None) -> None:
        self.salts = salts or Salts()
        """Marks of work that is repeated although the store has it."""
        self.halt = halt or Halt()
        self._last = last
        self.reached: Place | None = None
        """The stage to stop after, once the run has reached it."""

    @property
    def is_open(self) -> bool:
        """Whether every stage runs, to the pipeline's end."""
        return self._last is None and self.executes and not self.walks

    def take(self, call: StageCall) -> ArtifactRef | None:
        """The stage's artifact, or None if the stage has to run. Raises Stop after the last requested stage."""
        if self._last is not None:
            self.enter(call.recipe())
        return None

    def enter(self, recipe: Recipe) -> None:
        """Note that a stage is about to begin. Raises Stop if the last requested one is over."""
        if self.reached is not None and not self.reached.holds(recipe):
            raise Stop(str(self.reached))
        if self._last is not None and self._last.holds(recipe):
            # A place without an iteration means the first one.
            self.reached = Place(phase=recipe.phase, iteration=recipe.iteration)

    def end(self) -> None:
        """Note the end of the pipeline. Raises Stop if the run is not complete with it."""

    def note(self, text: str) -> None:
        """Add a remark to the plan, if this is one."""


class LookUp(RunControl):
    """Looks up a part of the pipeline; succeeds only if every artifact of it is stored."""

    executes = False

    def __init__(self, outer: RunControl, store: Store) -> None:
        super().__init__(last=outer._last, salts=outer.salts, halt=outer.halt)
        self.reached = outer.reached
        self._store = store
        self.matches: list[tuple[Recipe, ArtifactRef]] = []
        """Recipes with their stored artifacts."""

    def take(self, call: StageCall) -> ArtifactRef:
        """The stage's artifact. Raises NotStored."""
        recipe = call.recipe()
        self.enter(recipe)
        ref = self._store.find(recipe)
        if ref is None:
            raise NotStored(recipe.key)
        self.matches.append((recipe, ref))
        self.salts.carry(ref, recipe)
        return ref


class Planning(RunControl):
    """Walks the pipeline to its end without running anything and lists the stages, stored or not.

    If a journal has a missing artifact's key (`digests`: key to digest), the artifact is expected to get the same
    digest again, and artifacts made from it are found. Otherwise its id is unknown, and nothing made from it is found.
    """

    executes = False
    walks = True

    def __init__(
        self, store: Store, *, digests: Mapping[str, str], last: Place | None = None, salts: Salts | None = None
    ) -> None:
        super().__init__(last=last, salts=salts)
        self._store, self._digests = store, digests
        self.steps: list[SurveyedStage] = []
        """The stages in the order of the pipeline."""
        self.absent: dict[str, Recipe] = {}
        """Recipes of missing artifacts by the id that these would have."""
        self.notes: list[str] = []
        """Remarks on facts that the plan cannot know."""

    def take(self, call: StageCall) -> ArtifactRef | None:
        """The stage's artifact, stored or expected."""
        recipe, is_exact = self._recipe(call)
        self.enter(recipe)
        stored = self._store.find(recipe) if is_exact else None
        ref = stored or self.expect(recipe)
        self.steps.append(SurveyedStage(recipe=recipe, ref=ref, stored=stored is not None, is_known=is_exact))
        self.salts.carry(ref, recipe)
        return ref

    def _recipe(self, call: StageCall) -> tuple[Recipe, bool]:
        try:
            return call.recipe(), True
        except MissingArtifactError:
            return call.sketch(), False

    def expect(self, recipe: Recipe) -> ArtifactRef:
        """The reference that a missing artifact will probably have."""
        ref = ArtifactRef(kind=recipe.phase, key=recipe.key, digest=self._digests.get(recipe.key, UNKNOWN))
        self.absent[ref.id] = recipe
        return ref

    def note(self, text: str) -> None:
        self.notes.append(text)


class Only(Planning):
    """Runs the last stage alone and walks the pipeline up to it. A plan has checked that its inputs are stored."""

    executes = True

    def take(self, call: StageCall) -> ArtifactRef | None:
        """The stage's artifact, or None for the one that runs."""
        recipe, _ = self._recipe(call)
        if self._last is None or not self._last.holds(recipe):
            return super().take(call)
        self.enter(recipe)
        return None

    def end(self) -> None:
        raise Stop(str(self.reached))
