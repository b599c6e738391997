"""`infuser why --graph`: the artifact graph of a run as text, JSON and an HTML page; the page of an answer of `why`."""

from collections.abc import Container
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from infuser_core.lineage.answer import Answer, printable, shown, table_lines
from infuser_core.lineage.graph import LOOP, OPTIONAL, Graph, graph_of
from infuser_core.store.catalogue import CHECKPOINTS, Catalogue
from infuser_core.store.recipe import Record
from infuser_core.store.runs import find_run, origin_of

TESTED = ("respond", "validate")
_ROW = {phase: row for row, phase in enumerate([*LOOP, *TESTED, *OPTIONAL])}
_BOX = (196, 40)
_ACROSS, _DOWN = 260, 62
_LEFT, _TOP = 16, 44
_MANY = 400
"""Rows of a table above which the page says how many are left out; JSON has all."""


class Overview:
    """The graph of one run, and where its artifacts stand when it is drawn."""

    def __init__(self, graph: Graph, origin: str) -> None:
        self.graph = graph
        self._origin = origin

    @cached_property
    def iterations(self) -> list[int]:
        """Iterations of the run: the columns between what comes before and what comes after the loop."""
        return sorted({record.iteration for record in self.graph.of(*LOOP)})

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Key to column and row: phases of the loop stand in the same row in every iteration, others are stacked."""
        trained = {record.key for record in self.graph.below(r.key for r in self.graph.of(*CHECKPOINTS))}
        places: dict[str, tuple[int, int]] = {}
        for key, record in self.graph.records.items():
            column = self._column(record, trained)
            row = _ROW.get(record.phase, 0) if 0 < column <= len(self.iterations) else 0
            while (column, row) in places.values():
                row += 1
            places[key] = (column, row)
        return places

    def _column(self, record: Record, trained: Container[str]) -> int:
        column_of = {iteration: place for place, iteration in enumerate(self.iterations, start=1)}
        if record.phase in (*LOOP, *OPTIONAL):
            return column_of[record.iteration]
        if record.key not in trained or record.phase == "anchor":
            return 0
        if record.phase in TESTED and not self.graph.users(record.key, "evaluate"):
            # A validation stands below the update whose checkpoint it tests.
            return column_of.get(record.iteration - 1, 0)
        return len(self.iterations) + 1

    @cached_property
    def links(self) -> list[dict[str, str]]:
        """Inputs inside the run."""
        return [
            {"source": source, "target": key, "input": name}
            for key in self.graph.records
            for name, source in self.graph.inputs(key).items()
            if source in self.graph.records
        ]

    def text(self) -> str:
        """One line per artifact, in the order of the pipeline."""
        lines = table_lines([_line(self.graph, record) for record in self.graph.records.values()])
        return "\n".join([self.headline(), *lines])

    def headline(self) -> str:
        """The run in one sentence."""
        records = self.graph.records.values()
        seconds = sum(record.seconds for record in records)
        megabytes = sum(record.num_bytes for record in records) / 1e6
        origin = f" ({self._origin})" if self._origin else ""
        return (
            f"run {self.graph.run}{origin}: {len(records)} artifacts, {len(self.links)} links, "
            f"{seconds:.1f} s, {megabytes:.1f} MB"
        )

    def to_json(self) -> dict[str, Any]:
        """Nodes and links."""
        names = ("key", "id", "phase", "iteration", "rows", "seconds")
        nodes = [
            {**{name: getattr(record, name) for name in names}, "bytes": record.num_bytes}
            for record in self.graph.records.values()
        ]
        return {"run": self.graph.run, "nodes": nodes, "links": self.links}

    def html(self) -> str:
        """One self-contained page: the drawing, and below it every artifact with links to its inputs and users."""
        corners = {key: (_LEFT + _ACROSS * column, _TOP + _DOWN * row) for key, (column, row) in self.places.items()}
        curves = [(link, self._curve(corners[link["source"]], corners[link["target"]])) for link in self.links]
        headings = ["before", *(f"iteration {iteration}" for iteration in self.iterations), "after"]
        return _render(
            "graph.html",
            title=f"Lineage of {self.graph.run}",
            headline=self.headline(),
            graph=self.graph,
            corners=corners,
            curves=curves,
            headings=[(heading, _LEFT + _ACROSS * column) for column, heading in enumerate(headings)],
            width=2 * _LEFT + _ACROSS * (len(headings) - 1) + _BOX[0] + 40,
            height=_TOP + _DOWN * (max((row for _, row in self.places.values()), default=-1) + 1) + 8,
            box=_BOX,
            checkpoints=CHECKPOINTS,
        )

    def _curve(self, source: tuple[int, int], target: tuple[int, int]) -> str:
        """The line of an input as an SVG path, around the boxes in between where they stand in one column."""
        right, top, bottom = source[0] + _BOX[0], source[1] + _BOX[1] // 2, target[1] + _BOX[1] // 2
        if source[0] != target[0]:
            half = max(30, (target[0] - right) // 2)
            return f"M{right},{top} C{right + half},{top} {target[0] - half},{bottom} {target[0]},{bottom}"
        bulge = right + 14 + abs(target[1] - source[1]) // 10
        return f"M{right},{top} C{bulge},{top} {bulge},{bottom} {right},{bottom}"


def of_run(root: Path, run: str | None) -> Overview:
    """The named run's graph, or that of the latest run."""
    graph = graph_of(Catalogue(root), find_run(root, run))
    return Overview(graph, origin_of(root, graph.run))


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
