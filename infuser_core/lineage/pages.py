"""`infuser why --graph`: the artifact graph of a run as text, JSON and an HTML page; the page of an answer of `why`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from infuser_core.lineage.answer import Answer, printable, shown, table_lines
from infuser_core.lineage.graph import LOOP, OPTIONAL, Graph, graph_of
from infuser_core.planning.history import origin_of
from infuser_core.store.catalogue import CHECKPOINTS, Catalogue
from infuser_core.store.recipe import Record
from infuser_core.store.runs import find_run

TESTED = ("respond", "validate")
_ROW = {phase: row for row, phase in enumerate([*LOOP, *TESTED, *OPTIONAL])}
_BOX = (196, 40)
_ACROSS, _DOWN = 260, 62
_LEFT, _TOP = 16, 44
_MANY = 400
"""Rows of a table above which the page says how many are left out; JSON has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A box of the drawing."""

    record: Record
    """The artifact."""
    column: int
    """0 for what comes before the loop, t + 1 for iteration t, the last one for what comes after it."""
    row: int
    """Position in the column, from 0."""

    @property
    def x(self) -> int:
        """Left edge, pixels."""
        return _LEFT + _ACROSS * self.column

    @property
    def y(self) -> int:
        """Upper edge, pixels."""
        return _TOP + _DOWN * self.row

    @property
    def is_checkpoint(self) -> bool:
        """Whether the artifact is one."""
        return self.record.phase in CHECKPOINTS

    @property
    def title(self) -> str:
        """The artifact in a few words."""
        record = self.record
        at = f" @{record.iteration}" if record.phase in ("evaluate", "respond") and record.iteration >= 0 else ""
        return f"{record.phase} {record.label}".strip() + at

    @property
    def size(self) -> str:
        """Its rows and the time it took."""
        rows = f"{sum(self.record.rows.values()):,} rows, " if self.record.rows else ""
        return f"{rows}{self.record.seconds:.1f} s"


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
    """Where everything stands."""

    places: Mapping[str, Place]
    """Key to box."""
    edges: tuple[Edge, ...]
    """Inputs inside the run."""
    columns: tuple[str, ...]
    """Headings."""

    @property
    def headings(self) -> list[tuple[str, int]]:
        """The headings with their left edges, pixels."""
        return [(heading, _LEFT + _ACROSS * column) for column, heading in enumerate(self.columns)]

    @property
    def width(self) -> int:
        """Pixels."""
        return 2 * _LEFT + _ACROSS * (len(self.columns) - 1) + _BOX[0] + 40

    @property
    def height(self) -> int:
        """Pixels."""
        return _TOP + _DOWN * (max((place.row for place in self.places.values()), default=-1) + 1) + 8

    def curve(self, edge: Edge) -> str:
        """The line of an input as an SVG path."""
        source, target = self.places[edge.source], self.places[edge.target]
        right, top, bottom = source.x + _BOX[0], source.y + _BOX[1] // 2, target.y + _BOX[1] // 2
        if source.column != target.column:
            half = max(30, (target.x - right) // 2)
            return f"M{right},{top} C{right + half},{top} {target.x - half},{bottom} {target.x},{bottom}"
        if target.row == source.row + 1:
            return f"M{source.x + 24},{source.y + _BOX[1]} L{target.x + 24},{target.y}"
        # Around the boxes in between, the wider the longer the way.
        bulge = right + 14 + 6 * abs(target.row - source.row)
        return f"M{right},{top} C{bulge},{top} {bulge},{bottom} {right},{bottom}"


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
    columns = ("before", *(f"iteration {iteration}" for iteration in iterations), "after")
    return Layout(places=places, edges=edges, columns=columns)


def _column(graph: Graph, record: Record, column_of: Mapping[int, int], last: int, trained: Iterable[str]) -> int:
    if record.phase in (*LOOP, *OPTIONAL):
        return column_of[record.iteration]
    if record.key not in trained or record.phase == "anchor":
        return 0
    if record.phase in TESTED and not graph.users(record.key, "evaluate"):
        # A validation stands below the update whose checkpoint it tests.
        return column_of.get(record.iteration - 1, 0)
    return last


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The graph of one run with its layout."""

    graph: Graph
    """Graph of the artifacts."""
    layout: Layout
    """Where it stands."""
    origin: str = ""
    """Which run it was made from, in words; empty for none."""

    def text(self) -> str:
        """One line per artifact, in the order of the pipeline."""
        lines = table_lines([_line(self.graph, record) for record in self.graph.records.values()])
        return "\n".join([self.headline(), *lines])

    def headline(self) -> str:
        """The run in one sentence."""
        records = self.graph.records.values()
        seconds = sum(record.seconds for record in records)
        megabytes = sum(record.num_bytes for record in records) / 1e6
        origin = f" ({self.origin})" if self.origin else ""
        return (
            f"run {self.graph.run}{origin}: {len(records)} artifacts, {len(self.layout.edges)} links, "
            f"{seconds:.1f} s, {megabytes:.1f} MB"
        )

    def to_json(self) -> dict[str, Any]:
        """Nodes and links."""
        nodes = [
            {
                **{
                    name: getattr(place.record, name) for name in ("key", "id", "phase", "iteration", "rows", "seconds")
                },
                "bytes": place.record.num_bytes,
                "column": place.column,
                "row": place.row,
            }
            for place in self.layout.places.values()
        ]
        links = [{"source": edge.source, "target": edge.target, "input": edge.name} for edge in self.layout.edges]
        return {"run": self.graph.run, "columns": list(self.layout.columns), "nodes": nodes, "links": links}

    def html(self) -> str:
        """One self-contained page: the drawing, and below it every artifact with links to its inputs and users."""
        title = f"Lineage of {self.graph.run}"
        return _render(
            "graph.html", title=title, headline=self.headline(), graph=self.graph, layout=self.layout, box=_BOX
        )


def of_run(root: Path, run: str | None) -> Overview:
    """The named run's graph, or that of the latest run."""
    graph = graph_of(Catalogue(root), find_run(root, run))
    return Overview(graph=graph, layout=arrange(graph), origin=origin_of(root, graph.run))


def _line(graph: Graph, record: Record) -> dict[str, Any]:
    inputs = (key.rpartition("-") for key in graph.inputs(record.key).values())
    return {
        "phase": record.phase,
        "iteration": record.iteration if record.iteration >= 0 else None,
        "artifact": record.key,
        "rows": sum(record.rows.values()),
        "seconds": round(record.seconds, 2),
        "made from": [f"{phase}-{digits[:4]}" for phase, _, digits in inputs],
    }


def to_html(answer: Answer) -> str:
    """An answer as one page: no script, no external resource, dark and light."""
    return _render("answer.html", title=f"{answer.kind} {answer.id} (run {answer.run})", answer=answer, many=_MANY)


def _render(template: str, **values: object) -> str:
    style = resources.files("infuser_core.report").joinpath("page.css").read_text(encoding="utf-8")
    # The project's own style sheet is the only text that is not escaped.
    return _templates().get_template(template).render(style=Markup(style), **values)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("infuser_core.lineage"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    found.filters |= {"shown": shown, "printable": printable}
    return found
