"""Answer of `infuser why`: passages of facts, each with the artifact it was read from, as text or JSON."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from infuser_core.schemas import heading
from infuser_core.terminal import table

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One step on the way from a textbook to a number."""

    name: str
    """Short name, the key in JSON."""
    title: str
    """Heading."""
    artifact: str = ""
    """Key of the artifact that the facts were read from; empty where they come from several."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Label to value."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Label to a longer text, as a model or a textbook has it."""
    rows: Sequence[Mapping[str, Any]] = ()
    """A table."""
    note: str = ""
    """A sentence: what is not there, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of `infuser why`, passage by passage."""

    id: str
    """Subject of the answer."""
    kind: str
    """question, generator rollout, solver rollout, checkpoint, document, source, benchmark, ... or artifact."""
    run: str
    """Run whose story is told."""
    headline: str
    """The answer in one sentence."""
    passages: Sequence[Passage]
    """The story, from the origin to the effect."""
    also: Sequence[str] = ()
    """Where else the same identifier occurs."""

    def to_json(self) -> dict[str, Any]:
        """JSON object with the passages by name; numbers that are none become null."""
        passages = {p.name: {k: v for k, v in asdict(p).items() if k != "name"} for p in self.passages}
        head = {"id": self.id, "kind": self.kind, "run": self.run, "headline": self.headline, "also": list(self.also)}
        return {**head, "passages": _finite(passages)}

    def passage(self, name: str) -> Passage | None:
        """The passage of that name."""
        return next((passage for passage in self.passages if passage.name == name), None)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))) else value


def to_text(answer: Answer) -> str:
    """The story for a terminal."""
    lines = [f"{answer.kind} {answer.id} (run {answer.run})", answer.headline]
    lines += [f"also: {line}" for line in answer.also]
    for passage in answer.passages:
        mark = f"  [{passage.artifact}]" if passage.artifact else ""
        lines += ["", f"{passage.title}{mark}"]
        lines += [f"  {heading(label)}: {shown(value)}" for label, value in passage.facts.items()]
        for label, body in passage.texts.items():
            lines += [f"  {heading(label)}:", *_wrapped(body)]
        rows = [{heading(label): value for label, value in row.items()} for row in passage.rows]
        lines += [f"  {line}" for line in table_lines(rows)]
        lines += [f"  {passage.note}"] if passage.note else []
    return "\n".join(lines)


def _wrapped(body: str) -> list[str]:
    lines = [part for line in printable(body).splitlines() for part in textwrap.wrap(line, _WIDTH) or [""]]
    return [f"    | {line}" for line in lines] or ["    | (empty)"]


def printable(value: str) -> str:
    """Text without control characters other than line breaks and tabs: a terminal obeys none of a model's."""
    return "".join(char for char in value if char in "\n\t" or char.isprintable())


def shown(value: Any) -> str:
    """A value on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value) or "-"
    return " ".join(printable(str(value)).split()) or "-"


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as the lines of a table, long cells cut; none for no rows."""
    return table([{name: shown(value) for name, value in row.items()} for row in rows]).splitlines() if rows else []
