"""Render a report as one self-contained HTML page, with light and dark theme, and as Markdown."""

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from textwrap import dedent

from jinja2 import Environment
from markupsafe import Markup
from markupsafe import escape as html_escape

from infuser_core.results.lineage.pages import environment
from infuser_core.results.report import charts as drawings
from infuser_core.results.report.charts import Row
from infuser_core.results.report.content import Report, ReportSection, ReportTable


def render(report: Report, *, questions: Sequence[Row] = (), total: int = 0) -> str:
    """Render the HTML page; `questions`, of `total` in the run, become a searchable table, which is not printed."""
    scripts = {}
    if questions:
        script = _asset("view.js")
        scripts = {Markup(script): f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"}
    return (
        _environment()
        .get_template("report.html")
        .render(report=report, style=style(), questions=questions, total=total, scripts=scripts)
    )


def _asset(name: str) -> str:
    return resources.files("infuser_core.results.view").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Jinja environment of reports. Data is escaped: a model's text cannot make the page load or run anything."""
    templates = environment("infuser_core.results.report", "infuser_core.results.view", "infuser_core.results.lineage")
    templates.filters["code"] = _code
    templates.filters["dedent"] = lambda statement: dedent(statement).strip()
    templates.filters["svg"] = lambda figure: Markup(drawings.svg(figure))
    templates.globals["kind"] = lambda table, column: "text" if column < table.text_columns else "number"
    return templates


def style() -> Markup:
    """The style sheet of all pages."""
    return Markup("\n".join(_asset(name) for name in ("page.css", "view.css")))


def _code(line: str) -> Markup:
    """HTML of a sentence, with the parts in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(html_escape(line))))


_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def markdown(report: Report) -> str:
    """Render the report as Markdown, without the charts: their numbers are in the tables."""
    sections = [_section(section) for section in report.all_sections]
    return "\n\n".join([f"# {escape(report.title)}", *map(escape, report.summary), *sections]) + "\n"


def escape(text: str) -> str:
    """Escape text for one line of Markdown: no HTML, links, pictures or table borders."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def _section(section: ReportSection) -> str:
    lines = [f"- {escape(line)}" for line in section.lines] if len(section.lines) > 1 else [*map(escape, section.lines)]
    blocks = ["\n".join(lines)] if lines else []
    blocks += [_table(table) for table in section.tables]
    return "\n\n".join([f"## {escape(section.title)}", *blocks])


def _table(table: ReportTable) -> str:
    rows = [[escape(cell) for cell in row] for row in [table.columns, *table.rows]]
    title = [f"**{escape(table.title)}**", ""] if table.title else []
    return "\n".join([*title, *grid(rows[0], rows[1:], text_columns=table.text_columns)])


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1) -> list[str]:
    """Lines of a Markdown table; cells are escaped already, and columns after the text columns are aligned right."""
    marks = [":---" if index < text_columns else "---:" for index in range(len(columns))]
    return ["| " + " | ".join(row) + " |" for row in [columns, marks, *rows]]
