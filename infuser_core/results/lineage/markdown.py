"""Markdown pages about artifacts and runs, for Prefect's UI and for `infuser show`."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from infuser_core.config.phase_table import FACTS
from infuser_core.errors import quantity
from infuser_core.results.lineage.addresses import PAGES, VIEW
from infuser_core.results.lineage.graph import Graph
from infuser_core.results.lineage.story import format_value
from infuser_core.schemas import COLUMNS, Column
from infuser_core.store import tables
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import Record, stage_title
from infuser_core.store.store import Store

_PREVIEW, _FACTS, _LINE = 5, 3, 160
_WIDE = 6
"""Most columns of a preview: more would run off a page that has a side bar."""


def artifact_key(*parts: str) -> str:
    """Build a Prefect artifact key: lower case, digits, dashes."""
    return "-".join(parts).lower().replace("_", "-").replace(".", "-")


def heading(phase: str, iteration: int) -> str:
    """Title of a stage's page: its product and its iteration."""
    words = FACTS[phase].words if phase in FACTS else ""
    return stage_title((words or phase.replace("_", " ")).capitalize(), iteration)


def page_key(phase: str, iteration: int, key: str) -> str:
    """Prefect key of an artifact's page, shown by the UI as title: the heading and the key's last six digits."""
    return artifact_key(*heading(phase, iteration).replace(",", "").split(), key[-6:])


def described(record: Record, run: str) -> str:
    """Description of an artifact below its title in Prefect's lists, which cut it: its main number comes first."""
    curves = [curve.value for curve in FACTS[record.phase].curves] if record.phase in FACTS else []
    facts = sorted(
        ((name, value) for name, value in record.summary.items() if value != record.label),
        key=lambda fact: (fact[0] not in curves[:1], not isinstance(fact[1], int | float)),
    )
    first, *others = [f"{name} {format_value(value)}" for name, value in facts[:_FACTS]] or [""]
    place = f"iteration {record.iteration}" if record.iteration >= 0 else ""
    return ", ".join(filter(None, [first, record.label, place, *others]))[:_LINE] + f"; run {run}"


def artifact_page(store: Store, record: Record, *, users: Sequence[Record] = (), run: str = "") -> str:
    """Markdown page of an artifact with its `users`. With a `run`, it has links for Prefect's UI."""
    lines = [f"# {heading(record.phase, record.iteration)}", "", f"`{record.id}`, made in {record.seconds:.2f} s", ""]
    if run:
        story = f"{VIEW}/runs/{run}/why/{record.key}"
        lines += [f"[Its history in the viewer]({story}), with [what was made from it]({story}#used_by)", ""]
    facts = (*record.summary.items(), *record.machine.items())
    lines += [f"- **{name}**: {format_value(value)}" for name, value in facts]
    inputs = record.inputs.items()
    if run:
        sources = []
        for name, identity in inputs:
            key = identity.partition("@")[0]
            source = Catalogue(store.root).find(key)
            sources.append(f"- {name}: {link(source) if source else f'`{key}`, which is no longer in the store'}")
        lines += ["", "## Upstream pages", "", *(sources or ["nothing but its configuration"])]
    previews = {name: tables.first_rows(store.path(record.ref, f"{name}.parquet"), _PREVIEW) for name in record.rows}
    for name, rows in sorted(previews.items(), key=lambda preview: not _has_text(preview[1])):
        lines += ["", f"## {name} ({quantity(record.rows[name], 'row')})", "", *_preview(rows), ""]
        lines += [f"`infuser sql \"select * from {name} where artifact_key = '{record.key}'\"`"]
    lines += ["", "## Made from", ""]
    lines += [f"- {name}: `{identity}`" for name, identity in inputs] or ["- nothing but its configuration"]
    if users:
        lines += ["", "## Used by", "", *[f"- `{user.id}`" for user in users]]
    lines += ["", "## Recipe", "", "```json", json.dumps(record.recipe, indent=1, sort_keys=True), "```"]
    return "\n".join(lines)


def _has_text(rows: Sequence[dict[str, Any]]) -> bool:
    return any(COLUMNS.get(name, Column()).is_text for row in rows[:1] for name in row)


def _preview(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of a table with the columns that a person reads, texts first, and the names of the others."""
    if not rows:
        return ["no rows"]

    def place(name: str) -> int:
        """Texts come first, then values; identifiers, lists and empty columns come last."""
        column, values = COLUMNS.get(name, Column()), [row[name] for row in rows if row[name] not in (None, "", [])]
        if column.is_text and values:
            return 0
        if not values or isinstance(values[0], list | dict):
            return 3
        return 2 if column.refers_to or column.is_detail else 1

    names = sorted(rows[0], key=place)
    lines = [markdown_table([{name: row[name] for name in names[:_WIDE]} for row in rows])]
    if names[_WIDE:]:
        lines += ["", f"More columns: {', '.join(names[_WIDE:])}"]
    return lines


def markdown_table(rows: Sequence[dict[str, Any]], *, width: int = 60) -> str:
    """A Markdown table of rows; long values are cut."""
    names = list(rows[0])
    body = ["| " + " | ".join(_cell(row[name], width) for name in names) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(names) + " |", "|" + "---|" * len(names), *body])


def _cell(value: Any, width: int) -> str:
    text = format_value(value).replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= width else text[: width - 3] + "..."


def link(record: Record, text: str = "") -> str:
    """A Markdown link to an artifact's page in Prefect's UI, under its heading or `text`."""
    place = page_key(record.phase, record.iteration, record.key)
    return f"[{text or heading(record.phase, record.iteration)}]({PAGES}/{place})"


def run_page(graph: Graph, figures: Sequence[tuple[str, str]] = ()) -> str:
    """Markdown page of a run: figures (caption and SVG text), and links to artifacts by iteration."""
    iterations: dict[int, list[Record]] = {}
    for record in graph.records.values():
        iterations.setdefault(record.iteration, []).append(record)
    lines = [f"# Run {graph.run}", "", f"[Its pages in infuser view]({VIEW}/runs/{graph.run})", ""]
    for caption, drawing in figures:
        image = base64.b64encode(drawing.encode()).decode()
        lines += [f"**{caption}**", "", f"![{caption}](data:image/svg+xml;base64,{image})", ""]
    note = f"{len(graph.records)} artifacts; each leads to its page, and that to its inputs."
    lines += [note, "", "| iteration | artifacts | seconds |", "|---|---|---|"]
    for iteration, records in sorted(iterations.items()):
        links = ", ".join(link(record, f"{record.phase} {record.label}".strip()) for record in records)
        spent = sum(record.seconds for record in records)
        lines.append(f"| {iteration if iteration >= 0 else '-'} | {links} | {spent:.1f} |")
    return "\n".join(lines)
