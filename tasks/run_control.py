"""Run control: decides for each stage whether it is reused, computed, looked up or planned, and ends a run early."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from infuser_core.errors import MissingArtifactError
from infuser_core.planning.place import Place, Salts
from infuser_core.planning.plan import UNKNOWN, SurveyedStage
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Store


class Stop(Exception):
    """Raised when the run has reached the last requested stage."""


class Halted(Exception):
    """Raised in a branch to end it because another one failed or the run was stopped."""


class NotStored(Exception):
    """Raised in a look-up at a stage whose artifact is not stored."""


class Halt:
    """Flag that ends all parallel branches of an attempt at their next safe points."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason = ""

    def call(self, reason: str) -> None:
        """Ask every branch to end. Only the first reason is recorded."""
        with self._lock:
            self._reason = self._reason or reason

    def check(self) -> None:
        """Raise Halted at a safe point if the branches were asked to end."""
        if self._reason:
            raise Halted(self._reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCall:
    """A call of a stage, before the control decides whether the stage runs."""

    recipe: Callable[[], Recipe]
    """Builds the stage's recipe. Raises MissingArtifactError if that needs the content of a missing artifact."""
    sketch: Callable[[], Recipe]
    """Builds a partial recipe of phase, iteration and inputs."""


class RunControl:
    """Control of a normal run: reuses or computes every stage, up to the `last` one."""

    executes = True
    """Whether stages run, as Prefect tasks in Prefect flows."""
    walks = False
    """Whether the pipeline continues past stages that do not run."""

    def __init__(self, *, last: Place | None = None, salts: Salts | None = None, halt: Halt | None = None) -> None:
        self.salts = salts or Salts()
        """Salts of stages that are recomputed although the store has them."""
        self.halt = halt or Halt()
        self._last = last
        self.reached: Place | None = None
        """The stage to stop after, once the run has reached it."""

    @property
    def is_open(self) -> bool:
        """Whether the run executes every stage up to the end of the pipeline."""
        return self._last is None and self.executes and not self.walks

    def take(self, call: StageCall) -> ArtifactRef | None:
        """Artifact of the stage, or None if the stage has to run. Raises Stop after the last requested stage."""
        if self._last is not None:
            self.enter(call.recipe())
        return None

    def enter(self, recipe: Recipe) -> None:
        """Record that a stage begins. Raises Stop if the last requested stage is done."""
        if self.reached is not None and not self.reached.holds(recipe):
            raise Stop(str(self.reached))
        if self._last is not None and self._last.holds(recipe):
            # A place without an iteration means its first one.
            self.reached = Place(phase=recipe.phase, iteration=recipe.iteration)

    def end(self) -> None:
        """Record the end of the pipeline. Raises Stop if the run is not complete."""

    def note(self, text: str) -> None:
        """Add a remark to the plan, if this is one."""


class LookUp(RunControl):
    """Control of a look-up: succeeds only if the store has every artifact of a part of the pipeline."""

    executes = False

    def __init__(self, outer: RunControl, store: Store) -> None:
        super().__init__(last=outer._last, salts=outer.salts, halt=outer.halt)
        self.reached = outer.reached
        self._store = store
        self.matches: list[tuple[Recipe, ArtifactRef]] = []
        """Recipes with their stored artifacts."""

    def take(self, call: StageCall) -> ArtifactRef:
        """The stage's stored artifact. Raises NotStored."""
        recipe = call.recipe()
        self.enter(recipe)
        ref = self._store.find(recipe)
        if ref is None:
            raise NotStored(recipe.key)
        self.matches.append((recipe, ref))
        self.salts.carry(ref, recipe)
        return ref


class Planning(RunControl):
    """Control of a plan: walks the pipeline without running anything and lists the stages, stored or not.

    If a missing artifact's key is in `digests` (key to digest, from a journal), the artifact is expected to get that
    digest again, so that artifacts made from it are found. Otherwise its id is unknown, and they are not found.
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
        """Recipes of missing artifacts by their expected id."""
        self.notes: list[str] = []
        """Remarks on facts that the plan cannot know."""

    def take(self, call: StageCall) -> ArtifactRef | None:
        """The stage's artifact: the stored one, or a reference to the expected one."""
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
        """Make the reference that a missing artifact will probably have."""
        ref = ArtifactRef(kind=recipe.phase, key=recipe.key, digest=self._digests.get(recipe.key, UNKNOWN))
        self.absent[ref.id] = recipe
        return ref

    def note(self, text: str) -> None:
        self.notes.append(text)


class Only(Planning):
    """Control of `--only`: runs one stage and walks the pipeline up to it; its inputs are known to be stored."""

    executes = True

    def take(self, call: StageCall) -> ArtifactRef | None:
        """The stage's artifact, or None for the requested stage, which runs."""
        recipe, _ = self._recipe(call)
        if self._last is None or not self._last.holds(recipe):
            return super().take(call)
        self.enter(recipe)
        return None

    def end(self) -> None:
        raise Stop(str(self.reached))
