"""A report as one HTML page, without script or external resource and readable in dark and light, and as Markdown."""

import re
from functools import cache
from importlib import resources
from textwrap import dedent

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as html_escape

from infuser_core.report import charts
from infuser_core.report.content import Report, Sample, Section, Table


def render(report: Report) -> str:
    """The whole page."""
    return _environment().get_template("report.html").render(report=report, style=style())


@cache
def _environment() -> Environment:
    """Everything that comes from data is escaped: whatever a model wrote, the page may load and run nothing."""
    made = Environment(
        loader=PackageLoader("infuser_core.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    made.filters["code"] = _code
    made.filters["dedent"] = lambda statement: dedent(statement).strip()
    made.filters["svg"] = lambda figure: Markup(charts.svg(figure))
    made.globals["kind"] = _kind
    return made


def style() -> Markup:
    """The style sheet of all pages."""
    return Markup(resources.files("infuser_core.report").joinpath("page.css").read_text(encoding="utf-8"))


def _code(line: str) -> Markup:
    """A sentence; the parts in backticks are set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(html_escape(line))))


def _kind(table: Table, column: int) -> str:
    return "text" if column < table.text_columns else "number"


_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def markdown(report: Report) -> str:
    """The report as Markdown: tables and texts; the charts are in the page, their numbers are in the tables."""
    return "\n\n".join([f"# {escape(report.title)}", *(_section(section) for section in report.sections)]) + "\n"


def escape(text: str) -> str:
    """One line of text that Markdown shows as it is: no HTML, no links, no pictures, no table borders."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def _section(section: Section) -> str:
    cards = [f"- **{escape(card.label)}**: {escape(card.value)} ({escape(card.detail)})" for card in section.cards]
    lines = [f"- {escape(line)}" for line in section.lines] if len(section.lines) > 1 else [*map(escape, section.lines)]
    blocks = ["\n".join(part) for part in (cards, lines) if part]
    blocks += [_table(table) for table in section.tables]
    blocks += [_sample(sample) for sample in section.samples]
    return "\n\n".join([f"## {escape(section.title)}", *blocks])


def _table(table: Table) -> str:
    marks = [" :--- " if index < table.text_columns else " ---: " for index in range(len(table.columns))]
    rows = [[f" {escape(cell)} " for cell in row] for row in [table.columns, *table.rows]]
    lines = ["|".join(["", *row, ""]) for row in [rows[0], marks, *rows[1:]]]
    title = [f"**{escape(table.title)}**", ""] if table.title else []
    return "\n".join([*title, *lines])


def _sample(sample: Sample) -> str:
    facts = [f"- {escape(label)}: {escape(value)}" for label, value in sample.facts]
    texts = [f"{escape(label)}:\n\n{_fenced(body)}" for label, body in sample.texts]
    return "\n\n".join([f"### {escape(sample.title)}", "\n".join(facts), *texts])


def _fenced(body: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"
