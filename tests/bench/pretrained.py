"""Does the quarter that the score selects teach a pretrained model more? Facts from a public collection, several seeds.

Written before any of these runs; of this study one seed was known, with a pool twice as large and other draws.

SmolLM2-135M-Instruct with adapters. Target: native languages of persons. Each seed draws other questions (8 dev, 16
held-out, a pool of 16 of the target and 16 of three other relations), adapters and answers. An arm takes three steps
on a quarter of the questions whose answers differ in reward. Rates and prompts are those of the known seed: not tuned.
Measure: exact probability of the right reply, mean over the held-out questions; the paper's minus the other arm,
paired by seed, 95% t intervals.
H1: ahead of the mean of two random quarters. H2: ahead of p(1-p). Both: the interval is above 0.
H3: BM25, which knows the topic from the text alone, is not settled. H4: nor is the raw cosine, as AdamW has no moments.
H5: ahead of random also on held-out questions whose answer is not French. French is most people's language in the
collection; without H5, steps may teach no more than the most frequent answer.
Stopping rule: seeds 1 to 5, once; with fewer, no verdict. (At first it was an hour from the start, in which a crowded
machine completed no arm.) `make pretrained` runs them, an interrupted one continues, and `pretrained.json` keeps the numbers.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import fmean
from typing import Any

import relations
from paired import paired

from flows.scoring import open_study
from infuser_core import settings
from infuser_core.cotrain.phases import update_solver
from infuser_core.cotrain.rewards import variance
from infuser_core.cotrain.studies import selection
from infuser_core.cotrain.studies.candidates import PAPER, NamedScore, questions_with_direction
from infuser_core.cotrain.studies.scores.bm25 import bm25
from infuser_core.cotrain.studies.selection import BEFORE, RANDOM, WORST
from infuser_core.schemas import InfluenceScore, Question, Rollout
from infuser_core.store.pieces import Pieces
from tasks.studies import scores
from tasks.studies.scores import ScoredIteration

KEPT = Path(__file__).parent / "pretrained.json"
SMOLLM2 = Path(__file__).parents[2] / "configs" / "smollm2"
SETTINGS = [SMOLLM2.with_suffix(".yaml"), SMOLLM2 / "facts.yaml"]
SEEDS = range(1, 6)
DEV, HELD_OUT = 8, 16
ARMS = {
    PAPER: "the paper's score",
    "raw_cosine": "raw cosine",
    "pass_rate": "p(1-p)",
    "bm25": "BM25",
    RANDOM: "random quarters, mean of two",
    WORST: "the paper's, reversed",
    BEFORE: "before any step",
}
Row = dict[str, Any]


def ratings(study: ScoredIteration) -> list[NamedScore]:
    """Every arm's rating of the questions whose answers differ in reward, from what the ranking has stored."""
    texts = {row.question_id: row.text for row in study.rows("questions", "questions", Question)}
    dev = [row.text for row in study.rows("dev", "reference_questions", Question)]
    rows = questions_with_direction(study.rows("scores", "scores", InfluenceScore))
    pool = [texts[row.question_id] for row in rows]
    result = []
    for row in rows:
        name = row.question_id
        values = {
            PAPER: row.cosine,
            "raw_cosine": row.raw_cosine,
            "pass_rate": variance.reward(row),
            "bm25": bm25(texts[name], dev, pool),
        }
        result += [NamedScore(question_id=name, name=arm, value=value, cell="") for arm, value in values.items()]
    return result


def measure(clone: Path, seed: int) -> Row:
    """One seed: for each arm its questions of the target, and exact accuracy on all held-out questions and on others than French."""
    start, parts = time.process_time(), relations.draw(clone, str(seed))
    held_out = parts["held_out"][:HELD_OUT]
    arguments: dict[str, Any] = {
        "model": "models/smollm2", "questions": parts["pool"][::2], "dev": parts["dev"][:DEV], "samples": 8, "seed": seed,
        "max_tokens": None, "adapter": "lora", "configs": SETTINGS, "columns": {},
    }  # fmt: skip
    folder = settings.store_root() / f"arms-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    with open_study(held_out, reply="\\boxed{{answer}}", **arguments) as study:
        saved, rated = Pieces(folder, selection.Reached), ratings(study)
        step = update_solver.settings_of(study.run.config, iteration=0).step
        arms = selection.run_arms(
            rated,
            study.rows("rollouts", "rollouts", Rollout),
            study.trainer,
            study.checkpoint,
            scores.exact_measure(study, scores.right_replies(study)),
            selection.SelectionSettings(step=step, share=0.25, steps=3, draws=2, samples=0, ranked=True),
            seed=seed,
            saved_rows=saved,
            progress=lambda done, total, _: print(f"seed {seed}: arm {done} of {total}", flush=True),
        )
        values = {tuple(row.questions): row.values_Q for row in saved.rows()}
    other = [place for place, row in enumerate(held_out) if row["ground_truth"] != "French"]
    return {
        "seed": seed,
        "scored": sum(row.name == PAPER for row in rated),
        "target": sum(row.name == PAPER and "native" in row.question_id for row in rated),
        "other": len(other),
        "arms": [
            {
                "arm": row.arm,
                "target": sum("native" in name for name in row.questions),
                "questions": len(row.questions),
                "all": round(row.accuracy, 5),
                "other": round(fmean(values[tuple(row.questions)][place] for place in other), 5),
            }
            for row in arms
        ],
        "minutes": round((time.process_time() - start) / 60, 1),
        "gigabytes": round(getrusage(RUSAGE_SELF).ru_maxrss / 1e6, 1),
    }


def reached(row: Row, arm: str, part: str) -> float:
    """Mean over an arm's draws in one seed."""
    return fmean(each[part] for each in row["arms"] if each["arm"] == arm)


def table(rows: Sequence[Row]) -> list[str]:
    """Arms as Markdown: means over seeds, and the paper's minus each, paired by seed with 95% t intervals."""
    lines = ["| arm | of the target | accuracy | the paper's minus it | not French | the paper's minus it |"]
    lines.append("|---|---|---|---|---|---|")
    for arm, title in ARMS.items():
        cells = [title, f"{fmean(reached(row, arm, 'target') for row in rows):.1f}"]
        for part in ("all", "other"):
            own = [reached(row, arm, part) for row in rows]
            gap = "" if arm == PAPER else paired([reached(row, PAPER, part) for row in rows], own).shown()
            cells += [f"{fmean(own):.3f}", gap]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure where asked, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measure", type=Path, metavar="CLONE", help="run the seeds first, with a clone of the collection"
    )
    options = parser.parse_args()
    rows: list[Row] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
    for seed in SEEDS if options.measure else ():
        if seed not in {row["seed"] for row in rows}:
            rows.append(measure(options.measure, seed))
            KEPT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if len(rows) > 1:
        print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
