"""A report as Markdown: tables and texts; the charts are in the page, their numbers are in the tables."""

import re

from infuser_core.report.content import Report, Sample, Section, Table

_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def render(report: Report) -> str:
    """The whole report."""
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
