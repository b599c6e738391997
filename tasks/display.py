"""Prefect UI: a page per artifact, and a progress bar while a stage runs."""

import json
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from infuser_core import faults
from infuser_core.store import tables
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Store
from tasks.run import Run

_FIRST = 0.5
_EVERY = 2.0
_PREVIEW = 5


class Ticker:
    """Receives a phase's progress: terminal, Prefect progress artifact, and the crash points of tests."""

    def __init__(self, run: Run, recipe: Recipe) -> None:
        self._run = run
        self._recipe = recipe
        self._due = time.monotonic() + _FIRST
        self._artifact: UUID | None = None

    def __call__(self, done: int, total: int, tokens: int) -> None:
        faults.point(f"{self._recipe.phase}:inside")
        self._run.console.progress(done, total, tokens)
        if self._run.published and time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY
            self._publish(100.0 * done / max(1, total))

    def finish(self) -> None:
        """The stage is done."""
        if self._artifact is not None:
            self._publish(100.0)

    def _publish(self, percent: float) -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        if self._artifact is None:
            key = artifact_key(self._run.name, self._recipe.phase, "progress")
            text = title(self._recipe.phase, self._recipe.iteration)
            created: Any = create_progress_artifact(progress=percent, key=key, description=text)
            self._artifact = created
        else:
            update_progress_artifact(artifact_id=self._artifact, progress=percent)


def artifact_key(*parts: str) -> str:
    """A Prefect artifact key: lower case, digits, dashes."""
    return "-".join(parts).lower().replace("_", "-").replace(".", "-")


def title(phase: str, iteration: int) -> str:
    """A stage in words."""
    return f"{phase}, iteration {iteration}" if iteration >= 0 else phase


def artifact_page(store: Store, ref: ArtifactRef, *, users: Sequence[ArtifactRef] = ()) -> str:
    """Markdown page of an artifact; `users` are artifacts made from it, where known."""
    manifest = store.manifest(ref)
    recipe = manifest.recipe
    lines = [f"# {title(ref.kind, recipe['iteration'])}", "", f"`{ref.id}`, made in {manifest.seconds:.2f} s", ""]
    lines += [f"- **{name}**: {_plain(value)}" for name, value in manifest.summary.items()]
    lines += [f"- **{name}**: {_plain(facts)}" for name, facts in manifest.machine.items()]
    for name, count in manifest.rows.items():
        rows = tables.head(store.path(ref, f"{name}.parquet"), _PREVIEW)
        lines += ["", f"## {name} ({count} rows)", "", markdown_table(rows) if rows else "no rows", ""]
        lines += [f"`infuser sql \"select * from {name} where artifact_key = '{ref.key}'\"`"]
    lines += ["", "## Made from", ""]
    inputs = recipe["inputs"].items()
    lines += [f"- {name}: `{identity}`" for name, identity in inputs] or ["- nothing but its configuration"]
    if users:
        lines += ["", "## Used by", "", *[f"- `{user.id}`" for user in users]]
    lines += ["", "## Recipe", "", "```json", json.dumps(recipe, indent=1, sort_keys=True), "```"]
    return "\n".join(lines)


def markdown_table(rows: Sequence[dict[str, Any]], *, width: int = 60) -> str:
    """A Markdown table of a few rows, long values cut."""
    names = list(rows[0])
    body = ["| " + " | ".join(_cell(row[name], width) for name in names) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(names) + " |", "|" + "---|" * len(names), *body])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(value: Any, width: int) -> str:
    text = _plain(value)
    text = text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
    return text if len(text) <= width else text[: width - 3] + "..."
