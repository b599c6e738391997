"""Scores side by side: what ranks, selects and adds up, in three worlds. `make score-table` makes runs and studies.

The sweep files hold hypotheses and stopping rule. `--measure` takes the studies of the store's finished runs, a run at a
time on each core, and keeps their numbers in `score_table.json`; the page of curricula shows them.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from paired import Difference, paired

from infuser_core import settings
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.studies.candidates import PAPER
from infuser_core.cotrain.studies.selection import BEFORE, RANDOM, WORST
from infuser_core.planning.sweeps import read_sweep
from infuser_core.store.journal import Journal

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEPT = HERE / "score_table.json"
SWEEPS = ("nano-scores", "nano-scores-worlds")
WORLDS = {
    "": "The headline world",
    "narrow": "A dev set of two of six topics, measured on the two that it has",
    "composed": "A target of two steps",
}
"""Titles by variant."""
STUDIES = {
    "prediction, no moments": ("prediction", "--iteration", "0"),
    "prediction": ("prediction", "--iteration", "3"),
    "sums": ("lds", "--iteration", "3"),
    "selection": ("selection", "--iteration", "3"),
    "without": ("selection", "--iteration", "3", "--leave-out"),
}
GRADIENT = "a gradient per question"
ORACLE = "label_oracle"
SCORES = {
    PAPER: ("the paper's", GRADIENT),
    "raw_cosine": ("raw cosine", GRADIENT),
    "gradalign": ("GradAlign", GRADIENT),
    "bergson": ("bergson's", GRADIENT),
    "dot": ("dot product", GRADIENT),
    "learnalign_dev": ("LearnAlign, dev gradient", GRADIENT),
    "learnalign": ("LearnAlign", GRADIENT),
    "cropi": ("CROPI", GRADIENT),
    "cropi_old": ("CROPI, old answers", "a gradient per question, no answers"),
    "ippo": ("I-PPO", "a gradient per answer"),
    "pass_rate": ("p(1-p)", "answers"),
    "difficulty": ("1-p", "answers"),
    "short": ("short answers", "answers"),
    "embedding": ("embedding", "a forward pass over the text"),
    "bm25": ("BM25", "the text"),
    "random_order": ("random order", "nothing"),
    ORACLE: ("topic and key known", "an oracle"),
}
"""Titles of scores and what they need besides the dev set."""
Row = dict[str, Any]


def read_kept() -> list[Row]:
    """What is kept."""
    rows: list[Row] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
    return rows


def collect(root: Path) -> None:
    """Take the studies of the finished runs and keep them, in the order of the sweep files; kept ones are not repeated."""
    rows = {row["run"]: row for row in read_kept()}
    configs = [config for sweep in SWEEPS for config in read_sweep(ROOT / "configs" / "sweep" / f"{sweep}.yaml")]
    names = [config.run_name() for config in configs]
    new = [
        config
        for config, name in zip(configs, names, strict=True)
        if name not in rows and Journal(root, name).is_finished()
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for row in pool.map(_studies, new):
            rows[row["run"]] = row
            text = json.dumps([rows[name] for name in names if name in rows], separators=(",", ":"))
            KEPT.write_text(text.replace('},{"world"', '},\n{"world"') + "\n", encoding="utf-8")


def _studies(config: RunConfig) -> Row:
    """All studies of a run: by study, values by score or arm."""
    run = config.run_name()
    values = {title: _values(json.loads(_study(*words, run))) for title, words in STUDIES.items()}
    print(run, flush=True)
    return {"world": WORLDS[config.variant], "seed": config.seed, "run": run, **values}


def _study(kind: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "flows.cli.main", "study", kind, *arguments, "--json"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def _values(study: Row) -> dict[str, float]:
    if "arms" in study:
        return {row["arm"]: round(row["accuracy"], 6) for row in study["arms"]}
    rows = [row for row in study["correlations"] if row["target"] == "held_out"]
    return {row["predictor"]: round(row["spearman"], 6) for row in rows}


def _lost(row: Row, name: str) -> float:
    """What training without a score's best questions loses against training without random ones."""
    return float(row["without"][RANDOM] - row["without"][name])


COLUMNS: dict[str, Callable[[Row, str], float]] = {
    "rho with a step's effect, no moments": lambda row, name: row["prediction, no moments"][name],
    "rho with a step's effect": lambda row, name: row["prediction"][name],
    "rho of sums": lambda row, name: row["sums"][name],
    "accuracy of the best quarter": lambda row, name: row["selection"][name],
    "lost without it": _lost,
}
"""Columns of the table; in all of them more is better."""
COLUMN_NAMES = tuple(COLUMNS)


NO_GRADIENT = tuple(name for name, (_, needs) in SCORES.items() if "gradient" not in needs and needs != "an oracle")
HYPOTHESES = (
    ("H1", "each other score", COLUMN_NAMES[:1], tuple(name for name in SCORES if name not in (PAPER, ORACLE))),
    ("H2", "each score without a gradient", COLUMN_NAMES[1:2], NO_GRADIENT),
    ("H3", "each score without a gradient", COLUMN_NAMES[3:], NO_GRADIENT),
)
"""Name in the sweep file, what the paper's score is expected to be ahead of, in which columns, and these scores."""


def gap(rows: Sequence[Row], column: str, name: str, rivals: int) -> Difference:
    """The paper's score minus another; the intervals of a column's rivals hold together at 95% (Bonferroni)."""
    ours, own = ([COLUMNS[column](row, each) for row in rows] for each in (PAPER, name))
    return paired(ours, own, level=1 - 0.05 / rivals)


def hypotheses(rows: Sequence[Row], rivals: int) -> str:
    """What the sweep file expects, and what came of it."""
    sentences = []
    for title, whom, columns, names in HYPOTHESES:
        missed = [
            f"`{name}` in {column}"
            for column in columns
            for name in names
            if (difference := gap(rows, column, name, rivals)).mean <= difference.half
        ]
        result = f"not shown for {', '.join(missed)}" if missed else "held"
        sentences.append(f"{title} (ahead of {whom} in {' and '.join(columns)}): {result}.")
    return " ".join(sentences)


def table(rows: Sequence[Row]) -> list[str]:
    """A world's scores as Markdown: the mean, and the paper's minus it with its interval."""
    names = [name for name in SCORES if all(name in row["prediction"] for row in rows)]
    lines = [f"| score | needs | {' | '.join(COLUMNS)} |", f"| :--- | :--- |{' ---: |' * len(COLUMNS)}"]
    for name in names:
        cells = [*SCORES[name]]
        for column, of in COLUMNS.items():
            one = gap(rows, column, name, len(names) - 1)
            difference = (
                "" if name == PAPER else f"; {one.mean:+.3f} [{one.mean - one.half:+.3f}, {one.mean + one.half:+.3f}]"
            )
            cells.append(f"{fmean(of(row, name) for row in rows):.3f}{difference}")
        lines.append("| " + " | ".join(cells) + " |")
    plain = {name: fmean(row["selection"][name] for row in rows) for name in (RANDOM, WORST, BEFORE)}
    lines += [
        "",
        hypotheses(rows, len(names) - 1),
        "",
        f"Accuracy after the same steps on random quarters {plain[RANDOM]:.3f}, on the paper's worst {plain[WORST]:.3f}, before any "
        f"step {plain[BEFORE]:.3f}.",
    ]
    return lines


def section(rows: Sequence[Row]) -> list[str]:
    """The page's section on scores."""
    groups = {title: [row for row in rows if row["world"] == title] for title in WORLDS.values()}
    lines = [*METHOD]
    for title, own in groups.items():
        if len(own) > 1:
            lines += ["", f"### {title}", "", f"{len(own)} seeds.", "", *table(own)]
    return lines if len(lines) > len(METHOD) else []


METHOD = (
    "## Scores that rank questions",
    "",
    "The same questions rated by every score, without a generator's update in between: nano runs of four iterations with 24 "
    "documents (`configs/sweep/nano-scores.yaml`, `configs/sweep/nano-scores-worlds.yaml`, hypotheses written first). *Rho with a step's "
    "effect*: Spearman's rank correlation with the exact change of the held-out accuracy after one real step on fresh answers; without "
    "moments at iteration 0, else at iteration 3. *Rho of sums*: of random quarters' summed scores with the accuracy after ten steps "
    "(linear datamodelling score). *Lost without it*: accuracy after ten steps on all questions except random quarters, minus that "
    "without the score's best quarter. After each mean the paper's minus it, paired by seed, with t intervals that hold for all "
    "scores of a column together at 95% (Bonferroni). Every score needs the dev set, except LearnAlign, random order and those of "
    "answers alone. `make score-table` makes the runs and studies.",
)


def main() -> None:
    """Measure where asked, then print the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measure", action="store_true", help="take the studies of INFUSER_STORE's finished runs first"
    )
    if parser.parse_args().measure:
        collect(settings.store_root())
    print("\n".join(section(read_kept())))


if __name__ == "__main__":
    main()
