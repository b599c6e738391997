"""Look up rewards of the generator, the plug-ins of `rewards/`, by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infuser_core.config.run import CotrainSettings
from infuser_core.errors import ConfigError, quantity
from infuser_core.plugins import REWARDS
from infuser_core.schemas import InfluenceScore, Question

BATCH = "rewards"
"""Name of a plug-in's function that takes all questions at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A generator reward, ready to call."""

    name: str
    """As written in the configuration."""
    needs_influence: bool
    """Whether questions must be probed against the dev gradient first."""
    needs_dev: bool
    """Whether its function takes the dev questions as a third argument."""
    function: Callable[..., Sequence[float]]
    """The plug-in's function of all questions of an iteration."""

    def of(
        self, scores: Sequence[InfluenceScore], questions: Sequence[Question], dev: Sequence[Question] = ()
    ) -> Sequence[float]:
        """Compute the rewards of an iteration's questions, in order, from their scores, the questions and the dev set.

        Raises ConfigError if the function does not return one reward per question.
        """
        rewards = self.function(scores, questions, dev) if self.needs_dev else self.function(scores, questions)
        if len(rewards) != len(questions):
            counts = f"{quantity(len(rewards), 'number')} for {quantity(len(questions), 'question')}"
            hint = "it must return one number per question, in their order"
            raise ConfigError(f"reward {self.name} returned {counts}", hint=hint)
        return rewards


def find_reward(name: str) -> Reward:
    """Find the reward called `name`.

    It needs influence scores unless its module sets `NEEDS_INFLUENCE = False`, and takes the dev questions if it sets
    `NEEDS_DEV = True`.

    Raises ConfigError, with a list of the known rewards, if there is none.
    """
    module, function = REWARDS.find(name, BATCH, "reward")
    if not callable(function):
        raise ConfigError(f"reward {name!r} is not a function", hint="see infuser_core/cotrain/rewards/variance.py")
    takes_all = function is getattr(module, BATCH, None)
    return Reward(
        name=name,
        needs_influence=bool(getattr(module, "NEEDS_INFLUENCE", True)),
        needs_dev=takes_all and bool(getattr(module, "NEEDS_DEV", False)),
        function=function if takes_all else lambda scores, questions: [function(score) for score in scores],
    )


def needs_influence(settings: CotrainSettings) -> bool:
    """Whether an iteration that updates the generator scores its questions against the dev gradient."""
    return settings.generator.update and not settings.dev_only and find_reward(settings.reward.name).needs_influence
