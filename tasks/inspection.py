"""Looking at the store: artifact pages, SQL, comparisons of runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.lens import Lens
from infuser_core.recipe import ArtifactRef
from infuser_core.report.compare import Comparison, compare_runs
from infuser_core.report.study_figure import draw_curve
from infuser_core.runs import Journal, find_run, list_runs, read_config
from infuser_core.store import Store


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
    return json.dumps(rows, default=str) if as_json else text_table(rows)


def text_table(rows: Sequence[dict[str, Any]], *, width: int = 48) -> str:
    """Aligned columns; long values cut."""
    if not rows:
        return "no rows"
    names = list(rows[0])
    cells = [names, *[[_cell(row[name], width) for name in names] for row in rows]]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    lines = ["  ".join(value.ljust(size) for value, size in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "  ".join("-" * size for size in widths), *lines[1:]])


def _cell(value: Any, width: int) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return text if len(text) <= width else text[: width - 3] + "..."


def compare(root: Path, names: Sequence[str], *, as_json: bool) -> str:
    """Runs by variant, as a table or JSON."""
    chosen = [find_run(root, name) for name in names] or [n for n in list_runs(root) if Journal(root, n).is_finished()]
    if not chosen:
        raise UsageError("no finished runs to compare", hint="name runs, or finish one")
    variants = {name: _variant(read_config(root, name)) for name in chosen}
    lens = Lens(Store(root), runs=chosen)
    try:
        rows = compare_runs(lens.query, variants)
    finally:
        lens.close()
    plain = [_plain(row) for row in rows]
    return json.dumps(plain) if as_json else text_table(plain)


def curves(root: Path, names: Mapping[str, str]) -> str:
    """Validation curves of several runs side by side; `names` maps a heading to a run."""
    lens = Lens(Store(root), runs=list(names.values()))
    try:
        rows = lens.query(
            "select iteration, run, accuracy from benchmark_scores where phase = 'validate' order by iteration"
        )
    finally:
        lens.close()
    by_place = {(row["iteration"], row["run"]): row["accuracy"] for row in rows}
    iterations = sorted({row["iteration"] for row in rows})
    return text_table(
        [
            {"iteration": number}
            | {
                label: f"{by_place[number, run]:.3f}" if (number, run) in by_place else ""
                for label, run in names.items()
            }
            for number in iterations
        ]
    )


def influence_curve(root: Path, name: str, *, figure: Path | None = None) -> dict[str, Any]:
    """Mean influence score per iteration over all questions, with the means of the first and the last five."""
    lens = Lens(Store(root), runs=[name])
    try:
        curve = lens.query("select iteration, avg(score) as score from scores group by iteration order by iteration")
    finally:
        lens.close()
    means = [row["score"] for row in curve]
    if figure is not None:
        draw_curve([row["iteration"] for row in curve], means, figure, ylabel="mean influence score")
    return {"run": name, "first": mean(means[:5]), "last": mean(means[-5:]), "curve": curve}


def _variant(config: dict[str, Any]) -> str:
    return f"{config['name']}-{config['variant']}".rstrip("-")


def _plain(row: Comparison) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}
