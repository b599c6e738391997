"""Worlds for one claim each: their sweeps' runs measured exactly, kept in `worlds.json`, and their rows of claims.

`python tests/bench/worlds.py` prints a table of every world from what is kept.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from paired import Difference, paired

from infuser_core.config.run import RunConfig
from infuser_core.evaluation.models import find_model
from infuser_core.nano import exact
from infuser_core.nano.world import TARGET, world_of
from infuser_core.planning.sweeps import read_sweep
from infuser_core.results.report import charts
from infuser_core.results.report.comparison import area
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "configs" / "sweep"
KEPT = HERE / "worlds.json"
COVERED, UNCOVERED = ("voltage", "tank"), ("cart", "growth", "fence", "mean")
"""The narrow dev set's topics, and those of the same misconception that it lacks."""
OTHER_LAWS = ("growth", "fence", "mean")
"""Topics that it lacks whose law no topic of the dev set has; cart's is voltage's."""

KEYS = {"own": "the anchor's keys", "better": "half of the wrong keys corrected", "perfect": "perfect keys"}
SHARES = {"quarter": "four", "half": "two"}
"""Grid of fixed generators: their keys, and their documents on the target's domains."""

EVEN_SIZE = 12
"""Dev questions of the runs of nano-break-even."""

EQUAL = "(indistinguishable)"
"""In place of a column: the paper cannot tell the two arms apart."""
UNCLAIMED = ("nano-tail", "nano-dev-pays")
"""Sweeps whose exact target accuracy is measured, and no claim uses."""

Row = dict[str, Any]
Measure = Callable[[Path, RunConfig], Row]


def collected(root: Path, sweep: Path, known: Sequence[Row], measure: Measure) -> list[Row]:
    """Measurements of the seeds whose arms are all there, in the sweep's order.

    What is kept stays where the store lacks the run.
    """
    kept = {(row["seed"], row["arm"]): row for row in known}
    runs = read_sweep(sweep)
    rows: dict[int, list[Row]] = {}
    for config in runs:
        if (row := _row(root, config, kept.get((config.seed, config.variant)), measure)) is not None:
            rows.setdefault(config.seed, []).append(row)
    arms = len({config.variant for config in runs})
    return [row for same in rows.values() if len(same) == arms for row in same]


def _row(root: Path, config: RunConfig, kept: Row | None, measure: Measure) -> Row | None:
    if not Journal(root, config.run_name()).is_finished():
        return kept
    return {"seed": config.seed, "arm": config.variant, **measure(root, config)}


def curve_of(lens: Lens) -> list[tuple[int, float]]:
    """Iterations and validation accuracies of the lens's only run."""
    points = lens.query("select iteration, accuracy from benchmark_scores where phase = 'validate' order by all")
    return [(int(point["iteration"]), round(float(point["accuracy"]), 9)) for point in points]


def sampled_of(lens: Lens) -> dict[str, float]:
    """Sampled accuracies of the selected checkpoint by benchmark, of the lens's only run."""
    rows = lens.query("""select b.benchmark, b.accuracy from benchmark_scores b join selections s using (run)
        where b.phase = 'evaluate' and b.iteration = s.selected_iteration order by all""")
    return {row["benchmark"]: round(float(row["accuracy"]), 9) for row in rows}


def measured(root: Path, config: RunConfig) -> Row:
    """Area under the validation curve; exact accuracy by topic and sampled ones by benchmark at the selected checkpoint."""
    run = config.run_name()
    world = world_of(getattr(config.data.dev, "world", "hard"))
    with closing(Lens(Store(root), runs=[run])) as lens:
        curve, sampled = curve_of(lens), sampled_of(lens)
        asked = lens.query("select distinct subdomain from reference_questions order by all")
    folder = find_model(root, f"{run}@selected").folder
    assert folder is not None, run
    narrow = run.startswith("nano-narrow")
    wanted = (*TARGET, *COVERED, *UNCOVERED) if narrow else [str(row["subdomain"]) for row in asked]
    pairs = exact.masses_of_pairs(folder, wanted, world=world)
    topics = dict.fromkeys(pair.topic for pair in pairs)
    by_topic = {
        name: round(exact.mean_accuracy(pair for pair in pairs if pair.topic == name).accuracy, 6) for name in topics
    }
    return {"auc": round(area(*zip(*curve, strict=True)), 9), "exact": by_topic, "sampled": sampled}


def over(topics: Sequence[str]) -> Callable[[Row], float]:
    """Mean exact accuracy over topics."""
    return lambda row: fmean(row["exact"][name] for name in topics)


def over_own(row: Row) -> float:
    """Mean exact accuracy over the target's topics, which the arm is named after: `growth-sail-infuser`."""
    return over(row["arm"].split("-")[:2])(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A row of the claims: INFUSER, or another arm, against an arm."""

    claim: str
    """The paper's claim, or what follows from it, with INFUSER as its subject."""
    column: str
    """Column of the paper's ablation table; empty where it prints none."""
    measure: str
    """The number in words."""
    difference: Difference
    sweep: str
    """Sweep file without its end."""

    def verdict(self, corrected: float) -> str:
        """The verdict in words, with the corrected p value."""
        ahead = "replicates" if self.column else "holds here; the paper prints no number"
        ahead = "a difference here; the paper finds none" if self.column == EQUAL else ahead
        return self.difference.verdict(corrected=corrected, ahead=ahead)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A hypothesis of a sweep file: INFUSER against another arm."""

    claim: str
    """With INFUSER as its subject."""
    column: str
    """Column of the paper's ablation table; empty where it prints none."""
    sweep: str
    """Sweep file without its end."""
    arm: str
    """The other arm, or the end of its name where several targets are pooled."""
    measure: str
    """The number in words."""
    of: Callable[[Row], float]
    """The number of a run."""
    ours: str = "infuser"
    """The arm that is compared."""
    needed: float = 0.0
    """Share of seeds that the hypothesis asks for."""


def _auc(row: Row) -> float:
    return float(row["auc"])


def _sampled(benchmark: str) -> Callable[[Row], float]:
    return lambda row: row["sampled"][benchmark]


CLAIMS = (
    Contrast(claim="ahead of the dev set alone, on its topics, by area", column="Dev-only", sweep="nano", arm="dev-only", measure="validation AUC", of=_auc),
    Contrast(claim="ahead of the dev set alone, on other topics, the nano lab", column="Dev-only", sweep="nano", arm="dev-only", measure="nano_transfer", of=_sampled("nano_transfer")),
    Contrast(claim="ahead of the dev set alone, on other topics, the small world", column="Dev-only", sweep="nano-basic", arm="dev-only", measure="nano_transfer", of=_sampled("nano_transfer")),
    Contrast(claim="ahead of the dev set alone, on other topics, the wide world", column="Dev-only", sweep="nano-wide", arm="dev-only", measure="nano_transfer", of=_sampled("nano_transfer")),
    Contrast(claim="ahead of a fixed generator, on other topics, the small world", column="Fix-gen", sweep="nano-basic", arm="fixed-generator", measure="nano_transfer", of=_sampled("nano_transfer")),
    Contrast(claim="ahead of a fixed generator, on other topics, the wide world", column="Fix-gen", sweep="nano-wide", arm="fixed-generator", measure="nano_transfer", of=_sampled("nano_transfer")),
    Contrast(claim="ahead of a strong generator that is not trained", column="Strong-gen", sweep="nano-basic", arm="strong-generator", measure="validation AUC", of=_auc),
    Contrast(claim="DuGRPO ahead of group_std", column="group_std", sweep="nano", arm="group-std", measure="validation AUC", of=_auc),
    Contrast(claim="DuGRPO ahead of batch_std", column="batch_std", sweep="nano", arm="batch-std", measure="validation AUC", of=_auc),
    Contrast(claim="ahead of the dev set alone on target topics that it lacks", column="Dev-only", sweep="nano-narrow", arm="dev-only", measure="exact accuracy, four uncovered topics", of=over(UNCOVERED), needed=0.875),
    Contrast(claim="ahead of the dev set alone on the topics that it covers", column="Dev-only", sweep="nano-narrow", arm="dev-only", measure="exact accuracy, two covered topics", of=over(COVERED)),
    Contrast(claim="ahead of a fixed generator on target topics that the dev set lacks", column="Fix-gen", sweep="nano-narrow", arm="fixed-generator", measure="exact accuracy, four uncovered topics", of=over(UNCOVERED)),
    Contrast(claim="ahead of a fixed generator there on the three topics whose law the dev set lacks, too (part of the row above, not in the sweep file)", column="", sweep="nano-narrow", arm="fixed-generator", measure="exact accuracy, three uncovered topics", of=over(OTHER_LAWS)),
    Contrast(claim="DuGRPO ahead of group_std under a heavy tail", column="group_std", sweep="nano-tail", arm="group-std", measure="validation AUC", of=_auc),
    Contrast(claim="DuGRPO ahead of batch_std under a heavy tail", column="batch_std", sweep="nano-tail", arm="batch-std", measure="validation AUC", of=_auc),
    Contrast(claim="group_std ahead of a fixed generator under a heavy tail (not in the sweep file)", column=EQUAL, sweep="nano-tail", ours="group-std", arm="fixed-generator", measure="validation AUC", of=_auc),
    Contrast(claim="batch_std ahead of a fixed generator under a heavy tail (not in the sweep file)", column=EQUAL, sweep="nano-tail", ours="batch-std", arm="fixed-generator", measure="validation AUC", of=_auc),
    Contrast(claim="ahead of a fixed generator under a heavy tail", column="Fix-gen", sweep="nano-tail", arm="fixed-generator", measure="validation AUC", of=_auc),
    Contrast(claim="ahead of a fixed generator on other targets", column="Fix-gen", sweep="nano-elsewhere", arm="fixed-generator", measure="exact accuracy of the own target, mean of three targets", of=over_own),
    Contrast(claim="ahead of a fixed generator from other anchors", column="Fix-gen", sweep="nano-anchors", arm="fixed-generator", measure="exact target accuracy, mean of two anchors", of=over(TARGET)),
    Contrast(claim="ahead of a fixed generator where the target takes two steps", column="Fix-gen", sweep="nano-composed", arm="fixed-generator", measure="exact accuracy, two composed topics", of=over(("pump", "lorry"))),
    Contrast(claim="ahead of a fixed generator with perfect keys there", column="", sweep="nano-composed", arm="perfect-keys", measure="exact accuracy, two composed topics", of=over(("pump", "lorry"))),
    Contrast(claim="ahead of a fixed generator where the test asks 539 operand pairs", column="Fix-gen", sweep="nano-broad", arm="fixed-generator", measure="exact accuracy, two broad topics", of=over(("orchard", "ferry")), needed=0.875),
    Contrast(claim="ahead of a fixed generator that has every other document on the target's domains", column="", sweep="nano-break-even", arm="own-half", measure="exact target accuracy", of=over(TARGET)),
    Contrast(claim="ahead of a fixed generator that has them and perfect keys", column="", sweep="nano-break-even", arm="perfect-half", measure="exact target accuracy", of=over(TARGET)),
    Contrast(claim="ahead of a random reward where one document in four is on the target's domains", column="", sweep="nano-break-even", arm="random", measure="exact target accuracy", of=over(TARGET)),
    Contrast(claim="ahead of a random reward, by area", column="", sweep="nano", arm="random", measure="validation AUC", of=_auc),
    Contrast(claim="ahead of a random reward in the wide world, by area", column="", sweep="nano-wide", arm="random", measure="validation AUC", of=_auc),
)  # fmt: skip
CONTRASTS = (
    *CLAIMS,
    *(
        replace(one, claim=one.claim.replace("a fixed generator", "a random reward"), column="", arm="random", needed=0)
        for one in CLAIMS
        if (one.ours, one.arm) == ("infuser", "fixed-generator")
    ),
)
"""The claims, and those against a fixed generator once more against a random reward."""
SWEEPS = tuple(dict.fromkeys(one.sweep for one in CONTRASTS))


def kept() -> dict[str, list[Row]]:
    """Rows by sweep."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def collect(root: Path) -> None:
    """Measure what the store has of every world, and keep it."""
    known = kept()
    sweeps = (*SWEEPS, "nano-dev-pays")
    rows = {name: collected(root, FOLDER / f"{name}.yaml", known.get(name, []), measured) for name in sweeps}
    text = json.dumps(rows, separators=(",", ":")).replace('{"seed"', '\n{"seed"')
    KEPT.write_text(text + "\n", encoding="utf-8")


def waiting() -> list[str]:
    """A paragraph that names the sweeps of which nothing is kept; none where all have rows."""
    names = ", ".join(f"`configs/sweep/{name}.yaml`" for name in SWEEPS if not kept().get(name))
    return [f"Written, and not yet run as far as their stopping rules ask: {names}.", ""] if names else []


def break_even(name: str, caption: str) -> list[charts.Figure]:
    """INFUSER minus fixed generators by the rightness of their keys and the share of documents on the target."""
    runs = kept().get("nano-break-even", [])
    if len({row["seed"] for row in runs}) < 2:
        return []
    ours = [over(TARGET)(row) for row in runs if row["arm"] == "infuser"]
    series = []
    for keys, label in KEYS.items():
        arms = [[over(TARGET)(row) for row in runs if row["arm"] == f"{keys}-{share}"] for share in SHARES]
        gaps = [paired(ours, arm) for arm in arms]
        means, halves = [gap.mean for gap in gaps], [gap.half for gap in gaps]
        low, high = ([mean + sign * half for mean, half in zip(means, halves, strict=True)] for sign in (-1, 1))
        series.append(charts.ChartSeries(label=label, x=list(range(len(SHARES))), y=means, low=low, high=high))
    shares = [f"one document in {text}" for text in SHARES.values()]
    return [charts.groups(caption, shares, series, name=name, label="INFUSER minus fixed generator")]


def dev_sizes(name: str, caption: str) -> list[charts.Figure]:
    """INFUSER minus a fixed generator by the number of dev questions."""
    runs, even = kept().get("nano-dev-pays", []), kept().get("nano-break-even", [])
    sizes: dict[int, list[float]] = {}
    for row in runs:
        sizes.setdefault(int(row["arm"].rpartition("-")[2]), []).append(over(TARGET)(row))
    if not sizes:
        return []
    sizes[EVEN_SIZE] = [over(TARGET)(row) for row in even if row["arm"] == "infuser"]
    fixed = [over(TARGET)(row) for row in even if row["arm"] == "own-quarter"]
    gaps = [paired(sizes[size], fixed) for size in sorted(sizes)]
    low, high = ([gap.mean + sign * gap.half for gap in gaps] for sign in (-1, 1))
    means = [gap.mean for gap in gaps]
    line = charts.ChartSeries(label="the anchor's keys", x=sorted(sizes), y=means, low=low, high=high)
    return [
        charts.lines(
            caption,
            [line],
            name=name,
            label="INFUSER minus fixed generator",
            xlabel="dev questions",
            ticks=sorted(sizes),
        )
    ]


def findings() -> list[Finding]:
    """Every contrast that has two seeds or more; several targets or anchors of a seed are one mean."""
    runs = kept()
    results = []
    for one in CONTRASTS:
        first, second = (_by_seed(runs.get(one.sweep, []), name, one.of) for name in (one.ours, one.arm))
        if len(first) > 1:
            gap = paired(list(first.values()), [second[seed] for seed in first], needed=one.needed)
            results.append(
                Finding(claim=one.claim, column=one.column, measure=one.measure, difference=gap, sweep=one.sweep)
            )
    return results


def _by_seed(runs: Sequence[Row], arm: str, of: Callable[[Row], float]) -> dict[int, float]:
    """The arm's mean by seed."""
    values: dict[int, list[float]] = {}
    for row in runs:
        if f"-{row['arm']}".endswith(f"-{arm}"):
            values.setdefault(row["seed"], []).append(of(row))
    return {seed: fmean(own) for seed, own in values.items()}


def tables() -> list[str]:
    """Mean and deviation over runs of every arm, in the measures of the sweep's contrasts and benchmarks, as Markdown."""
    lines = []
    for sweep, runs in kept().items():
        if not runs:
            continue
        measures = {one.measure: one.of for one in CONTRASTS if one.sweep == sweep}
        measures |= {"exact target accuracy": over(TARGET)} if sweep in UNCLAIMED else {}
        measures |= {name: _sampled(name) for name in runs[0].get("sampled", ())}
        lines += [f"`configs/sweep/{sweep}.yaml`", ""]
        lines += ["| arm | runs | " + " | ".join(measures) + " |", "| --- |" + " ---: |" * (1 + len(measures))]
        for arm in dict.fromkeys(row["arm"] for row in runs):
            columns = [[of(row) for row in runs if row["arm"] == arm] for of in measures.values()]
            shown = [f"{fmean(column):.3f} ± {stdev(column):.3f}" for column in columns]
            lines.append(f"| {arm} | {len(columns[0])} | {' | '.join(shown)} |")
        lines.append("")
    return lines


if __name__ == "__main__":
    print("\n".join(tables()))
