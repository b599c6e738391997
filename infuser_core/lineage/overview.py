"""`infuser lineage`: the artifact graph of a run as text, JSON, and a page with a drawing."""

from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from infuser_core.lineage.answer import shown, table_lines
from infuser_core.lineage.draw import STYLE, draw
from infuser_core.lineage.graph import Graph, graph_of
from infuser_core.lineage.index import Catalogue, Record
from infuser_core.lineage.layout import Layout, arrange
from infuser_core.planning.history import origin_of
from infuser_core.runs import find_run


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
