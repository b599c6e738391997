"""Compact sequences of numbers, stored in an array instead of a Python object per number.

Used for the tokens and log-probabilities of responses. A series behaves like a list of numbers and converts to an array
without a copy. Numbers have 32 bits: enough for any vocabulary, and the precision of log-probabilities in samplers and
trainers.
"""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]
KINDS: dict[type, np.dtype[Any]] = {int: np.dtype(np.int32), float: np.dtype(np.float32)}
"""Array type of a series by the Python type of its numbers."""


class Series(Sequence[Any]):
    """An immutable sequence of numbers in a one-dimensional array; equal to a list or tuple of the same numbers."""

    __slots__ = ("_values",)

    def __init__(self, values: Numbers) -> None:
        self._values = values

    @classmethod
    def of(cls, values: Sequence[Any] | Numbers, kind: type) -> "Series":
        """Create a series from a copy of numbers or of an array; `kind` is int or float."""
        return cls(np.array(values, dtype=KINDS[kind]))

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> Any: ...

    @overload
    def __getitem__(self, place: slice) -> "Series": ...

    def __getitem__(self, place: int | slice) -> Any:
        values = self._values[place]
        return Series(values) if isinstance(place, slice) else values.item()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.tolist())

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: list[Any]) -> list[Any]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Series):
            return np.array_equal(self._values, other._values)
        # Other types decide by themselves whether they equal a series.
        return self._values.tolist() == list(other) if isinstance(other, list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._values.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Numbers:
        return self._values.astype(dtype or self._values.dtype, copy=bool(copy))
