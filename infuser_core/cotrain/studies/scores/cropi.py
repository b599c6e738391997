"""CROPI's projected influence (arXiv 2510.26491): cosine of the gradients after a sparse random projection.

A random tenth of the coordinates is kept; each is added with a random sign to one of 4,096 sums.
"""

from functools import lru_cache

import numpy as np

from infuser_core.cotrain.studies.candidates import Candidate, cosine_of

SHARE = 0.1
"""Share of the coordinates that the projection sees."""
SUMS = 4096
"""Dimension after the projection."""


@lru_cache(maxsize=1)
def _projection(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates that are kept, and the sum and sign of each."""
    rng = np.random.default_rng(0)
    places = np.flatnonzero(rng.random(size) < SHARE)
    return places, rng.integers(SUMS, size=places.size), rng.choice([-1.0, 1.0], size=places.size)


def project(gradient_N: np.ndarray) -> np.ndarray:
    """Project a gradient [N] to [SUMS]; inner products are kept in expectation, times SHARE."""
    places, sums, signs = _projection(gradient_N.size)
    return np.bincount(sums, weights=gradient_N[places] * signs, minlength=SUMS)


def score(question: Candidate) -> float:
    """cos(P g, P g_dev)."""
    return cosine_of(project(question.gradient_N), project(question.dev_N))
