"""Looking at the store: artifact pages, SQL, comparisons of runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.report.against import markdown, standings
from infuser_core.report.compare import Comparison, compare_runs
from infuser_core.report.comparison import Contrast
from infuser_core.report.study_figure import draw_curve
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.runs import Journal, find_run, list_runs, read_config
from infuser_core.store.store import Store
from infuser_core.store.views import Lens


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


def compare(root: Path, names: Sequence[str], *, as_json: bool, against: str = "") -> str:
    """Runs by variant, and the differences between variants with their intervals, as tables or JSON.

    With `against`, every variant beside that one alone, as a Markdown table or JSON.
    """
    chosen = [find_run(root, name) for name in names] or [n for n in list_runs(root) if Journal(root, n).is_finished()]
    if not chosen:
        raise UsageError("no finished runs to compare", hint="name runs, or finish one")
    configs = {name: read_config(root, name) for name in chosen}
    variants = {name: _variant(config) for name, config in configs.items()}
    seeds = {name: int(config["seed"]) for name, config in configs.items() if "seed" in config}
    lens = Lens(Store(root), runs=chosen)
    try:
        if against:
            beside = standings(lens.query, variants, seeds, against)
            return json.dumps([asdict(row) for row in beside]) if as_json else markdown(beside)
        rows = compare_runs(lens.query, variants, seeds=seeds)
    finally:
        lens.close()
    if as_json:
        return json.dumps([_plain(row) for row in rows])
    means = text_table([{k: v for k, v in _plain(row).items() if k != "differences"} for row in rows])
    gaps = [gap for row in rows for gap in row.differences]
    return means if not gaps else f"{means}\n\n{DIFFERENCES}\n{text_table([_short(gap) for gap in gaps])}"


DIFFERENCES = (
    "differences at the selected checkpoints, paired by question; [low, high]: 95% bootstrap over questions;\n"
    "detectable: smallest difference found with 80% power at 5%; seeds [low, high]: 95% t interval over seeds"
)


def _short(gap: Contrast) -> dict[str, Any]:
    """One line of the terminal's table."""
    return {
        "benchmark": gap.benchmark if gap.phase == "evaluate" else f"{gap.benchmark} (selection saw it)",
        "difference": f"{gap.variant} - {gap.against}",
        "by": _signed(gap.difference),
        "questions [low, high]": _ends(gap.low, gap.high),
        "sign share": _signed(gap.sign_share, sign=""),
        "detectable": _signed(gap.detectable, sign=""),
        "questions": f"{gap.questions} ({gap.left_out} left out)" if gap.left_out else gap.questions,
        "seeds [low, high]": f"{gap.seeds} {_ends(gap.seed_low, gap.seed_high)}" if gap.seeds else "-",
    }


def _signed(value: float | None, *, sign: str = "+") -> str:
    return "-" if value is None else f"{value:{sign}.4f}"


def _ends(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"[{low:+.4f}, {high:+.4f}]"


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
    """The row for JSON, which knows no nan."""
    return {name: None if value != value else value for name, value in asdict(row).items()}
