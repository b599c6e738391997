"""How far a run goes: to its end, until a stage, or one stage alone."""

from infuser_core.errors import UsageError
from infuser_core.planning.place import Asked, Place
from infuser_core.planning.reasons import title
from infuser_core.planning.survey import Survey
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import Store

_WHOLE = Asked()


class Stop(Exception):
    """The run went as far as it was asked to."""


class Course:
    """Told of every stage before it begins; ends the run by Stop when the wanted one is behind it."""

    def __init__(self, asked: Asked = _WHOLE, *, store: Store | None = None) -> None:
        self.only = asked.only
        self.store = store
        """Where the wanted stage alone is computed, while all others are looked up in a survey."""
        self._last = asked.only or asked.until
        self._at: Place | None = None

    @property
    def is_open(self) -> bool:
        """Whether the run goes to its end."""
        return self._last is None

    @property
    def reached(self) -> Place | None:
        """The stage to stop after, once the run stands there."""
        return self._at

    def enter(self, recipe: Recipe) -> None:
        """A stage is about to begin. Raises Stop when that is one too many."""
        if self._at is not None and not self._at.holds(recipe):
            raise Stop(str(self._at))
        if self._last is not None and self._last.holds(recipe):
            # Without an iteration the first one was meant.
            self._at = Place(phase=recipe.phase, iteration=recipe.iteration)

    def end(self) -> None:
        """The pipeline is at its end. Raises Stop where one stage alone was wanted: the run is not complete."""
        if self.only is not None:
            raise Stop(str(self._at))

    def go_back(self, reached: Place | None) -> None:
        """A piece that was only looked up is walked again."""
        self._at = reached

    def wants(self, recipe: Recipe) -> bool:
        """Whether the stage is to be computed where the store lacks it."""
        return self.only is None or self.only.holds(recipe)

    def check_inputs(self, recipe: Recipe, survey: Survey, run: str) -> None:
        """Raises UsageError when the one wanted stage lacks an input."""
        for name, identity in recipe.inputs.items():
            if identity in survey.absent:
                source = survey.absent[identity]
                raise UsageError(
                    f"--only {self.only}: its input {name} ({title(source)}) is not in the store",
                    hint=f"`infuser resume {run} --until {self.only}` computes what it needs, then it",
                )
