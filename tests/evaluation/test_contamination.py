"""The contamination probe: what it counts, its controls, and that it separates a model that has seen the questions."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher import Launcher, SmallRun
from objectives import objective
from stock_engines import local_trainer

from infuser_core.config.run import BenchmarkSettings
from infuser_core.engines.fake import ScriptedSampler
from infuser_core.engines.hf.renderer import Renderer
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.errors import UsageError
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark, find_draw
from infuser_core.evaluation.benchmarks.parts.validation import draw_stratified
from infuser_core.evaluation.contamination import (
    PLAIN,
    SHARES,
    Pair,
    continue_texts,
    count_matching,
    probe_texts,
    summarise,
    text_of,
    vary,
)
from infuser_core.nano import world
from infuser_core.nano.lab import anchor_path
from infuser_core.plugins import BENCHMARKS
from infuser_core.protocols import TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint, Continuation, Question
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.tables import read_rows

SEEN = 24
"""Questions that the overfitted model has seen."""
QUESTION = Question(
    question_id="q", text="What is 120 + 12?", choices=["132", "120", "1"], answer="A", verifier="choice",
    domain="", subdomain="",
)  # fmt: skip


@given(rest=st.lists(st.integers(0, 3), min_size=1), continuation=st.lists(st.integers(0, 3)))
def test_what_matches_is_the_longest_common_beginning(rest: list[int], continuation: list[int]):
    matched = count_matching(rest, continuation)
    assert rest[:matched] == continuation[:matched]
    assert matched in (len(rest), len(continuation)) or rest[matched] != continuation[matched]


@given(seed=st.integers(0, 99), text=st.text(alphabet="0123456789 ab", max_size=30))
def test_a_variant_keeps_equal_numbers_equal_and_round_ones_round(seed: int, text: str):
    plain = replace(QUESTION, text=text, choices=[])
    other = vary(plain, seed=seed)
    assert vary(plain, seed=seed) == other
    pairs = set(zip(text, other, strict=True))
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
    assert all((old == new) == (old not in "123456789") for old, new in pairs)


def test_the_choices_of_a_variant_have_another_order():
    words = replace(QUESTION, text="Which colour?", choices=["red", "green", "blue"])
    variants = {vary(words, seed=seed) for seed in range(20)}
    assert variants == {
        "Which colour?\nA) green\nB) blue\nC) red", "Which colour?\nA) blue\nB) red\nC) green"
    }  # fmt: skip


def test_completed_and_equal_tokens_are_counted_by_the_formula():
    """The scripted model knows one question by heart, and half of the rest of another."""
    known, half = "user: abcdefghij\nassistant: ", "user: klmnopqrst\nassistant: "

    def reply(prompt: str, seed: int) -> str:
        if prompt == known[: len(prompt)]:
            return known[len(prompt) :]
        rest = half[len(prompt) :] if prompt == half[: len(prompt)] else ""
        return rest[: len(rest) // 2] + "!" * len(rest)

    pairs = [
        Pair(question_id="1", text="abcdefghij", control="0123456789"),
        Pair(question_id="2", text="klmnopqrst", control="9876543210"),
    ]
    rows = continue_texts(pairs, ScriptedSampler(reply=reply), prompt_tokens=100)
    assert len(rows) == 2 * 2 * len(SHARES)
    for row in rows:
        side = {("1", False): known, ("2", False): half}.get((row.question_id, row.is_control), "")
        assert side in ("", row.beginning + row.rest)
        assert len(row.beginning) == round(row.share * len(row.beginning + row.rest))
        assert row.matched == {known: row.rest_tokens, half: row.rest_tokens // 2}.get(side, 0)
        assert row.completed == (side == known)
    for share in summarise(rows):
        assert (share["questions"], share["completed"], share["control"], share["difference"]) == (2, 0.5, 0.0, 0.5)
        assert share["low"] <= 0.5 <= share["high"]
        assert 0.7 < share["match"] <= 0.75 and share["control_match"] == 0.0


def test_pairs_beyond_the_prompt_limit_are_left_out_together():
    pairs = [Pair(question_id="1", text="short", control="much longer than that")]
    with pytest.raises(UsageError, match="none of 1 pairs"):
        continue_texts(pairs, ScriptedSampler(), prompt_tokens=30)


@pytest.mark.parametrize("name", [name for name in BENCHMARKS.names() if find_draw(BenchmarkSettings(name=name))])
def test_a_generated_benchmark_draws_its_control_afresh_with_the_same_topics(name: str):
    settings = BenchmarkSettings(name=name)
    draw = find_draw(settings)
    questions = find_benchmark(name)(settings)
    assert draw is not None and draw(0) == questions
    other = {each.question_id: each for each in draw(5)}
    assert all(other[each.question_id].subdomain == each.subdomain for each in questions)
    texts = probe_texts(questions, settings, file=None, seed=1)
    known = {text_of(each) for each in questions}
    assert len(texts.pairs) > 0.9 * len(questions) and known.isdisjoint(pair.control for pair in texts.pairs)


def test_questions_without_a_control_are_refused_and_a_file_is_one(tmp_path: Path):
    settings = BenchmarkSettings(name="released", label="words")
    questions = [replace(QUESTION, question_id=name, text=f"Why {name}?", choices=[]) for name in "ab"]
    with pytest.raises(UsageError, match="words: none of 2 questions has a control"):
        probe_texts(questions, settings, file=None, seed=1)
    file = tmp_path / "fresh.jsonl"
    file.write_text(json.dumps({"question_text": "Why c?", "ground_truth": "1"}))
    texts = probe_texts(questions, settings, file=file, seed=1)
    assert [(pair.question_id, pair.control) for pair in texts.pairs] == [("a", "Why c?")]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The basic anchor after training on the texts that `--limit` takes from the benchmark."""
    prepared, trained = (tmp_path_factory.mktemp(name) for name in ("prepared", "trained"))
    prepare_anchor(anchor_path("basic"), prepared, optimizer={"name": "adamw"})
    trainer = local_trainer(threads=1)
    trainer.load(Checkpoint(checkpoint_id="basic", role="solver", path=str(prepared), step=0))
    renderer = Renderer(prepared)
    scope = {"seed": 42, "scope": ("limit", "nano_target"), "by": lambda question: question.domain}
    groups = []
    for question in draw_stratified(world.draw_questions("test", world.TARGET, 400, 0), SEEN, **scope):
        tokens = renderer.render([{"role": "user", "content": text_of(question)}], PLAIN)
        row = TrainRow(token_ids=tokens[1:], advantage=1.0, sampler_logprobs=[0.0] * (len(tokens) - 1))
        groups.append(TrainGroup(group_id=question.question_id, prompt_token_ids=tokens[:1], rows=[row]))
    loss = objective(length_norm=16.0, temperature=1.0, tis_cap=None)
    for _ in range(100):
        trainer.zero_grad()
        trainer.forward_backward(groups, loss, denominator=len(groups))
        trainer.optim_step(2e-3)
    trainer.save(trained)
    return trained


def test_the_probe_separates_a_model_that_has_seen_the_questions(launch: Launcher, seen: Path, tmp_path: Path):
    store, options = tmp_path / "store", ("--benchmarks", "nano_target", "--limit", str(SEEN))

    def probe(model: str) -> dict:
        ended = launch("eval", "probe", "--model", model, *options, "--json", store=store)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)["benchmarks"]["nano_target"]

    knows, fresh = probe(str(seen)), probe("nano-basic")
    assert knows["control"] == "fresh draws"
    for known, unknown in zip(knows["shares"], fresh["shares"], strict=True):
        assert (known["questions"], unknown["questions"]) == (SEEN, SEEN)
        assert known["completed"] > 0.9 and known["control"] < 0.4 and known["low"] > 0.5
        assert unknown["low"] <= 0 <= unknown["high"] and unknown["completed"] < 0.1
    assert "it has seen" in knows["said"] and "no sign" in fresh["said"]

    committed = store / "artifacts" / "contamination" / knows["artifact"] / MANIFEST
    state = committed.stat()
    assert probe(str(seen)) == knows and committed.stat() == state
    rows = read_rows(committed.parent / "continuations.parquet", Continuation)
    assert len(rows) == SEEN * 2 * len(SHARES)

    ended = launch("eval", "--model", str(seen), *options, "--prompts", "nano", "--max-tokens", "32", store=store)
    assert f"note: {knows['said']}" in ended.out and fresh["said"] not in ended.out


def test_a_report_shows_the_probe_of_the_runs_anchor(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = Path(shutil.copytree(small_run.root, tmp_path / "store"))
    ended = launch("eval", "probe", "--model", "small@0", "--benchmarks", "exam", "--json", store=store)
    said = json.loads(ended.out)["benchmarks"]["exam"]["said"]
    assert launch("report", "small", "--html", str(tmp_path / "page.html"), store=store).code == 0
    assert said.replace("'", "&#39;") in (tmp_path / "page.html").read_text()
    ended = launch("eval", "--model", "small@selected", "--benchmarks", "exam", store=store)
    assert f"note: {said}" in ended.out


def test_a_model_at_an_address_and_one_control_for_two_benchmarks_are_refused(launch: Launcher, tmp_path: Path):
    ended = launch("eval", "probe", "--model", "openai:m@http://127.0.0.1:9/v1", store=tmp_path)
    assert ended.code == 2 and "an address has no tokens" in ended.err
    options = ("--benchmarks", "nano_target,nano_transfer", "--control", "fresh.jsonl")
    ended = launch("eval", "probe", "--model", "nano-basic", *options, store=tmp_path)
    assert ended.code == 2 and "one file for 2 benchmarks" in ended.err
