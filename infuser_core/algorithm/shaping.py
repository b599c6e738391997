"""Rewards as the paper shapes them: correctness for the solver, influence or the invalid penalty for the generator."""

from collections.abc import Collection

from infuser_core.schemas import Verdict

MID_EOS_VERDICTS = (Verdict.NO_ANSWER,)
"""A response that could not be verified did nothing wrong; the authors' code shapes it as well (see preset)."""


def mid_eos_shaped(
    reward: float,
    verdict: str,
    finish_reason: str,
    *,
    penalty: float,
    verdicts: Collection[str] = MID_EOS_VERDICTS,
) -> float:
    """The reward of a solver's response, with `penalty` added where it ended by itself without an answer.

    For the solver's update alone: dev gradient and influence take the reward as it is.
    """
    return reward + penalty if verdict in verdicts and finish_reason == "stop" else reward


def solver_reward(
    verdict: str,
    finish_reason: str,
    *,
    mid_eos_penalty: float = 0.0,
    mid_eos_verdicts: Collection[str] = MID_EOS_VERDICTS,
) -> float:
    """1 for a correct response, else 0; `mid_eos_penalty` (hybrid runs: -0.5) for one that stopped without an answer.

    `mid_eos_verdicts` are the verdicts that count as no answer.
    """
    correctness = 1.0 if verdict == Verdict.CORRECT else 0.0
    return mid_eos_shaped(correctness, verdict, finish_reason, penalty=mid_eos_penalty, verdicts=mid_eos_verdicts)


def generator_reward(score: float | None, *, invalid_penalty: float = 0.0) -> float:
    """The influence score of a valid question, or rho_inv where there is none (malformed generation)."""
    return invalid_penalty if score is None else score
