"""Oracle score that knows only the question's topic and whether its key (reference answer) is right."""

from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float | None:
    """1 for a right key on a topic of the dev set, -1 for a wrong one, 0 elsewhere; None where labels are missing."""
    if question.on_target is None or question.right_key is None:
        return None
    return question.on_target * (1.0 if question.right_key else -1.0)
