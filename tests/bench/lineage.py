"""How long lineage takes on a large store: 10,000 artifacts, 5 million rollout rows, made by the store's own writers.

    .venv/bin/python tests/bench/lineage.py [--runs 14] [--iterations 100] [--questions 400] [--store DIR]

Prints one JSON object. Every figure is that of a fresh process: `command` is the whole of `infuser why`, from the
start of Python to its end, `inside` the same without the start of Python and the imports; both are the median of five.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infuser_core.schemas import (
    BenchmarkScore,
    Document,
    GeneratorScore,
    Gradient,
    InfluenceScore,
    Question,
    Rollout,
    Source,
    Update,
)
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.runs import Journal, create_run
from infuser_core.store.store import Outcome, Store, Table

ROOT = Path(__file__).parent.parent.parent
PER_DOCUMENT = 8
OPTIONS = {"batch_std": "batch_mean_std", "sigma_b": "all", "single_row": "zero"}
STEP = {"minibatch": 32, "advantage": "mean_centred", "options": OPTIONS}


class Writer:
    """Writes one run, artifact by artifact."""

    def __init__(self, store: Store, run: str, documents: int, questions: int) -> None:
        self.store, self.run, self.documents, self.questions = store, run, documents, questions
        create_run(store.root, run, {"name": run})
        self.journal = Journal(store.root, run)
        self.journal.start_attempt()
        self.artifacts = self.rollouts = 0

    def put(
        self,
        phase: str,
        iteration: int,
        inputs: dict[str, ArtifactRef],
        config: dict[str, Any],
        **tables: Sequence[Any],
    ) -> ArtifactRef:
        """Commit and journal one artifact."""
        recipe = Recipe(
            phase=phase,
            version=1,
            config={**config, "run": self.run},
            seed=0,
            iteration=iteration,
            inputs={name: ref.id for name, ref in inputs.items()},
        )
        outcome = Outcome(
            tables={name: Table(row_type=type(rows[0]), rows=rows) for name, rows in tables.items()},
            summary={"step": iteration + 1},
        )
        with self.store.workspace(recipe) as workspace:
            ref = self.store.commit(recipe, workspace, outcome, seconds=1.0)
        rows = sum(len(table) for table in tables.values())
        self.journal.append(
            phase=phase, iteration=iteration, state="ran", seconds=1.0, key=ref.key, digest=ref.digest, rows=rows
        )
        self.artifacts += 1
        self.rollouts += len(tables.get("rollouts", ()))
        return ref

    def write(self, iterations: int) -> None:
        """The corpus, the loop and its validations."""
        pool = self.put(
            "pool", -1, {}, {}, documents=[_document(n) for n in range(self.documents)], sources=[_source()]
        )
        solver = generator = anchor = self.put("anchor", -1, {}, {})
        dev = self.put("questions", -1, {}, {}, reference_questions=[_question("dev", "d", "")])
        self.put("validate", 0, {"solver": anchor}, {}, benchmark_scores=[_score(anchor.id)])
        for t in range(iterations):
            solver, generator = self._iteration(t, dev, pool, solver, generator)
            if (t + 1) % 5 == 0:
                self.put("validate", t + 1, {"solver": solver}, {}, benchmark_scores=[_score(solver.id)])
        self.journal.finish()

    def _iteration(
        self, t: int, dev: ArtifactRef, pool: ArtifactRef, solver: ArtifactRef, generator: ArtifactRef
    ) -> tuple[ArtifactRef, ArtifactRef]:
        names = [f"{t}/doc-{n // PER_DOCUMENT}/{n % PER_DOCUMENT}" for n in range(self.questions)]
        asked = [f"{name}-{n:08x}" for n, name in enumerate(names)]
        tried = self.put(
            "rollout_dev",
            t,
            {"dev": dev, "solver": solver},
            {},
            rollouts=[_rollout("dev", n, "solver") for n in range(8)],
        )
        gradient = self.put("dev_gradient", t, {"rollouts": tried}, {}, gradients=[_GRADIENT])
        written = self.put(
            "generate_questions", t, {"pool": pool, "generator": generator}, {},
            rollouts=[
                _rollout(name.rpartition("/")[0], n % PER_DOCUMENT, "generator", generator.id)
                for n, name in enumerate(names)
            ],
            questions=[_question(q, name.split("/")[1], name) for q, name in zip(asked, names, strict=True)],
        )  # fmt: skip
        answered = self.put(
            "rollout_questions", t, {"questions": written, "solver": solver}, {},
            rollouts=[_rollout(q, n, "solver", solver.id) for q in asked for n in range(8)],
        )  # fmt: skip
        scores = self.put(
            "score_influence", t,
            {"questions": written, "rollouts": answered, "gradient": gradient, "solver": solver}, {},
            scores=[_influence(q) for q in asked],
        )  # fmt: skip
        after = self.put(
            "update_generator", t, {"questions": written, "scores": scores, "generator": generator}, {"step": STEP},
            generator_scores=[_reward(name) for name in names], updates=[_UPDATE] * 4,
        )  # fmt: skip
        trained = self.put(
            "update_solver", t, {"questions": written, "rollouts": answered, "scores": scores, "solver": solver}, STEP,
            updates=[_UPDATE] * 16,
        )  # fmt: skip
        return trained, after


def _document(n: int) -> Document:
    return Document(
        document_id=f"doc-{n}", source_id="book", header_path="1 > 2", start=0, end=9, text="some text",
        num_tokens=2, domain="", prompt_type="mcq",
    )  # fmt: skip


def _source() -> Source:
    return Source(
        source_id="book", title="A book", author="", discipline="", category="textbook", licence="CC0-1.0",
        licence_evidence="", source_url="", download_url="", filename="", description="", sha256="00", num_bytes=1,
        status="admitted", reason="",
    )  # fmt: skip


def _question(name: str, document: str, rollout: str) -> Question:
    return Question(
        question_id=name, text="What?", choices=["a", "b"], answer="A", verifier="choice", domain="", subdomain="",
        document_id=document, rollout_id=rollout, reasoning="",
    )  # fmt: skip


def _rollout(group: str, n: int, role: str, checkpoint: str = "") -> Rollout:
    return Rollout(
        rollout_id=f"{group}/{n}", group_id=group if role == "solver" else group.split("/")[1], sample_index=n,
        role=role, checkpoint_id=checkpoint, prompt_token_ids=[],
        token_ids=[n, 2, 3], sampler_logprobs=[-0.1, -0.2, -0.3],
        text="\\boxed{A}", finish_reason="stop", verdict="correct" if n % 2 else "wrong", reward=float(n % 2),
        malformed_reason="",
    )  # fmt: skip


def _influence(name: str) -> InfluenceScore:
    return InfluenceScore(
        question_id=name, status="scored", score=0.1, cosine=0.1, dot=0.1, raw_cosine=0.1, direction_norm=1.0,
        gradient_norm=1.0, reference_norm=1.0, solver_accuracy=0.5,
    )  # fmt: skip


def _reward(name: str) -> GeneratorScore:
    index = int(name.rpartition("/")[2])
    return GeneratorScore(
        rollout_id=name, document_id=name.split("/")[1], reward=0.1 * index, advantage=0.0, trained=True
    )


def _score(checkpoint: str) -> BenchmarkScore:
    return BenchmarkScore(
        benchmark="validation", checkpoint_id=checkpoint, num_questions=1, num_samples=1, accuracy=0.5, low=0.4,
        high=0.6, answered=1.0, unverified=0, mean_response_tokens=3.0,
    )  # fmt: skip


_GRADIENT = Gradient(norm=1.0, num_groups=1, num_varied=1, accuracy=0.5)
_UPDATE = Update(
    role="solver", step=1, num_groups=32, num_tokens=1, loss=0.0, gradient_norm=1.0, learning_rate=1e-6,
    clip_fraction=0.0, mean_ratio=1.0, mean_tis=1.0, skipped=False,
)  # fmt: skip


def build(root: Path, runs: int, iterations: int, questions: int) -> dict[str, Any]:
    """Write the store; returns what is in it."""
    started, artifacts, rollouts = time.monotonic(), 0, 0
    for number in range(runs):
        writer = Writer(Store(root), f"run-{number:02d}", documents=questions // PER_DOCUMENT + 1, questions=questions)
        writer.write(iterations)
        artifacts, rollouts = artifacts + writer.artifacts, rollouts + writer.rollouts
        print(f"run {number + 1} of {runs}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return {"runs": runs, "artifacts": artifacts, "rollout_rows": rollouts, "written_s": time.monotonic() - started}


_INSIDE = """
import sys, time, json
from pathlib import Path
from infuser_core.store.views import Lens
from infuser_core.lineage.answer import to_text
from infuser_core.lineage.why import why
from infuser_core.store.store import Store
start = time.monotonic()
if sys.argv[2] == "open":
    lens = Lens(Store(Path(sys.argv[1])))
    lens.query("select count(*) from run_artifacts")
else:
    to_text(why(Path(sys.argv[1]), sys.argv[2]))
print(time.monotonic() - start)
"""


def _seconds(arguments: list[str], root: Path, times: int = 5) -> dict[str, float]:
    """Median wall and processor seconds of a fresh process."""
    wall, processor, printed = [], [], []
    for _ in range(times):
        before, started = os.times(), time.monotonic()
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env={**os.environ, "INFUSER_STORE": str(root)}, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        wall.append(time.monotonic() - started)
        after = os.times()
        processor.append(after.children_user + after.children_system - before.children_user - before.children_system)
        printed.append(done.stdout.strip())
    found = {"wall_s": round(statistics.median(wall), 3), "cpu_s": round(statistics.median(processor), 3)}
    if arguments[0] == "-c":
        found["inside_s"] = round(statistics.median(float(text) for text in printed), 3)
    return found


def measure(root: Path, runs: int, iterations: int) -> dict[str, Any]:
    """The figures, the first opening (which writes the index) apart."""
    first = _seconds(["-c", _INSIDE, str(root), "open"], root, times=1)
    name = f"{iterations // 2}/doc-3/1-{25:08x}"
    asked = {
        "question": name,
        "solver rollout": f"{name}/5",
        "generator rollout": f"{iterations // 2}/doc-3/1",
        "document": "doc-3",
        "checkpoint": f"run-{runs - 1:02d}@{iterations}",
    }
    return {
        "first_open": first,
        "open": _seconds(["-c", _INSIDE, str(root), "open"], root),
        "why": {kind: _seconds(["-c", _INSIDE, str(root), name], root) for kind, name in asked.items()},
        "command": {kind: _seconds(["-m", "flows.cli.main", "why", name], root) for kind, name in asked.items()},
        "sql_over_all_rollouts": _seconds(
            ["-m", "flows.cli.main", "sql", "select run, count(*) from rollouts group by run"], root, times=1
        ),
        "sql_of_one_run": _seconds(
            ["-m", "flows.cli.main", "sql", "--run", "run-00", "select count(*) from question_history"], root, times=1
        ),
    }


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=14)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--store", type=Path, default=None)
    given = parser.parse_args()
    root = given.store or Path(tempfile.mkdtemp(prefix="lineage-bench-"))
    facts = build(root, given.runs, given.iterations, given.questions) if not (root / "runs").exists() else {}
    print(json.dumps({**facts, **measure(root, given.runs, given.iterations)}, indent=1))


if __name__ == "__main__":
    main()
