"""The row that says how an iteration's documents were shared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One arm of an adaptive budget in one iteration."""

    arm: str
    """Value of the field that the budget goes by."""
    share: float
    """Share of the batch, 0 to 1."""
    count: int
    """Documents of the batch: the share, rounded up or down."""
    drawn: int
    """Documents drawn from the arm in earlier iterations."""
    documents: int
    """Documents that the pool has of it."""
    pulls: int
    """Documents drawn from it in the window whose questions have a measured influence."""
    mean: float | None
    """Mean influence of these documents; None where there are none."""
    bound: float | None
    """Upper confidence bound of the mean; None where there are none."""
