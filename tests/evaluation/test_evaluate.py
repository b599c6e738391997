"""Asking and scoring: batches, the judge, resuming, an endpoint."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher import Launcher
from test_endpoint_replies import SECRET, refused, said, server

from infuser_core.config.run import SamplingSettings
from infuser_core.engines.endpoint import KEY
from infuser_core.engines.fake import ScriptedChat, ScriptedSampler
from infuser_core.evaluation.evaluate import (
    MAX_RESPONSES,
    TOO_LONG,
    UNASKED,
    Ask,
    Key,
    RespondSettings,
    grade,
    render_messages,
    respond,
    seeds_of,
    split_batches,
)
from infuser_core.nano import world
from infuser_core.schemas import BenchmarkResponse, Question
from infuser_core.seeding import seed_of
from infuser_core.store.tables import read_rows

QUESTIONS = world.draw_questions("test", world.TARGET, 24, 0)
SETTINGS = RespondSettings(
    prompts="nano",
    sampling=SamplingSettings(temperature=0.7, top_p=0.8, top_k=20),
    prompt_tokens=4096,
    seed=7,
    batch_tokens=600,
)


def ask(number: int, *, benchmark: str = "a", samples: int = 2, max_tokens: int = 16) -> Ask:
    return Ask(benchmark=benchmark, question=QUESTIONS[number], samples=samples, max_tokens=max_tokens)


ASKS = [ask(number, benchmark="ab"[number % 3 == 0]) for number in range(24)]


def answer(prompt: str, seed: int) -> str:
    return f"\\boxed{{{'ABCD'[(seed + len(prompt)) % 4]}}} {seed}"


def asked(asks, finished=(), settings=SETTINGS, progress=None) -> list[list[BenchmarkResponse]]:
    extra = {} if progress is None else {"progress": progress}
    return list(respond(asks, set(finished), ScriptedSampler(reply=answer), settings, **extra))


shapes = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 40), st.sampled_from([16, 64])), min_size=1, max_size=24
)


@given(shapes=shapes, budget=st.integers(1, 4000), limit=st.integers(1, 300))
def test_every_question_that_fits_stands_in_one_batch_within_the_budget(shapes, budget: int, limit: int):
    asks = [ask(n, samples=samples, max_tokens=most) for n, (_, samples, most) in enumerate(shapes)]
    lengths = [length for length, _, _ in shapes]
    settings = replace(SETTINGS, batch_tokens=budget, prompt_tokens=limit)
    made = list(split_batches(asks, lengths, settings))
    fitting = [place for place, length in enumerate(lengths) if length <= limit]
    assert sorted(place for batch in made for place in batch) == fitting
    for batch in made:
        assert len({asks[place].max_tokens for place in batch}) == 1
        need = sum(lengths[place] + asks[place].samples * asks[place].max_tokens for place in batch)
        responses = sum(asks[place].samples for place in batch)
        assert len(batch) == 1 or (need <= budget and responses <= MAX_RESPONSES)


def test_a_batch_holds_questions_of_several_benchmarks():
    made = asked(ASKS)
    assert len(made) > 2
    assert any(len({row.benchmark for row in rows}) == 2 for rows in made)
    for rows in made:
        assert {(row.benchmark, row.question_id): 0 for row in rows}.keys() <= {ask.key for ask in ASKS}
    assert sum(map(len, made)) == 48


@given(finished=st.sets(st.sampled_from([ask.key for ask in ASKS])))
def test_what_is_finished_is_not_asked_and_changes_no_other_answer(finished):
    whole = {(row.benchmark, row.question_id, row.sample_index): row for rows in asked(ASKS) for row in rows}
    rest = {(row.benchmark, row.question_id, row.sample_index): row for rows in asked(ASKS, finished) for row in rows}
    assert rest == {key: row for key, row in whole.items() if key[:2] not in finished}


def test_untouched_batches_come_again_as_they_were():
    whole = asked(ASKS)
    first = {(row.benchmark, row.question_id) for row in whole[0]}
    assert asked(ASKS, first) == whole[1:]


def test_a_question_that_does_not_fit_is_not_asked_and_stays_in_the_denominator():
    lengths = [len(ScriptedSampler().tokenizer.render(render_messages(a.question, prompts="nano"))) for a in ASKS]
    limit = sorted(lengths)[12]
    rows = [row for some in asked(ASKS, settings=replace(SETTINGS, prompt_tokens=limit)) for row in some]
    too_long = {a.key for a, length in zip(ASKS, lengths, strict=True) if length > limit}
    assert too_long
    assert {(row.benchmark, row.question_id) for row in rows if row.finish_reason == TOO_LONG} == too_long
    assert len(rows) == 48 and all(row.response == "" for row in rows if row.finish_reason == TOO_LONG)


def test_seeds_are_those_of_a_run_and_depend_on_names_alone():
    assert seeds_of(ASKS[0], 7) == [seed_of(7, "evaluate/b", QUESTIONS[0].question_id, index) for index in range(2)]
    more = seeds_of(replace(ASKS[0], samples=5), 7)
    assert more[:2] == seeds_of(ASKS[0], 7) and len(set(more)) == 5
    assert set(seeds_of(ASKS[0], 7)).isdisjoint(seeds_of(replace(ASKS[0], benchmark="a"), 7))


def test_progress_counts_every_response_once():
    seen: list[tuple[int, int, int]] = []
    finished = [ASKS[0].key]
    asked(ASKS, finished, progress=lambda *facts: seen.append(facts))
    dones = [done for done, _, _ in seen]
    assert dones == sorted(dones) and dones[-1] == 46
    assert {total for _, total, _ in seen} == {46}
    assert [tokens for _, _, tokens in seen] == sorted(tokens for _, _, tokens in seen)


# A judge breaks ties of fallible rules, and what it decided is marked as its own


EMPTY = dict.fromkeys(("domain", "subdomain", "document_id", "rollout_id", "reasoning"), "")


def question(name: str, answer: str, verifier: str) -> Question:
    return Question(question_id=name, text=f"about {name}", choices=[], answer=answer, verifier=verifier, **EMPTY)


JUDGED = {
    ("b", name): question(name, answer, verifier)
    for name, answer, verifier in (
        ("exact value", "1/2", "math"),
        ("words", "the set of all even integers", "math"),
        ("letter", "B", "choice"),
        ("unasked", "5", "math"),
    )
}
TEXTS = {
    "exact value": "\\boxed{1/3}",
    "words": "\\boxed{\\text{all even integers}}",
    "letter": "\\boxed{C}",
    "unasked": "",
}
ROWS = [
    BenchmarkResponse(
        benchmark="b",
        question_id=name,
        sample_index=0,
        response=text,
        finish_reason=TOO_LONG if name == "unasked" else "stop",
        prompt_tokens=1,
        response_tokens=1,
    )
    for name, text in TEXTS.items()
]


def judged(reply: str) -> dict[str, tuple[str, str, str]]:
    judge = ScriptedChat(reply=lambda messages: reply)
    rows = grade(ROWS, JUDGED, preset="paper", judge=judge)
    return {row.question_id: (row.verdict, row.decided_by, row.reason) for row in rows}


def test_only_what_a_rule_may_have_got_wrong_is_shown_to_the_judge():
    asked: list[str] = []

    def reply(messages):
        asked.append(messages[-1]["content"])
        return "1"

    plain = {row.question_id: row for row in grade(ROWS, JUDGED, preset="paper")}
    rows = {row.question_id: row for row in grade(ROWS, JUDGED, preset="paper", judge=ScriptedChat(reply=reply))}
    assert len(asked) == 1 and "about words" in asked[0]
    assert rows["words"].verdict == "correct" and rows["words"].decided_by == "judge"
    assert rows["words"].reason == f"judge, where the rule said {plain['words'].verdict}: {plain['words'].reason}"
    assert {name: rows[name] for name in TEXTS if name != "words"} == {
        name: plain[name] for name in TEXTS if name != "words"
    }
    assert {row.decided_by for row in plain.values()} == {"verifier"}


def test_a_reply_that_is_no_digit_changes_nothing():
    assert (
        judged("I think they agree")
        == judged("")
        == {row.question_id: (row.verdict, row.decided_by, row.reason) for row in grade(ROWS, JUDGED, preset="paper")}
    )


def test_a_question_that_did_not_fit_has_no_answer():
    verdict, decided_by, reason = judged("1")["unasked"]
    assert (verdict, decided_by, reason) == ("no_answer", "verifier", UNASKED.reason)


# Killed at any moment, an evaluation asks no finished question again and ends in the same bytes


ARGUMENTS = ["eval", "--model", "nano", "--benchmarks", "nano_target,nano_transfer", "--limit", "12"]


# Small batches: a dozen pieces or so.
ARGUMENTS += ["--samples", "2", "--batch-tokens", "250"]


KILLS = ["respond:before_piece:2", "respond:after_piece:3", "respond:after_piece:1"]


def files(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {"results.json", "responses.parquet", "verdicts/paper.parquet"} <= set(found)
    return found


def kept(store: Path) -> list[set[Key]]:
    """Questions of every piece that waits for its stage to end, and of every stage that has ended."""
    files = [*store.glob(".partial/respond-*/piece-*.parquet"), *store.glob("artifacts/respond/*/responses.parquet")]
    return [{(row.benchmark, row.question_id) for row in read_rows(path, BenchmarkResponse)} for path in files]


@pytest.mark.slow
def test_a_killed_evaluation_repeats_no_finished_question_and_gives_the_same_tables(launch: Launcher, tmp_path: Path):
    whole, broken, store = tmp_path / "whole", tmp_path / "broken", tmp_path / "store"
    undisturbed = launch(*ARGUMENTS, "--out", str(whole), store=tmp_path / "other")
    assert undisturbed.code == 0, undisturbed.err

    saved = 0
    for kill in KILLS:
        killed = launch(*ARGUMENTS, "--out", str(broken), store=store, INFUSER_CRASH_AT=kill)
        assert killed.code == -signal.SIGKILL, killed
        pieces = kept(store)
        assert sum(map(len, pieces)) == len(set().union(*pieces)) >= saved, "a question stands in one piece alone"
        saved = sum(map(len, pieces))
    assert 0 < saved < 24 and not broken.exists()

    resumed = launch(*ARGUMENTS, "--out", str(broken), store=store)
    assert resumed.code == 0, resumed.err
    assert files(broken) == files(whole) and [len(keys) for keys in kept(store)] == [12, 12]
    assert resumed.out.replace(str(broken), "") == undisturbed.out.replace(str(whole), "")


@pytest.mark.slow
def test_a_finished_evaluation_asks_nothing_and_needs_no_model(launch: Launcher, tmp_path: Path):
    out, store = tmp_path / "out", tmp_path / "store"
    first = launch(*ARGUMENTS, "--out", str(out), store=store)
    made = files(out)
    again = launch(*ARGUMENTS, "--out", str(out), store=store)
    assert first.code == again.code == 0, again.err
    assert first.out == again.out and files(out) == made
    (journal,) = store.glob("evaluations/*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    states = [[line["state"] for line in lines if line["attempt"] == attempt] for attempt in (1, 2)]
    assert states == [["ran"] * 4 + ["done"], ["cached"] * 4 + ["done"]]


@pytest.mark.slow
def test_one_more_benchmark_asks_only_its_own_questions(launch: Launcher, tmp_path: Path):
    for names in ("nano_target", "nano_transfer,nano_target"):
        ended = launch("eval", "--model", "nano", "--benchmarks", names, "--limit", "4", store=tmp_path)
        assert ended.code == 0, ended.err
    assert len(list(tmp_path.glob("evaluations/*"))) == len(list(tmp_path.glob("artifacts/respond/*"))) == 2


# `infuser eval` of a model behind an address: resumed after it broke down, scored, compared, and silent on the key


EXAM = world.draw_questions("test", world.TARGET, 6, 0)


@pytest.fixture
def exam(tmp_path: Path) -> Path:
    rows = [
        {"question_id": q.question_id, "question_text": q.text, "choices": q.choices, "ground_truth": q.answer}
        for q in EXAM
    ]
    (tmp_path / "exam.json").write_text(json.dumps(rows))
    return tmp_path / "exam.json"


def test_an_examination_goes_on_where_the_server_left_it(launch: Launcher, exam: Path, tmp_path: Path):
    broken = [True]
    asked: list[str] = []

    def script(body, times):
        text = body["messages"][-1]["content"]
        place = next(number for number, q in enumerate(EXAM) if q.text in text)
        if broken[0] and place == 4:
            return refused(400, f"refused, {SECRET}")
        asked.append(f"{place}/{body['seed']}")
        return said(f"\\boxed{{{QUESTIONS[place].answer}}}" if place < 3 else "no idea", finish="stop")

    with server(script) as (url, _):
        command = ["eval", "--model", f"openai:tiny@{url}", "--benchmarks", f"exam={exam}", "--samples", "2"]
        command += ["--concurrency", "1", "--out", str(tmp_path / "out")]
        hidden = {KEY: SECRET, "NO_PROXY": "127.0.0.1"}
        stopped = launch(*command, store=tmp_path / "store", **hidden)
        assert stopped.code == 3
        first, second = stopped.err.splitlines()
        assert first.startswith("infuser: tiny@") and "HTTP 400: refused, ***" in first and second.startswith("  hint")
        broken[0] = False
        ended = launch(*command, "--json", store=tmp_path / "store", **hidden)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert sorted(asked) == sorted(set(asked)) and len(asked) == 12, "no reply was asked for twice"
    found = json.loads(ended.out)
    assert found["benchmarks"]["exam"]["accuracy"] == 0.5 and found["benchmarks"]["exam"]["answered"] == 0.5
    assert found["benchmarks"]["exam"]["mean_response_tokens"] == pytest.approx((3 * 9 + 3 * 7) / 6, abs=0.01)
    everything = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert SECRET.encode() not in everything
    assert SECRET not in stopped.err + stopped.out + ended.out
