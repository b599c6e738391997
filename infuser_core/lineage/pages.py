"""`infuser lineage`: the artifact graph of a run as text, JSON and an HTML page with a drawing."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from infuser_core.lineage.answer import Answer, Passage, shown, table_lines
from infuser_core.lineage.graph import CHECKPOINTS, LOOP, OPTIONAL, Graph, graph_of
from infuser_core.planning.history import origin_of
from infuser_core.report import page
from infuser_core.report.content import Report, Sample, Section, Table, printable
from infuser_core.store.catalogue import Catalogue, Record
from infuser_core.store.runs import find_run

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


_WIDE, _HIGH = 196, 40
_ACROSS, _DOWN = 260, 62
_LEFT, _TOP = 16, 44
_PHASES_OF_CHECKPOINTS = ("anchor", "update_solver", "update_generator")

STYLE = """
.canvas { overflow: auto; padding: 1rem 1.5rem; border-bottom: 1px solid var(--line); }
.canvas svg { display: block; margin: 0 auto; }
.canvas text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.canvas .small, .canvas .head { fill: var(--soft); font-size: 11px; }
.canvas rect { fill: var(--panel); stroke: var(--line); }
.canvas .checkpoint rect { stroke: var(--accent); stroke-width: 2; }
.canvas a:hover rect, .canvas a:focus rect { stroke: var(--accent); stroke-width: 2.5; }
.canvas path { fill: none; stroke: var(--soft); stroke-width: 1; opacity: .35; }
.canvas path.thick { stroke: var(--accent); stroke-width: 2; opacity: .7; }
.canvas path:hover { opacity: 1; stroke-width: 3; }
details:target { outline: 2px solid var(--accent); }
"""


def draw(layout: Layout) -> str:
    """The whole drawing; boxes link to the elements of the page whose id is the artifact's key."""
    width = 2 * _LEFT + _ACROSS * (len(layout.columns) - 1) + _WIDE + 40
    height = _TOP + _DOWN * layout.num_rows + 8
    heads = "".join(
        f'<text class="head" x="{_LEFT + _ACROSS * column}" y="24">{escape(heading)}</text>'
        for column, heading in enumerate(layout.columns)
    )
    edges = "".join(_edge(layout, edge) for edge in layout.edges)
    boxes = "".join(_box(place) for place in layout.places.values())
    return (
        f'<svg role="img" aria-label="artifact graph" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{heads}<g>{edges}</g><g>{boxes}</g></svg>'
    )


def _corner(place: Place) -> tuple[int, int]:
    return _LEFT + _ACROSS * place.column, _TOP + _DOWN * place.row


def _box(place: Place) -> str:
    x, y = _corner(place)
    record = place.record
    kind = "checkpoint" if record.phase in _PHASES_OF_CHECKPOINTS else "artifact"
    small = f"{sum(record.rows.values()):,} rows, {record.seconds:.1f} s" if record.rows else f"{record.seconds:.1f} s"
    name = str(record.summary.get("benchmark") or record.summary.get("label") or record.summary.get("part") or "")
    at = f" @{record.iteration}" if record.phase in ("evaluate", "respond") and record.iteration >= 0 else ""
    title = f"{record.phase} {name}".strip() + at
    return (
        f'<a class="{kind}" href="#{record.key}"><title>{record.key}</title>'
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="7"/>'
        f'<text x="{x + 10}" y="{y + 17}">{escape(title)}</text>'
        f'<text class="small" x="{x + 10}" y="{y + 32}">{escape(small)}</text></a>'
    )


def _edge(layout: Layout, edge: Edge) -> str:
    source, target = layout.places[edge.source], layout.places[edge.target]
    (x1, y1), (x2, y2) = _corner(source), _corner(target)
    middle1, middle2 = y1 + _HIGH // 2, y2 + _HIGH // 2
    if source.column == target.column and target.row == source.row + 1:
        curve = f"M{x1 + 24},{y1 + _HIGH} L{x2 + 24},{y2}"
    elif source.column == target.column:
        # Around the boxes in between, the wider the longer the way.
        bulge = 14 + 6 * abs(target.row - source.row)
        right = x1 + _WIDE
        curve = f"M{right},{middle1} C{right + bulge},{middle1} {right + bulge},{middle2} {right},{middle2}"
    else:
        right = x1 + _WIDE
        half = max(30, (x2 - right) // 2)
        curve = f"M{right},{middle1} C{right + half},{middle1} {x2 - half},{middle2} {x2},{middle2}"
    thick = ' class="thick"' if source.record.phase in _PHASES_OF_CHECKPOINTS else ""
    return f'<path{thick} d="{curve}"><title>{escape(edge.name)}</title></path>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The graph of one run with its layout."""

    graph: Graph
    """What was made from what."""
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
            f"run {self.graph.run}{origin}: {len(self.graph.records)} artifacts, {len(self.layout.edges)} links, "
            f"{seconds:.1f} s, {megabytes:.1f} MB"
        )

    def to_json(self) -> dict[str, Any]:
        """Nodes and links."""
        nodes = [
            {
                "key": place.record.key,
                "id": place.record.ref.id,
                "phase": place.record.phase,
                "iteration": place.record.iteration,
                "column": place.column,
                "row": place.row,
                "rows": dict(place.record.rows),
                "seconds": place.record.seconds,
                "bytes": place.record.num_bytes,
            }
            for place in self.layout.places.values()
        ]
        links = [{"source": edge.source, "target": edge.target, "input": edge.name} for edge in self.layout.edges]
        return {"run": self.graph.run, "columns": list(self.layout.columns), "nodes": nodes, "links": links}

    def html(self) -> str:
        """One self-contained page: the drawing, and below it every artifact with links to its inputs and users."""
        style = resources.files("infuser_core.report").joinpath("page.css").read_text(encoding="utf-8")
        title = escape(f"Lineage of {self.graph.run}")
        articles = "\n".join(_article(self.graph, record) for record in self.graph.records.values())
        return _PAGE.format(
            title=title, style=style + STYLE, headline=escape(self.headline()), drawing=draw(self.layout), body=articles
        )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{title}</h1><p>{headline}. A box is an artifact; click it for its recipe. Thick lines are checkpoints.</p>
</header>
<div class="canvas">{drawing}</div>
<main>
{body}
</main>
</body>
</html>
"""


def of_run(root: Path, run: str | None) -> Overview:
    """The named run's graph, or that of the latest run."""
    graph = graph_of(Catalogue(root), find_run(root, run))
    return Overview(graph=graph, layout=arrange(graph), origin=origin_of(root, graph.run))


def _line(graph: Graph, record: Record) -> dict[str, Any]:
    inputs = graph.inputs(record.key)
    return {
        "phase": record.phase,
        "iteration": record.iteration if record.iteration >= 0 else None,
        "artifact": record.key,
        "rows": sum(record.rows.values()),
        "seconds": round(record.seconds, 2),
        "made from": [key.rpartition("-")[0] + "-" + key.rpartition("-")[2][:4] for key in inputs.values()],
    }


def _article(graph: Graph, record: Record) -> str:
    """One artifact: facts, recipe, and links up and down."""
    where = f", iteration {record.iteration}" if record.iteration >= 0 else ""
    ups = [f"{escape(name)}: {_link(key)}" for name, key in graph.inputs(record.key).items()]
    downs = [_link(user.key) for user in graph.users(record.key)]
    facts = [
        f"rows: <b>{escape(shown(dict(record.rows)))}</b>",
        f"seconds: <b>{record.seconds:.2f}</b>",
        f"code version: <b>{record.version}</b>",
        *(f"{escape(name)}: <b>{escape(shown(value))}</b>" for name, value in record.summary.items()),
    ]
    return (
        f'<details open id="{record.key}"><summary>{escape(record.phase + where)} <code>{record.key}</code></summary>'
        f'<ul class="facts">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul>'
        f"<p>made from {', '.join(ups) or 'nothing but its configuration'}</p>"
        f"<p>used by {', '.join(downs) or 'nothing'}</p>"
        f"<pre>{escape(record.config)}</pre></details>"
    )


def _link(key: str) -> str:
    return f'<a href="#{key}">{key}</a>'


_MANY = 400
"""Rows of a table above which the page says how many are left out; JSON has all."""


def to_html(answer: Answer) -> str:
    """The whole page: no script, no external resource, dark and light."""
    head = Section(title="In short", lines=[answer.headline, *(f"also: {line}" for line in answer.also)])
    sections = [head, *(_section(passage) for passage in answer.passages)]
    return page.render(Report(title=f"{answer.kind} {answer.id} (run {answer.run})", sections=sections))


def _section(passage: Passage) -> Section:
    facts = [[label, shown(value)] for label, value in passage.facts.items()]
    tables = [Table(title="", columns=["", "value"], rows=facts, text_columns=2)] if facts else []
    if passage.rows:
        tables.append(_table(passage))
    texts = [(label, printable(body)) for label, body in passage.texts.items()]
    samples = [Sample(title=passage.title, facts=[], texts=texts)] if texts else []
    lines = [passage.note] if passage.note else []
    if passage.artifact:
        lines.append(f"read from artifact {passage.artifact}")
    return Section(title=passage.title, lines=lines, tables=tables, samples=samples)


def _table(passage: Passage) -> Table:
    columns = list(passage.rows[0])
    rows = [[shown(row[name]) for name in columns] for row in passage.rows[:_MANY]]
    left = len(passage.rows) - len(rows)
    return Table(
        title=f"{left} more rows are in the JSON" if left else "", columns=columns, rows=rows, text_columns=len(columns)
    )
