"""A report as one HTML page: no script, no external resource, readable in dark and light."""

import re
from html import escape
from importlib import resources
from textwrap import dedent

from infuser_core.report import figures
from infuser_core.report.content import Card, Figure, Report, Sample, Section, Table

# Whatever a model wrote, the page may load nothing and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

SHORT = 14
"""Rows of a table that is printed on one sheet."""


def render(report: Report) -> str:
    """The whole page."""
    style = resources.files("infuser_core.report").joinpath("page.css").read_text(encoding="utf-8")
    links = "".join(
        f'<a href="#section-{index}">{escape(section.title)}</a>' for index, section in enumerate(report.sections)
    )
    body = "\n".join(_section(section, index) for index, section in enumerate(report.sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{escape(report.title)}</h1><nav>{links}</nav></header>
<main>
{body}
</main>
</body>
</html>
"""


def _section(section: Section, index: int) -> str:
    cards = "".join(_card(card) for card in section.cards)
    lines = [f"<p>{_line(line)}</p>" for line in section.lines]
    if len(section.lines) > 1:
        lines = ["<ul>", *(f"<li>{_line(line)}</li>" for line in section.lines), "</ul>"]
    parts = [
        f'<section id="section-{index}"><h2>{escape(section.title)}</h2>',
        *lines,
        f'<div class="cards">{cards}</div>' if cards else "",
        *(_figure(figure) for figure in section.figures),
        *(_table(table) for table in section.tables),
        *(_sample(sample) for sample in section.samples),
        _sql(section.sql),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _line(line: str) -> str:
    """A sentence; what stands in backticks is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line))


def _card(card: Card) -> str:
    label, value, detail = escape(card.label), escape(card.value), escape(card.detail)
    return f'<div class="card"><span>{label}</span><strong>{value}</strong><span>{detail}</span></div>'


def _figure(figure: Figure) -> str:
    title = escape(figure.title)
    drawn, caption = figures.svg(figure.drawing), f"<figcaption>{title}</figcaption>"
    return f'<figure role="img" aria-label="{title}">{drawn}{caption}</figure>'


def _table(table: Table) -> str:
    kinds = ["text" if index < table.text_columns else "number" for index in range(len(table.columns))]
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for kind, name in zip(kinds, table.columns, strict=True))
    rows = "\n".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in table.rows
    )
    kept = ' class="short"' if len(table.rows) <= SHORT else ""
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>"
    return f'<div class="scroll"><table{kept}>{caption}{body}</table></div>'


def _sample(sample: Sample) -> str:
    facts = "".join(f"<li>{escape(label)}: <b>{escape(value)}</b></li>" for label, value in sample.facts)
    texts = "".join(f"<h4>{escape(label)}</h4><pre>{escape(body)}</pre>" for label, body in sample.texts)
    title = escape(sample.title)
    return f'<details open><summary>{title}</summary><ul class="facts">{facts}</ul>{texts}</details>'


def _sql(statements: list[str]) -> str:
    """The statements below their section, folded away."""
    if not statements:
        return ""
    shown = "".join(f"<pre>{escape(dedent(statement).strip())}</pre>" for statement in statements)
    said = "SQL of this section: each runs with <code>infuser sql</code>"
    return f'<details class="sql"><summary>{said}</summary>{shown}</details>'
