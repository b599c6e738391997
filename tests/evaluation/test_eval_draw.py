"""A limit takes the same questions every time, and every domain keeps its share."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.evaluation.draw import draw, quotas
from infuser_core.nano import world

QUESTIONS = [
    replace(question, domain="xyz"[number % 7 % 3])
    for number, question in enumerate(world.questions("test", world.TARGET, 60, 0))
]


@given(sizes=st.dictionaries(st.text(max_size=3), st.integers(1, 500), min_size=1), share=st.floats(0, 1))
def test_quotas_add_up_and_stay_within_one_of_their_share(sizes: dict[str, int], share: float):
    total = int(share * sum(sizes.values()))
    counts = quotas(sizes, total)
    assert sum(counts.values()) == total
    for name, size in sizes.items():
        assert 0 <= counts[name] <= size
        assert abs(counts[name] - size * total / sum(sizes.values())) < 1


@given(limit=st.integers(1, 59), seed=st.integers(0, 5))
def test_a_draw_is_stratified_ordered_and_repeatable(limit: int, seed: int):
    drawn = draw(QUESTIONS, limit, seed=seed, label="a")
    assert len(drawn) == limit
    assert [q for q in QUESTIONS if q in drawn] == drawn
    wanted = quotas(Counter(q.domain for q in QUESTIONS), limit)
    assert Counter(q.domain for q in drawn) == Counter({name: n for name, n in wanted.items() if n})
    again = draw(list(reversed(QUESTIONS)), limit, seed=seed, label="a")
    assert {q.question_id for q in again} == {q.question_id for q in drawn}


def test_another_seed_or_label_draws_others():
    ten = draw(QUESTIONS, 10, seed=1, label="a")
    assert draw(QUESTIONS, 10, seed=2, label="a") != ten != draw(QUESTIONS, 10, seed=1, label="b")


def test_no_limit_or_a_larger_one_takes_everything():
    assert draw(QUESTIONS, None, seed=1, label="a") == draw(QUESTIONS, 60, seed=1, label="a") == QUESTIONS
    assert draw(QUESTIONS, 1000, seed=1, label="a") == QUESTIONS
