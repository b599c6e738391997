"""The closed vocabularies of the nouns: what a verdict, a role or a score's status can be."""

from enum import StrEnum


class Verdict(StrEnum):
    """What a verifier can say of a response. "Could not verify" is never a wrong answer."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    UNVERIFIED = "unverified"


class Role(StrEnum):
    """Who produced a rollout or owns a checkpoint."""

    SOLVER = "solver"
    GENERATOR = "generator"
    JUDGE = "judge"


class ScoreStatus(StrEnum):
    """Why an influence score is what it is."""

    SCORED = "scored"
    ZERO_VARIANCE = "zero_variance"
    NO_DEV_SIGNAL = "no_dev_signal"
    NOT_PROBED = "not_probed"
