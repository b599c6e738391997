"""Batches run across benchmarks, hold every question once, and are the same whatever was finished before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.config.run import SamplingSettings
from infuser_core.engines.fake import ScriptedSampler
from infuser_core.evaluation.evaluate import (
    MAX_RESPONSES,
    TOO_LONG,
    Ask,
    RespondSettings,
    render_messages,
    respond,
    seeds_of,
    split_batches,
)
from infuser_core.nano import world
from infuser_core.schemas import BenchmarkResponse
from infuser_core.seeding import seed_of

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
