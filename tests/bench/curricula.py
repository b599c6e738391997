"""Curricula at equal compute: what the generator is paid for, in three worlds. `make curricula` runs them.

The sweep files hold arms, hypotheses and stopping rule. With `--measure` the store's finished runs are measured and kept in
`curricula.json`; without it `docs/curricula.md` is written from that file, so that anybody gets the same page.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import score_table
from compute import cumulative, flops_by_iteration
from paired import Difference, paired
from worlds import UNCOVERED

from infuser_core import settings
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases.select import best_index
from infuser_core.evaluation.models import find_model
from infuser_core.memory.shape import read_shape
from infuser_core.nano import exact
from infuser_core.nano.world import TARGET, world_of
from infuser_core.planning.sweeps import read_sweep
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEPT = HERE / "curricula.json"
PAGE = ROOT / "docs" / "curricula.md"
OURS, ITERATIONS = "influence", 30
ARMS = {
    OURS: "influence, the paper's",
    "raw-influence": "influence without the preconditioner",
    "measured-influence": "influence measured by a real step",
    "uncertainty": "the solver's uncertainty",
    "random": "a random number",
    "fixed-generator": "nothing: the generator is never updated",
    "bm25": "BM25 of the question to the dev questions",
    "bm25-uncertainty": "that times the solver's uncertainty",
    "dev-only": "no questions: the solver trains on the dev set alone",
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A world of the comparison."""

    title: str
    """Its heading."""
    sweep: str
    """Its sweep file without the ending."""
    prefix: str
    """What its arms' variants begin with."""
    name: str
    """The lab's name of the world."""
    topics: tuple[str, ...]
    """Topics whose exact accuracy is measured."""
    hypotheses: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Name in the sweep file, where influence minus each arm is expected at equal compute, and the arms."""
    ours: str = ""
    """Sweep file of influence's runs, if it is another one."""

    def runs(self) -> dict[int, dict[str, RunConfig]]:
        """Its runs by seed and arm."""
        runs: dict[int, dict[str, RunConfig]] = {}
        for sweep in filter(None, (self.ours, self.sweep)):
            for config in read_sweep(ROOT / "configs" / "sweep" / f"{sweep}.yaml"):
                arm = config.variant.removeprefix(self.prefix)
                if config.variant.startswith(self.prefix) and arm in ARMS and (arm == OURS or sweep == self.sweep):
                    runs.setdefault(config.seed, {})[arm] = config
        return runs


BLIND = ("H1", "ahead", ("uncertainty", "random", "fixed-generator"))
REAL_STEPS = ("H2", "ahead", ("measured-influence",))
WORLDS = (
    World(
        title="The headline world",
        sweep="nano-curricula",
        prefix="",
        name="hard",
        topics=TARGET,
        hypotheses=(BLIND, REAL_STEPS, ("H3", "level", ("raw-influence",))),
    ),
    World(
        title="The headline world: rivals that use the dev set",
        sweep="nano-curricula-controls",
        ours="nano-curricula",
        prefix="",
        name="hard",
        topics=TARGET,
        hypotheses=(("H1", "ahead", ("bm25", "bm25-uncertainty")), ("H2", "below", ("dev-only",))),
    ),
    World(
        title="A dev set of two of six topics, measured on the four that it lacks",
        sweep="nano-curricula-worlds",
        prefix="narrow-",
        name="hard",
        topics=UNCOVERED,
        hypotheses=(BLIND, REAL_STEPS),
    ),
    World(
        title="A target of two steps",
        sweep="nano-curricula-worlds",
        prefix="composed-",
        name="composed",
        topics=("pump", "lorry"),
        hypotheses=(BLIND, REAL_STEPS),
    ),
)


def collect(root: Path) -> list[Row]:
    """Measurements of the seeds whose arms are all finished, in the order of the sweep files.

    What was kept stays where the store lacks the run.
    """
    kept = {(row["world"], row["run"]): row for row in read_kept()}
    rows = []
    for world in WORLDS:
        for seed, arms in world.runs().items():
            names = {arm: config.run_name() for arm, config in arms.items()}
            finished = {arm: name for arm, name in names.items() if Journal(root, name).is_finished()}
            known = {arm: kept[world.title, name] for arm, name in names.items() if (world.title, name) in kept}
            if OURS not in finished and OURS not in known:
                # The same run in another table.
                same = next((row for row in kept.values() if row["run"] == names[OURS]), None)
                known |= {OURS: same | {"world": world.title}} if same else {}
            if finished.keys() | known.keys() < names.keys():
                continue
            if finished:
                known |= _measure_seed(root, world, seed, finished, known.get(OURS))
                print(world.sweep, world.prefix, seed, flush=True)
            rows += [known[arm] for arm in names]
    return rows


def read_kept() -> list[Row]:
    """What is kept."""
    rows: list[Row] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
    return rows


def _measure_seed(root: Path, world: World, seed: int, names: Mapping[str, str], ours: Row | None) -> dict[str, Row]:
    """Compute and accuracy of a seed's arms, at equal iterations and within the compute of the paper's arm.

    `ours` is the kept row of the paper's arm if the store lacks its run.
    """
    folder = find_model(root, f"{next(iter(names.values()))}@selected").folder
    assert folder is not None, names
    shape = read_shape(folder)
    spent = {arm: cumulative(flops_by_iteration(root, run, shape)) for arm, run in names.items()}
    budget = spent[OURS][ITERATIONS] if OURS in spent else ours["flops"] * ITERATIONS if ours else 0.0
    rows = {}
    for arm, run in names.items():
        curve = _validation(root, run)
        exact_at: dict[int, float] = {}
        chosen = {}
        for rule, within in (
            ("iterations", [at for at in curve if at <= ITERATIONS]),
            ("compute", [at for at in curve if spent[arm][at] <= budget]),
        ):
            at = within[best_index([curve[at] for at in within])]
            if at not in exact_at:
                exact_at[at] = _exact(root, run, at, world)
            # How far the rule let the arm train, and the checkpoint that it selects.
            chosen[rule] = {"last": within[-1], "selected": at, "exact": exact_at[at]}
        per_iteration = spent[arm][ITERATIONS] / ITERATIONS
        rows[arm] = {
            "world": world.title, "seed": seed, "arm": arm, "run": run, "flops": round(per_iteration), **chosen
        }  # fmt: skip
    return rows


def _validation(root: Path, run: str) -> dict[int, float]:
    """Validation accuracy by iteration."""
    with closing(Lens(Store(root), runs=[run])) as lens:
        points = lens.query("select iteration, accuracy from benchmark_scores where phase = 'validate' order by all")
    return {int(row["iteration"]): float(row["accuracy"]) for row in points}


def _exact(root: Path, run: str, iteration: int, world: World) -> float:
    folder = find_model(root, f"{run}@{iteration}").folder
    assert folder is not None, (run, iteration)
    pairs = exact.masses_of_pairs(folder, world.topics, world=world_of(world.name))
    return round(exact.mean_accuracy(pairs).accuracy, 6)


def values(rows: Sequence[Row], arm: str, rule: str) -> list[float]:
    """Exact accuracies of an arm, in the order of seeds."""
    return [row[rule]["exact"] for row in rows if row["arm"] == arm]


def gap(rows: Sequence[Row], arm: str, rule: str) -> Difference:
    """Influence minus an arm; the intervals of a column hold together at 95% (Bonferroni)."""
    rivals = len({row["arm"] for row in rows}) - 1
    return paired(values(rows, OURS, rule), values(rows, arm, rule), level=1 - 0.05 / rivals)


def table(rows: Sequence[Row]) -> list[str]:
    """A world's arms as Markdown."""
    lines = [
        "| paid for | FLOPs an iteration | exact accuracy, 30 iterations | influence minus it | iterations, FLOPs used "
        "| exact accuracy, same FLOPs | influence minus it |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    unit = fmean(row["flops"] for row in rows if row["arm"] == OURS)
    for arm in ARMS:
        own = [row for row in rows if row["arm"] == arm]
        if not own:
            continue
        cells = [ARMS[arm], f"{fmean(row['flops'] for row in own) / unit:.2f}"]
        for rule in ("iterations", "compute"):
            if rule == "compute":
                last = fmean(row[rule]["last"] for row in own)
                cells.append(f"{last:.1f}, {fmean(_share(row, rows) for row in own):.2f}")
            exacts = values(own, arm, rule)
            cells.append(f"{fmean(exacts):.3f} ± {stdev(exacts):.3f}")
            cells.append("" if arm == OURS else gap(rows, arm, rule).shown())
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _share(row: Row, rows: Sequence[Row]) -> float:
    """Share of the budget that a run used up to its last checkpoint within it, by its mean cost of an iteration."""
    (ours,) = (each for each in rows if each["arm"] == OURS and each["seed"] == row["seed"])
    return float(row["compute"]["last"] * row["flops"] / (ITERATIONS * ours["flops"]))


def hypotheses(world: World, rows: Sequence[Row]) -> str:
    """What the sweep file expects at equal compute, and what came of it; and what an update without an aim does."""
    places = verdicts(rows, "compute")
    sentences = []
    for name, expected, arms in world.hypotheses:
        other = [arm for arm in arms if arm not in places[expected]]
        held = "none is settled" if expected == "level" else "held"
        result = f"not shown for {', '.join(f'`{arm}`' for arm in other)}" if other else held
        sentences.append(f"{name} ({EXPECTED[expected]} {', '.join(f'`{arm}`' for arm in arms)}): {result}.")
    return " ".join([*sentences, *([control(rows)] if values(rows, "random", "iterations") else [])])


EXPECTED = {"ahead": "ahead of", "level": "no difference to", "below": "below"}


def verdicts(rows: Sequence[Row], rule: str) -> dict[str, list[str]]:
    """Rivals by where influence minus them is: ahead, level or below."""
    result: dict[str, list[str]] = {"ahead": [], "level": [], "below": []}
    for arm in (arm for arm in ARMS if arm != OURS and values(rows, arm, rule)):
        difference = gap(rows, arm, rule)
        place = "level" if abs(difference.mean) <= difference.half else "ahead" if difference.mean > 0 else "below"
        result[place].append(arm)
    return result


def summary(rows: Sequence[Row]) -> str:
    """At equal compute, the rivals that influence is ahead of, by world."""
    sentences = [
        "In three worlds of a toy lab, at equal compute, a generator that is paid for influence is compared with rivals."
    ]
    for title, own in by_world(rows).items():
        parts = [
            f"{words} {', '.join(f'`{arm}`' for arm in arms)}"
            for words, arms in zip(WORDS, verdicts(own, "compute").values(), strict=True)
            if arms
        ]
        sentences.append(f"{title}: {'; '.join(parts)}.")
    return " ".join(sentences)


WORDS = ("it is ahead of", "no difference is settled to", "it is below")


def control(rows: Sequence[Row]) -> str:
    """What an update without an aim does: a random reward minus a fixed generator, at equal iterations."""
    difference = paired(values(rows, "random", "iterations"), values(rows, "fixed-generator", "iterations"))
    return f"A random reward minus a fixed generator, 30 iterations: {difference.shown()} (95%)."


def by_world(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of the worlds of which at least two seeds are kept."""
    groups = {world.title: [row for row in rows if row["world"] == world.title] for world in WORLDS}
    return {title: own for title, own in groups.items() if len({row["seed"] for row in own}) > 1}


def page(rows: Sequence[Row]) -> str:
    """The page as Markdown."""
    groups = by_world(rows)
    lines = ["# Curricula at equal compute", "", summary(rows), "", *METHOD]
    for world in WORLDS:
        if own := groups.get(world.title):
            seeds = len({row["seed"] for row in own})
            lines += [
                "",
                f"## {world.title}",
                "",
                f"`configs/sweep/{world.sweep}.yaml`, {seeds} seeds.",
                "",
                *table(own),
                "",
                hypotheses(world, own),
            ]
    scores = score_table.section(score_table.read_kept())
    return "\n".join([*lines, *([""] if scores else []), *scores, ""])


METHOD = (
    "The arms differ in what the generator is paid for. `influence` is the paper's score, `raw-influence` the cosine of the plain "
    "gradients. `measured-influence` takes a real optimizer step on each question with a copy of the solver and measures the objective "
    "on the dev answers before and after. It is a relative of SOAR's reward, which trains several steps on a set of questions; here it is "
    "one step on one question, because an advantage within a document's group needs a reward per question. `uncertainty` is R-Zero's "
    "reward without its penalty for repetition, the `difficulty` of [the claims](claims.md), `random` a random number per question, and "
    "`fixed-generator` is never updated. None of these three sees the dev set. `bm25` does, and takes no gradient; `dev-only` has no "
    "generator, and trains the solver on the dev set.",
    "",
    "Compute is counted in FLOPs of the model for sampling and for every pass of a trainer, scoring included (`tests/bench/compute.py`). "
    "Not counted: validation, of which a longer run has more; optimizer arithmetic and the preconditioner; reloading of weights, once per "
    "question for `measured-influence`. A sampled token counts as one forward pass, although on an accelerator it takes longer: the paper's "
    "iterations take 2.6 (4B) and 2.9 times (8B) as long as a fixed generator's, and for large batches real steps cost far more than here. "
    "*Same FLOPs*: the checkpoint with the best validation accuracy among those, every five iterations, that cost at most "
    "what `influence` spends in 30 iterations on the same seed. Rivals therefore lose up to four iterations to this grid: the column "
    "shows the mean last iteration, and the share of the FLOPs that it used, estimated from the first 30. *30 iterations*: the "
    "best among the first 30. Accuracy still rises at the end, so the order holds for this horizon. Exact accuracy is the probability of "
    "sound replies over all operand pairs of the test split, mean and standard deviation over seeds; the anchor has 0.415 in the headline "
    "world, and a run that never validates better keeps it. Five of the ten fixed generators do, and none of those of [the claims](claims.md), where they answer 0.507 on other seeds. Differences are paired by seed, with t intervals that hold for all rivals of a column together at 95% "
    "(Bonferroni). Rates were chosen for influence, for no rival, on seeds that occur nowhere here. The sweep files state hypotheses and stopping rule, written before the runs; those of the controls after influence's runs were read, which they share.",
    "",
    "All of it is the nano lab: a toy world with room for improvement. `make curricula` runs the sweeps and writes this page from "
    "`tests/bench/curricula.json`; runs that the store has are measured again, and an interrupted pass continues where it stopped.",
)


def main() -> None:
    """Measure where a store is named, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the finished runs of INFUSER_STORE first")
    if parser.parse_args().measure:
        text = json.dumps(collect(settings.store_root()), separators=(",", ":")).replace('},{"world"', '},\n{"world"')
        KEPT.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(read_kept()), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
