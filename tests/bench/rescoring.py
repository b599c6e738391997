"""50,000 saved responses scored again under four presets: `make bench-verifiers`.

Half of them answer multiple choice, half competition integers. Prints one line of Markdown, and ends with 1 when the
time or the memory is above its bound.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from infuser_core.evaluation.plan import AskedQuestion, ExamPlan, Sheet
from infuser_core.evaluation.record import EvaluationRecord
from infuser_core.schemas import BenchmarkResponse, Question
from infuser_core.store.tables import save_rows

ROOT = Path(__file__).resolve().parents[2]
SECONDS, MEGABYTES = 60, 1000
WORDS = ["the", "value", "\\frac{1}{2}", "so", "we", "$x^2$", "have", "{a}", "energy", "because", "\n", "therefore"]
ENDS = ["\\boxed{B}", "\\boxed{A} or \\boxed{(C)}", "", "The answer is D.", "\\boxed{042}", "\\boxed{B. because}"]


def question(kind: str, number: int) -> Question:
    empty = dict.fromkeys(("domain", "subdomain", "document_id", "rollout_id", "reasoning"), "")
    choices, answer = (["w", "x", "y", "z"], "B") if kind == "choice" else ([], "42")
    return Question(
        question_id=f"{kind}-{number}", text="?", choices=choices, answer=answer, verifier=kind, grading="", **empty
    )


def fill(path: Path, responses: int, words: int) -> float:
    """A folder of saved answers; returns their size in MB."""
    counts = {"choice": (responses // 2, 1), "integer": (responses // 64, 32)}
    sheets = [
        Sheet(
            label=kind,
            name=kind,
            title=kind,
            category="general",
            samples=samples,
            max_tokens=8192,
            num_available=number,
            expected=None,
        )
        for kind, (number, samples) in counts.items()
    ]
    questions = {kind: [question(kind, n) for n in range(number)] for kind, (number, _) in counts.items()}
    plan, draw, size = ExamPlan(sheets=sheets, questions=questions), random.Random(0), 0
    rows: list[BenchmarkResponse] = []
    for ask in plan.asks():
        for index in range(ask.samples):
            length = int(draw.lognormvariate(0, 0.6) * words)
            text = " ".join([*draw.choices(WORDS, k=length), draw.choice(ENDS)])
            size += len(text)
            rows.append(
                BenchmarkResponse(
                    benchmark=ask.benchmark,
                    question_id=ask.question.question_id,
                    sample_index=index,
                    response=text,
                    finish_reason="stop",
                    prompt_tokens=100,
                    response_tokens=length,
                )
            )
    EvaluationRecord(model="none", identity={"model": "none"}, sheets=sheets).write(path)
    save_rows(path / "questions.parquet", plan.question_rows(), AskedQuestion)
    save_rows(path / "responses.parquet", rows, BenchmarkResponse)
    return size / 1e6


def main() -> None:
    """Make the answers, score them in a process of its own, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=50_000)
    parser.add_argument("--words", type=int, default=600, help="median length of a response")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        size = fill(Path(place) / "exam", options.responses, options.words)
        command = [sys.executable, "-m", "flows.cli.main", "eval", "rescore", str(Path(place) / "exam"), "--json"]
        started = time.monotonic()
        environment = {**os.environ, "INFUSER_STORE": str(Path(place) / "store")}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - started
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"rescoring: {options.responses:,} responses ({size:.0f} MB of text), 4 presets, one process: "
        f"{seconds:.1f} s (< {SECONDS}), peak memory {megabytes:.0f} MB (< {MEGABYTES})"
    )
    sys.exit(0 if seconds < SECONDS and megabytes < MEGABYTES else 1)


if __name__ == "__main__":
    main()
