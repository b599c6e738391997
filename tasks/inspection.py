"""Artifact pages and SQL over the store."""

import json
from pathlib import Path

from infuser_core.errors import UsageError
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.runs import find_run
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.terminal import table


def find_artifact(store: Store, name: str) -> ArtifactRef:
    """The artifact whose key or id starts with `name`. Raises UsageError when none or several do."""
    found = [ref for ref in store.refs() if ref.id.startswith(name) or ref.key.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no artifact {name}", hint="`infuser status` lists the keys of a run's artifacts")
    raise UsageError(f"{len(found)} artifacts start with {name}", hint=f"e.g. {found[0].key} and {found[1].key}")


def show(root: Path, name: str) -> str:
    """Markdown page of an artifact, with what was made from it."""
    from tasks.display import artifact_page

    store = Store(root)
    ref = find_artifact(store, name)
    users = [other for other in store.refs() if ref.id in store.manifest(other).recipe.get("inputs", {}).values()]
    return artifact_page(store, ref, users=users)


def query(root: Path, statement: str, *, run: str | None, as_json: bool) -> str:
    """Rows of a statement, as a table or JSON."""
    lens = Lens(Store(root), runs=None if run is None else [find_run(root, run)])
    try:
        rows = lens.query(statement)
    finally:
        lens.close()
    return json.dumps(rows, default=str) if as_json else table(rows)
