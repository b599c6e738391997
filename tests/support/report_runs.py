"""A store with three small runs of two variants, made of rows alone: what reports of several runs are tested on."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from infuser_core.config.overlays import load
from infuser_core.schemas import (
    BenchmarkScore,
    Document,
    GeneratorScore,
    InfluenceScore,
    Question,
    QuestionLabel,
    QuestionScore,
    Rollout,
    Selection,
    Source,
)
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import Recipe
from infuser_core.store.runs import ATTEMPT, create_run, write_record
from infuser_core.store.store import Outcome, Store, Table

CONFIGS = Path(__file__).parent.parent.parent / "configs"
QUESTIONS, SAMPLES, ITERATIONS = 24, 4, 3
BENCHMARKS = {"gpqa_diamond": "Physics", "math500": "Algebra", "medqa": "Anatomy", "humaneval_plus": "Code"}
RUNS = {"plain-1": ("", 1), "plain-2": ("", 2), "fixed-1": ("fixed", 1)}
HOSTILE = "</script><script>alert(1)</script> $x_1$ & <b>`"


def row(kind: type, **values: Any) -> Any:
    """A row with empty values for all that is not told."""
    empty = {str: "", int: 0, float: 0.0, bool: False}
    rest = {
        field.name: empty.get(field.type, [])  # type: ignore[call-overload]
        for field in fields(kind)
        if field.name not in values
    }
    return kind(**rest, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Writes one run."""

    store: Store
    """Store."""
    journal: Journal
    """The run's journal."""
    run: str
    """Name."""

    def commit(self, phase: str, iteration: int, tables: dict[str, list[Any]], *, of: str = "", **inputs: str) -> str:
        """One artifact; returns its id. A table of no rows is left out."""
        config = {"run": self.run, "of": of}
        recipe = Recipe(phase=phase, version=1, config=config, seed=0, iteration=iteration, inputs=inputs)
        written = {name: Table(row_type=type(rows[0]), rows=rows) for name, rows in tables.items() if rows}
        with self.store.exclusive(recipe), self.store.workspace(recipe) as workspace:
            outcome = Outcome(tables=written, summary=summary_of(tables))
            ref = self.store.commit(recipe, workspace, outcome, seconds=1.5)
        self.journal.append(phase=phase, iteration=iteration, state="ran", seconds=1.5, key=ref.key, digest=ref.digest)
        return str(ref.id)


SUMMARISED = {
    "benchmark_scores": ("benchmark", "accuracy", "low", "high"),
    "selections": ("selected_iteration", "accuracy"),
}


def summary_of(tables: dict[str, list[Any]]) -> dict[str, Any]:
    """What the phases tell in a commit record."""
    found = [(tables[name][0], names) for name, names in SUMMARISED.items() if name in tables]
    told = {field: getattr(each, field) for each, names in found for field in names}
    if tables.get("scores"):
        told["mean_score"] = sum(each.score for each in tables["scores"]) / len(tables["scores"])
    texts = tables.get("rollouts", [])
    if texts and texts[0].role == "generator":
        told |= {"written": len(texts), "valid": sum(not each.malformed_reason for each in texts)}
    elif texts:
        told["accuracy"] = sum(each.reward for each in texts) / len(texts)
    return told


def score(label: str, accuracy: float, tokens: float) -> Any:
    return row(
        BenchmarkScore, benchmark=label, checkpoint_id="c", num_questions=QUESTIONS, num_samples=SAMPLES,
        accuracy=accuracy, low=0.0, high=1.0, answered=1.0, mean_response_tokens=tokens,
    )  # fmt: skip


def examine(maker: Maker, draw: np.random.Generator, *, iteration: int, label: str, chance: float) -> None:
    """The answers to one benchmark, and what they came to."""
    asked = [row(Question, question_id=f"{label}{n}", text=f"{label} question {n}?") for n in range(QUESTIONS)]
    answers = maker.commit("respond", iteration, {"asked_questions": asked}, of=label)
    right = draw.binomial(SAMPLES, chance, QUESTIONS)
    rows = [
        row(QuestionScore, benchmark=label, question_id=f"{label}{n}", domain=BENCHMARKS[label], num_samples=SAMPLES,
            num_correct=int(right[n]))
        for n in range(QUESTIONS)
    ]  # fmt: skip
    scores = [score(label, float(right.mean()) / SAMPLES, 20.0 + iteration)]
    tables = {"benchmark_scores": scores, "question_scores": rows}
    maker.commit("evaluate", iteration, tables, of=label, responses=answers)


def train(maker: Maker, draw: np.random.Generator, *, iteration: int, scored: bool) -> None:
    """Questions, their answers, their scores and the generator's advantages of one iteration."""
    ids = [f"q{iteration}-{n}" for n in range(8)]
    generated = [
        row(Rollout, rollout_id=f"r{name}", group_id=f"d{2 * iteration + at % 2}", sample_index=at, role="generator",
            token_ids=[1] * 9, text=HOSTILE, malformed_reason="" if at else "truncated_json")
        for at, name in enumerate(ids)
    ]  # fmt: skip
    maker.commit("generate_questions", iteration, {"rollouts": generated}, of="generated")
    questions = [
        row(
            Question,
            question_id=name,
            text=HOSTILE if at < 2 else f"What is {at} + {iteration}?",
            document_id=f"d{2 * iteration + at % 2}",
            subdomain=HOSTILE,
        )
        for at, name in enumerate(ids)
    ]
    maker.commit("generate_questions", iteration, {"questions": questions}, of="questions")
    labels = [
        QuestionLabel(question_id=name, topic="clock" if at % 3 else HOSTILE, key="sound" if at % 2 else "unsound")
        for at, name in enumerate(ids)
    ]
    maker.commit("generate_questions", iteration, {"question_labels": labels}, of="labels")
    answers = [
        row(Rollout, rollout_id=f"a{name}", group_id=name, role="solver", token_ids=[1] * int(draw.integers(5, 20)),
            verdict="correct", reward=1.0)
        for name in ids
    ]  # fmt: skip
    maker.commit("rollout_questions", iteration, {"rollouts": answers}, of="answers")
    if scored:
        scores = [
            row(InfluenceScore, question_id=name, status="scored", score=float(draw.normal(0, 0.1))) for name in ids
        ]
        maker.commit("score_influence", iteration, {"scores": scores})
        rewards = [
            row(GeneratorScore, rollout_id=f"r{name}", document_id=f"d{at % 2}", reward=scores[at].score,
                advantage=float(draw.normal()), trained=True)
            for at, name in enumerate(ids)
        ]  # fmt: skip
        maker.commit("update_generator", iteration, {"generator_scores": rewards})


def make(root: Path, run: str, *, variant: str = "", seed: int = 1, **leaves: Any) -> None:
    """A finished run."""
    nano = load([CONFIGS / "nano.yaml"]).model_dump(mode="json")
    generator = {**nano["cotrain"]["generator"], "update": not variant, "learning_rate": 1e-3}
    cotrain = {**nano["cotrain"], "generator": generator, **leaves}
    create_run(root, run, {**nano, "name": "tiny", "variant": variant, "seed": seed, "cotrain": cotrain})
    maker = Maker(store=Store(root), journal=Journal(root, run), run=run)
    maker.journal.start_attempt()
    draw = np.random.default_rng([seed, len(variant)])
    pool = [row(Document, document_id=f"d{n}", source_id=f"s{n % 2}", domain="Physics", num_tokens=9) for n in range(8)]
    maker.commit("pool", -1, {"documents": pool})
    books = [row(Source, source_id=f"s{n}", title=f"Book {n}", status="admitted") for n in range(2)]
    maker.commit("sources", -1, {"sources": books})
    dev = [row(Question, question_id=f"x{n}", text=f"GPQA_diamond question {n}!") for n in range(6)]
    known = maker.commit("questions", -1, {"reference_questions": dev}, of="dev")
    for iteration in range(ITERATIONS):
        maker.commit("rollout_dev", iteration, {"rollouts": []}, dev=known)
        train(maker, draw, iteration=iteration, scored=not variant)
    for iteration in range(ITERATIONS + 1):
        accuracy = 0.3 + 0.1 * iteration + float(draw.normal(0, 0.02))
        rows = [score("validation", accuracy, 20.0 + 3 * iteration)]
        maker.commit("validate", iteration, {"benchmark_scores": rows}, of="validation")
    for iteration, chance in ((0, 0.3), (ITERATIONS, 0.6)):
        for label in BENCHMARKS:
            examine(maker, draw, iteration=iteration, label=label, chance=chance)
    chosen = Selection(selected_iteration=ITERATIONS, checkpoint_id="c", accuracy=0.6)
    maker.commit("select", -1, {"selections": [chosen]})
    write_record(root, run, ATTEMPT, {"run": run, "seconds": 1.5, "peak_memory_mb": 1.0, "phases": {}})
    maker.journal.append(phase="run", iteration=-1, state="done", seconds=0.0)


def three_runs(root: Path) -> list[str]:
    """The runs of this module's table."""
    for run, (variant, seed) in RUNS.items():
        make(root, run, variant=variant, seed=seed)
    return list(RUNS)


def looked_at(root: Path, run: str, iterations: list[int], agreements: dict[str, float]) -> None:
    """Checks of generated questions as `infuser report quality` leaves them; the first solver is the base."""
    store, base = Store(root), next(iter(agreements.values()))
    solvers = [
        {"iteration": iteration, "solver": name, "questions": 40, "agreement": share}
        | {"agreement_low": share - 0.1, "agreement_high": share + 0.1}
        | dict.fromkeys(("gap", "low", "high"), None if share == base else share - base)
        for iteration in iterations
        for name, share in agreements.items()
    ]
    keys = {entry.key for entry in Journal(root, run).latest() if entry.phase == "generate_questions"}
    sources = {f"questions-{n}": ref.id for n, ref in enumerate(ref for ref in store.refs() if ref.key in keys)}
    recipe = Recipe(phase="quality", version=1, config={}, seed=0, inputs=sources)
    with store.workspace(recipe) as workspace:
        (workspace / "quality.json").write_text(json.dumps({"solvers": solvers}, indent=1))
        store.commit(recipe, workspace, Outcome(tables={}), seconds=0.1)
