"""CROPI's influence on old rollouts (arXiv 2510.26491): the gradient of answers that the anchor gave.

It is taken at the solver's weights with truncated importance weights, so that nothing has to be sampled again.
"""

from infuser_core.cotrain.studies.candidates import Candidate, cosine_of
from infuser_core.cotrain.studies.scores.cropi import project


def score(question: Candidate) -> float | None:
    """cos(P g_old, P g_dev); 0 if all old answers have one reward."""
    return (
        None if question.rival is None else cosine_of(project(question.rival.old_gradient_N), project(question.dev_N))
    )
