"""`infuser why --graph`: the artifact graph as text, JSON and HTML; and the HTML page of an explanation."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from infuser_core.config.phase_table import CHECKPOINTS, LOOP, Phase
from infuser_core.prompts.templates import LETTERS
from infuser_core.results.lineage import numbers
from infuser_core.results.lineage.graph import Graph
from infuser_core.results.lineage.story import Story, format_value, printable, table_lines
from infuser_core.schemas import MEANINGS, heading
from infuser_core.store.recipe import Record
from infuser_core.store.runs import describe_origin
from infuser_core.terminal import to_json

BOX = (172, 38)
"""Width and height of a box, px."""
_ACROSS, _DOWN, _EDGE = 216, 52, 10
_MANY = 400
"""Most rows of a table on the page; JSON has all."""


def links(graph: Graph) -> list[dict[str, str]]:
    """Edges of a run's artifact graph: source, target and name of the input."""
    return [
        {"source": source, "target": key, "input": name}
        for key in graph.records
        for name, source in graph.inputs(key).items()
        if source in graph.records
    ]


def headline(graph: Graph) -> str:
    """Summarize a run in one sentence: artifacts, links, seconds, megabytes."""
    records, origin = graph.records.values(), describe_origin(graph.catalogue.root, graph.run)
    seconds = sum(record.seconds for record in records)
    megabytes = sum(record.num_bytes for record in records) / 1e6
    return (
        f"run {graph.run}{f' ({origin})' if origin else ''}: {len(records)} artifacts, {len(links(graph))} links, "
        f"{seconds:.1f} s, {megabytes:.1f} MB"
    )


def graph_text(graph: Graph) -> str:
    """The graph as text: one line per artifact, in the order of the pipeline."""
    return "\n".join([headline(graph), *table_lines([_line(graph, record) for record in graph.records.values()])])


def graph_json(graph: Graph) -> dict[str, Any]:
    """The graph as JSON: nodes and links."""
    names = ("key", "id", "phase", "iteration", "rows", "seconds")
    nodes = [
        {**{name: getattr(record, name) for name in names}, "bytes": record.num_bytes}
        for record in graph.records.values()
    ]
    return {"run": graph.run, "nodes": nodes, "links": links(graph)}


def graph_html(graph: Graph) -> str:
    """The graph as one self-contained HTML page: a drawing in foldable parts, without scripts."""
    title = f"Lineage of {graph.run}"
    return _render("graph.html", title=title, headline=headline(graph), folds=folds(graph))


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


def to_html(story: Story) -> str:
    """An explanation of `infuser why` as one self-contained HTML page, without scripts, in light and dark."""
    return _render("story.html", title=f"{story.kind} {story.id} (run {story.run})", story=story, many=_MANY)


def _render(template: str, **values: object) -> str:
    style = resources.files("infuser_core.results.view").joinpath("static", "page.css").read_text(encoding="utf-8")
    # The style sheet is the only text that is not escaped.
    return _templates().get_template(template).render(style=Markup(style), **values)


def environment(*packages: str) -> Environment:
    """Jinja environment with the templates of these packages; data is escaped."""
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {"heading": heading, "shown": format_value, "printable": printable, "json": to_json}
    formats = (numbers.number, numbers.percent, numbers.signed, numbers.cell, numbers.age, numbers.points)
    templates.filters |= {each.__name__: each for each in formats} | {"when": numbers.local_time}
    templates.filters["groups"] = _groups
    templates.globals |= {"address": lambda *_: "", "box": BOX, "checkpoints": CHECKPOINTS}
    templates.globals |= {"meanings": MEANINGS, "letters": LETTERS}
    return templates


def _groups(parts: "Sequence[Fold]", size: int) -> "list[list[Fold]]":
    """Split the parts of a graph into groups: those before and after the iterations alone, iterations by number."""
    groups: dict[Any, list[Fold]] = {}
    for part in parts:
        groups.setdefault(part.iteration // size if part.iteration is not None else part.title, []).append(part)
    return list(groups.values())


@cache
def _templates() -> Environment:
    return environment("infuser_core.results.lineage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """An artifact in the drawing of a graph."""

    record: Record
    corner: tuple[int, int]
    """Left and top, px."""
    own: bool
    """False for an input that belongs to another part of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A foldable part of a run's graph, such as an iteration, with its drawing."""

    title: str
    iteration: int | None
    """Iteration; None before and after the iterations."""
    records: tuple[Record, ...]
    boxes: tuple[Box, ...]
    """The artifacts and, on the left, their inputs from other parts."""
    curves: tuple[tuple[str, str, str], ...]
    """Links: name of the input, key of the source, SVG path."""
    size: tuple[int, int]
    """Width and height, px."""

    @property
    def seconds(self) -> float:
        """Seconds that its stages took in sum."""
        return sum(record.seconds for record in self.records)


def folds(graph: Graph) -> list[Fold]:
    """Split a run's graph into parts: before, during (one per iteration) and after the iterations."""
    trained = {record.key for record in graph.below(record.key for record in graph.of(*CHECKPOINTS))}
    iterations = {record.iteration for record in graph.of(*LOOP)}
    parts: dict[float, list[Record]] = {}
    for record in graph.records.values():
        parts.setdefault(_part(graph, record, trained, iterations), []).append(record)
    names = {float("-inf"): "before the iterations", float("inf"): "after the iterations"}
    return [
        _fold(graph, names.get(part, f"iteration {part:.0f}"), None if part in names else int(part), parts[part])
        for part in sorted(parts)
    ]


def _part(graph: Graph, record: Record, trained: Container[str], iterations: Container[int]) -> float:
    """Iteration in which an artifact is drawn; minus or plus infinity for before and after the iterations."""
    if record.phase in LOOP:
        return record.iteration
    if record.key not in trained or record.phase == Phase.ANCHOR:
        return float("-inf")
    # As in `infuser status`: a validation belongs to the iteration that begins with its checkpoint.
    is_validation = record.phase in (Phase.RESPOND, Phase.VALIDATE) and not graph.users(record.key, Phase.EVALUATE)
    return record.iteration if is_validation and record.iteration in iterations else float("inf")


def _fold(graph: Graph, title: str, iteration: int | None, records: Iterable[Record]) -> Fold:
    own = {record.key: record for record in records}
    edges = [
        (name, source, key) for key in own for name, source in graph.inputs(key).items() if source in graph.records
    ]
    foreign = {source: graph.records[source] for _, source, _ in edges if source not in own}
    layers = dict.fromkeys(foreign, 0)
    for key in own:
        # Artifacts come in the order of the pipeline, inputs first.
        inputs = [layers.get(source, 0) for _, source, user in edges if user == key]
        layers[key] = max(inputs) + 1 if inputs else 0
    used: dict[int, int] = {}
    boxes = []
    for key, record in {**foreign, **own}.items():
        row = used.setdefault(layers[key], 0)
        used[layers[key]] += 1
        corner = (_EDGE + _ACROSS * layers[key], _EDGE + _DOWN * row)
        boxes.append(Box(record=record, corner=corner, own=key in own))
    corners = {box.record.key: box.corner for box in boxes}
    return Fold(
        title=title,
        iteration=iteration,
        records=tuple(own.values()),
        boxes=tuple(boxes),
        curves=tuple((name, source, _curve(corners[source], corners[key])) for name, source, key in edges),
        size=(2 * _EDGE + _ACROSS * max(used) + BOX[0], 2 * _EDGE + _DOWN * max(used.values()) - 14),
    )


def _curve(source: tuple[int, int], target: tuple[int, int]) -> str:
    right, top, bottom = source[0] + BOX[0], source[1] + BOX[1] // 2, target[1] + BOX[1] // 2
    half = max(20, (target[0] - right) // 2)
    return f"M{right},{top} C{right + half},{top} {target[0] - half},{bottom} {target[0]},{bottom}"
