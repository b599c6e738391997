"""Explanations as `infuser why` gives them: passages of facts with their source artifacts, as text or JSON."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from infuser_core.prompts.templates import LETTERS
from infuser_core.schemas import COLUMNS, Column, heading
from infuser_core.terminal import format_rows, null_nonfinite

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One section of an explanation: facts, texts and rows, usually from one artifact."""

    name: str
    """Short name, the key in JSON."""
    title: str
    artifact: str = ""
    """Key of the artifact that the facts were read from; empty if they come from several."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Values by column name."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Longer texts of a model or a textbook by column name."""
    rows: Sequence[Mapping[str, Any]] = ()
    note: str = ""
    """A remark, e.g. on missing data and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Explanation of one object in the store: its origin and its effects, in passages."""

    id: str
    kind: str
    """question, generator rollout, solver rollout, checkpoint, document, source, benchmark, ... or artifact."""
    run: str
    headline: str
    """The explanation in one sentence."""
    passages: Sequence[Passage]
    also: Sequence[str] = ()
    """Remarks on other runs that have the same identifier."""

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON object, passages by name; NaN and infinities become null."""
        passages = {p.name: {k: v for k, v in asdict(p).items() if k != "name"} for p in self.passages}
        head = {"id": self.id, "kind": self.kind, "run": self.run, "headline": self.headline, "also": list(self.also)}
        return {**head, "passages": null_nonfinite(passages)}

    def passage(self, name: str) -> Passage | None:
        """The passage of that name."""
        return next((passage for passage in self.passages if passage.name == name), None)


def to_readable(row: Mapping[str, Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """Human-readable row: texts first, identifiers last; lists with a value per token become a count or a mean."""

    def place(name: str) -> int:
        column = COLUMNS.get(name, Column())
        return 0 if column.is_text else 2 if column.refers_to else 1

    readable = {}
    for name in sorted((name for name in row if name not in without), key=place):
        value, column = row[name], COLUMNS.get(name, Column())
        if column.is_text and isinstance(value, list):
            value = "\n".join(f"{letter}) {text}" for letter, text in zip(LETTERS, value, strict=False))
        elif isinstance(value, list) and column.label:
            name = column.label.replace(" ", "_").replace("-", "_")
            value = fmean(value) if column.unit and value else len(value) or None
        readable[name] = value
    return readable


def row_passage(
    name: str,
    title: str,
    row: Mapping[str, Any],
    *,
    without: Collection[str] = (),
    artifact: str = "",
    facts: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    note: str = "",
) -> Passage:
    """Make a passage about one row: its short columns and more `facts`, and its long texts."""
    filled = {key: value for key, value in to_readable(row, without=without).items() if value not in (None, "")}
    artifact = filled.pop("artifact_key", artifact)
    texts = {key: value for key, value in filled.items() if COLUMNS.get(key, Column()).is_text}
    facts = {key: value for key, value in filled.items() if key not in texts} | dict(facts or {})
    return Passage(name=name, title=title, artifact=artifact, facts=facts, texts=texts, rows=rows, note=note)


def table_passage(
    name: str, title: str, rows: Sequence[Mapping[str, Any]], *, without: Collection[str] = (), **fields: Any
) -> Passage:
    """Make a passage with a table of rows, without the columns that are empty in every row."""
    lines = [to_readable(row, without=without) for row in rows]
    empty = {key for key in (lines[0] if lines else ()) if key != "text" and all(r[key] in (None, "") for r in lines)}
    filled = [{key: value for key, value in line.items() if key not in empty} for line in lines]
    return Passage(name=name, title=title, rows=filled, **fields)


def to_text(story: Story) -> str:
    """The explanation as text for a terminal."""
    where = "" if story.id == story.run else f" (run {story.run})"
    lines = [f"{story.kind} {story.id}{where}", story.headline]
    lines += [f"also: {line}" for line in story.also]
    for passage in story.passages:
        lines += ["", f"{passage.title}  [{passage.artifact}]" if passage.artifact else passage.title]
        lines += [f"  {heading(name)}: {format_value(value)}" for name, value in passage.facts.items()]
        for name, body in passage.texts.items():
            wrapped = [part for line in printable(body).splitlines() for part in textwrap.wrap(line, _WIDTH) or [""]]
            lines += [f"  {heading(name)}:", *(f"    | {line}" for line in wrapped or ["(empty)"])]
        rows = [{heading(name): value for name, value in row.items()} for row in passage.rows]
        lines += [f"  {line}" for line in table_lines(rows)]
        lines += [f"  {passage.note}"] if passage.note else []
    return "\n".join(lines)


def printable(value: str) -> str:
    """Remove control characters except line breaks and tabs: a model's text must not steer a terminal."""
    return "".join(char for char in value if char in "\n\t" or char.isprintable())


def format_value(value: Any) -> str:
    """Format a value on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value) or "-"
    return " ".join(printable(str(value)).split()) or "-"


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of a text table of rows, long cells cut; empty for no rows."""
    cells = [{name: format_value(value) for name, value in row.items()} for row in rows]
    return format_rows(cells).splitlines() if cells else []
