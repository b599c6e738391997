"""Where the artifacts of a run stand in a drawing: iterations as columns, phases as rows."""

from collections.abc import Mapping
from dataclasses import dataclass

from infuser_core.lineage.graph import CHECKPOINTS, LOOP, OPTIONAL, Graph
from infuser_core.lineage.index import Record

TESTED = ("respond", "validate")
_ROW = {phase: row for row, phase in enumerate([*LOOP, *TESTED, *OPTIONAL])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node of the drawing."""

    record: Record
    """The artifact."""
    column: int
    """0 for what comes before the loop, t + 1 for iteration t, the last one for what comes after it."""
    row: int
    """Position in the column, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One input."""

    source: str
    """Key of what was read."""
    target: str
    """Key of what was made from it."""
    name: str
    """Name of the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A drawing without its ink."""

    places: Mapping[str, Place]
    """Key to node."""
    edges: tuple[Edge, ...]
    """Inputs inside the run."""
    columns: tuple[str, ...]
    """Headings."""
    num_rows: int
    """Rows of the highest column."""


def arrange(graph: Graph) -> Layout:
    """Phases of the loop stand in the same row in every iteration; before and after it artifacts are stacked."""
    iterations = sorted({r.iteration for r in graph.records.values() if r.phase in LOOP})
    column_of = {iteration: place + 1 for place, iteration in enumerate(iterations)}
    last = len(iterations) + 1
    places: dict[str, Place] = {}
    taken: set[tuple[int, int]] = set()
    trained = {record.key for record in graph.below(r.key for r in graph.of(*CHECKPOINTS))}
    for record in graph.records.values():
        column = _column(graph, record, column_of, last, trained)
        row = _ROW.get(record.phase, 0) if 0 < column < last else 0
        while (column, row) in taken:
            row += 1
        taken.add((column, row))
        places[record.key] = Place(record=record, column=column, row=row)
    edges = tuple(
        Edge(source=source, target=key, name=name)
        for key in graph.records
        for name, source in graph.inputs(key).items()
        if source in places
    )
    headings = ("before", *(f"iteration {iteration}" for iteration in iterations), "after")
    return Layout(places=places, edges=edges, columns=headings, num_rows=max((row for _, row in taken), default=-1) + 1)


def _column(graph: Graph, record: Record, column_of: Mapping[int, int], last: int, trained: set[str]) -> int:
    if record.phase in (*LOOP, *OPTIONAL):
        return column_of[record.iteration]
    if record.key not in trained or record.phase == "anchor":
        return 0
    if record.phase in TESTED and not graph.users(record.key, "evaluate"):
        # A validation stands below the update whose checkpoint it tests.
        return column_of.get(record.iteration - 1, 0)
    return last
