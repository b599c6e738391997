"""What a run's responses look like over training: for the report and for `infuser retention`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infuser_core.lens import Lens
from infuser_core.report.retention import look
from infuser_core.runs import Journal, find_run
from infuser_core.store import Store


def special_tokens(root: Path, run: str) -> list[int]:
    """Ids of the special tokens of the run's anchor; none where it has no tokenizer file that names them."""
    keys = [entry.key for entry in Journal(root, run).latest() if entry.phase == "anchor"]
    path = Store(root).folder("anchor", keys[-1]) / "tokenizer.json" if keys else Path()
    if not keys or not path.is_file():
        return []
    added = json.loads(path.read_text(encoding="utf-8")).get("added_tokens", [])
    return sorted(int(token["id"]) for token in added if token.get("special"))


def habits(root: Path, name: str | None, *, phase: str) -> dict[str, Any]:
    """The habits of one run as JSON values."""
    run = find_run(root, name)
    lens = Lens(Store(root), runs=[run])
    try:
        found = look(lens.query, run, phase=phase, specials=special_tokens(root, run))
    finally:
        lens.close()
    return {"run": run, **asdict(found)}


def tables(found: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The same as rows for a terminal: checkpoints, changes, generator replies, special tokens."""
    checkpoints = [
        {name: row[name] for name in ("iteration", "responses", "median_tokens")} | row["shares"]
        for row in found["checkpoints"]
    ]
    changes = [
        {"measure": row["measure"], "before": row["before"], "after": row["after"]}
        | {"change": row["difference"]["value"], "low": row["difference"]["low"], "high": row["difference"]["high"]}
        for row in found["changes"]
    ]
    return [rows for rows in (checkpoints, changes, found["replies"], found["inside"]) if rows]
