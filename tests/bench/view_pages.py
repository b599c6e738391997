"""Seconds of each page of `infuser view` over a synthetic store of 10,000 artifacts and 5 million rollouts.

`python tests/bench/view_pages.py [FOLDER]` builds the store (minutes; a folder that is there is used again) and prints
a table: the first look at a page and the median of five more. Fails where a page's median takes longer than a second.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fastapi.testclient import TestClient

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

from report_runs import Maker, row, score

from infuser_core.results.view.app import application
from infuser_core.schemas import (
    Document,
    Gradient,
    InfluenceScore,
    Question,
    QuestionScore,
    Rollout,
    Source,
    Update,
)
from infuser_core.store.journal import Journal
from infuser_core.store.runs import ATTEMPT, create_run, write_record
from infuser_core.store.store import Store

RUNS, ITERATIONS = 5, 200
DEV, TEXTS, QUESTIONS, ANSWERS, EXAM = 1000, 512, 448, 8, 96
WORDS = [
    "the",
    "lens",
    "bends",
    "light",
    "towards",
    "its",
    "axis",
    "and",
    "a",
    "wave",
    "of",
    "half",
    "the",
    "length",
    "passes",
    "twice",
    "as",
    "fast",
]
LIMIT = 1.0


def text(draw: random.Random, words: int = 24) -> str:
    return " ".join(draw.choices(WORDS, k=words))


def rollouts(draw: random.Random, count: int, *, groups: list[str], role: str) -> list[Rollout]:
    tokens = [draw.randrange(50_000) for _ in range(64)]
    return [
        row(Rollout, rollout_id=f"{groups[at % len(groups)]}/{at // len(groups)}", group_id=groups[at % len(groups)],
            sample_index=at // len(groups), role=role, token_ids=tokens[: draw.randrange(20, 64)], text=text(draw),
            verdict=draw.choice(["correct", "wrong"]), reward=float(draw.random() < 0.5), finish_reason="stop")
        for at in range(count)
    ]  # fmt: skip


def iterate(maker: Maker, draw: random.Random, number: int, documents: list[str], known: dict[str, str]) -> None:
    """The ten artifacts of an iteration."""
    dev = rollouts(draw, DEV, groups=[f"dev{n}" for n in range(125)], role="solver")
    first = maker.commit("rollout_dev", number, {"rollouts": dev}, **known)
    gradient = maker.commit("dev_gradient", number, {"gradients": [row(Gradient, num_groups=125)]}, rollouts=first)
    read = draw.sample(documents, TEXTS // 16)
    written = rollouts(draw, TEXTS, groups=[f"{number}/{each}" for each in read], role="generator")
    asked = [
        row(Question, question_id=f"{each.rollout_id}-{at:08x}", rollout_id=each.rollout_id, text=text(draw),
            document_id=each.group_id.partition("/")[2], answer=draw.choice("ABCD"), verifier="choice")
        for at, each in enumerate(written[:QUESTIONS])
    ]  # fmt: skip
    tables = {"rollouts": written, "questions": asked}
    source = maker.commit("generate_questions", number, tables, generator=known["solver"])
    answers = rollouts(draw, QUESTIONS * ANSWERS, groups=[each.question_id for each in asked], role="solver")
    answered = maker.commit(
        "rollout_questions", number, {"rollouts": answers}, questions=source, solver=known["solver"]
    )
    scores = [
        row(InfluenceScore, question_id=each.question_id, status="scored", score=draw.gauss(0, 0.1),
            solver_accuracy=draw.random())
        for each in asked
    ]  # fmt: skip
    scored = maker.commit("score_influence", number, {"scores": scores}, gradient=gradient, rollouts=answered)
    for role in ("generator", "solver"):
        steps = [row(Update, role=role, step=number * 4 + n, num_groups=16, loss=draw.random()) for n in range(4)]
        known[role] = maker.commit(f"update_{role}", number, {"updates": steps}, scores=scored, solver=known["solver"])
    exam = [
        row(QuestionScore, benchmark="validation", question_id=f"v{n}", num_samples=4, num_correct=draw.randrange(5))
        for n in range(EXAM)
    ]
    taken = rollouts(draw, EXAM, groups=[f"v{n}" for n in range(EXAM)], role="solver")
    responses = maker.commit("respond", number, {"rollouts": taken}, solver=known["solver"])
    tables = {"benchmark_scores": [score("validation", draw.random(), 20.0)], "question_scores": exam}
    maker.commit("validate", number, tables, responses=responses)
    maker.commit("allocate", number, {"gradients": [row(Gradient, num_groups=1)]}, scores=scored)


def build(root: Path) -> None:
    """The store."""
    for number in range(RUNS):
        draw, name = random.Random(number), f"run-{number}"
        create_run(root, name, {"name": name, "seed": number, "cotrain": {"iterations": ITERATIONS}})
        maker = Maker(store=Store(root), journal=Journal(root, name), run=name)
        maker.journal.start_attempt()
        documents = [f"book{n % 40}-{n:06d}" for n in range(8000)]
        pool = [
            row(
                Document, document_id=each, source_id=each.partition("-")[0], start=at, end=at + 99, text=text(draw, 80)
            )
            for at, each in enumerate(documents)
        ]
        books = [row(Source, source_id=f"book{n}", title=f"Book {n}", status="admitted") for n in range(40)]
        maker.commit("sources", -1, {"sources": books})
        maker.commit("pool", -1, {"documents": pool})
        known = {"solver": maker.commit("anchor", -1, {}), "generator": ""}
        for iteration in range(ITERATIONS):
            iterate(maker, draw, iteration, documents, known)
        write_record(root, name, ATTEMPT, {"run": name, "seconds": 1.5, "peak_memory_mb": 1.0, "phases": {}})
        maker.journal.append(phase="run", iteration=-1, state="done", seconds=0.0)
        print(f"built {name}", file=sys.stderr, flush=True)


def main(root: Path) -> int:
    """Print the table; 1 where a page is slow."""
    if not (root / "artifacts").is_dir():
        build(root)
    begun = time.perf_counter(), time.process_time()
    guest = TestClient(application(root, "token"), base_url="http://127.0.0.1:8000")
    assert guest.get("/?token=token").status_code == 200
    opened = [now - then for now, then in zip((time.perf_counter(), time.process_time()), begun, strict=True)]
    print(f"The first page of a fresh process: {opened[0]:.2f} s, {opened[1]:.2f} s of CPU.\n")
    count = "/sql?statement=select count(*) as n, avg(reward) as mean from rollouts&run=run-1"
    listing = guest.get("/runs/run-1/questions?search=lens").text
    story = listing.split('<a class="line" href="')[1].split('"')[0]
    of_run = ["", "/iterations/100", "/questions", "/questions?sort=influence, highest first&search=wave", "/evaluations",
              "/corpus", "/lineage"]  # fmt: skip
    pages = [
        "/",
        *(f"/runs/run-1{part}" for part in of_run),
        story,
        "/runs/run-1/warnings",
        "/runs/run-1/live?since=199",
        "/compare?run=run-1&run=run-2&run=run-3",
        count,
    ]
    slow = 0
    print("| page | first, s | median, s | CPU, s | kB |\n|---|---|---|---|---|")
    for page in pages:
        seconds, work = [], []
        for _ in range(6):
            begun, used = time.perf_counter(), time.process_time()
            answer = guest.get(page)
            seconds.append(time.perf_counter() - begun)
            work.append(time.process_time() - used)
            assert answer.status_code == 200, (page, answer.text[-500:])
        median = statistics.median(seconds[1:])
        slow += median > LIMIT
        shown = page.split("?")[0] + ("?..." if "?" in page else "")
        print(
            f"| `{shown}` | {seconds[0]:.2f} | {median:.2f} | {statistics.median(work[1:]):.2f} | {len(answer.content) / 1e3:.0f} |",
            flush=True,
        )
    return int(slow > 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
