"""A report as one HTML page from a template: no script, no external resource, readable in dark and light."""

import re
from functools import cache
from importlib import resources
from textwrap import dedent

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from infuser_core.report import figures
from infuser_core.report.content import Report, Table


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
    made.filters["svg"] = lambda figure: Markup(figures.svg(figure))
    made.globals["kind"] = _kind
    return made


def style() -> Markup:
    """The style sheet of all pages."""
    return Markup(resources.files("infuser_core.report").joinpath("page.css").read_text(encoding="utf-8"))


def _code(line: str) -> Markup:
    """A sentence; the parts in backticks are set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(line))))


def _kind(table: Table, column: int) -> str:
    return "text" if column < table.text_columns else "number"
