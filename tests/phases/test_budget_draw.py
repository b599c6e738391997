"""A batch shared among arms: counts are kept, nothing comes twice, and without a budget the draw is what it was."""

import hashlib
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_phases_documents import pool_of

from infuser_core.cotrain.phases.allocate import Budget, Portion, draw_batch, fixed_budget
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document


def shelf(*sizes: int) -> list[Document]:
    """Arms a, b, ... of these sizes, mixed."""
    arms = [letter for letter, size in zip("abcdef", sizes, strict=False) for _ in range(size)]
    return sorted(
        (replace(document, domain=arm) for document, arm in zip(pool_of(len(arms)), arms, strict=True)),
        key=lambda document: hashlib.sha256(document.document_id.encode()).digest(),
    )


def test_without_a_budget_the_draw_is_what_it_was():
    drawn = hashlib.sha256()
    for size in (1, 5, 12, 30):
        for count in (1, 4, 40):
            for iteration in range(12):
                for exclude in ((), ("d0", "d3")):
                    batch = draw_batch(pool_of(size), count, seed=7, iteration=iteration, exclude=exclude)
                    drawn.update(" ".join(document.document_id for document in batch).encode() + b"\n")
    assert drawn.hexdigest()[:16] == "da5d5b9c3247a53f"


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(SIZES, st.data(), st.integers(0, 9))
def test_every_arm_gives_its_count_and_no_document_comes_twice(sizes: list[int], data: st.DataObject, iteration: int):
    pool = shelf(*sizes)
    portions = {
        arm: Portion(share=0.5, count=data.draw(st.integers(0, size)), start=data.draw(st.integers(0, 40)))
        for arm, size in zip("abcdef", sizes, strict=False)
    }
    budget = Budget(by="domain", portions=portions)
    batch = draw_batch(pool, 99, seed=1, iteration=iteration, budget=budget)
    assert batch == draw_batch(pool, 99, seed=1, iteration=iteration, budget=budget)
    assert len({document.document_id for document in batch}) == len(batch)
    counts = Counter(document.domain for document in batch)
    assert {arm: counts[arm] for arm in portions} == {arm: portion.count for arm, portion in portions.items()}


@given(SIZES, st.data())
def test_exclusions_are_respected_and_others_take_the_place(sizes: list[int], data: st.DataObject):
    pool = shelf(*sizes)
    exclude = data.draw(st.sets(st.sampled_from([document.document_id for document in pool])))
    portions = {
        arm: Portion(share=1.0, count=data.draw(st.integers(0, size)), start=0)
        for arm, size in zip("abcdef", sizes, strict=False)
    }
    batch = draw_batch(pool, 99, seed=1, iteration=0, exclude=exclude, budget=Budget(by="domain", portions=portions))
    drawn = [document.document_id for document in batch]
    assert not exclude & {*drawn}
    assert len({*drawn}) == len(drawn) == min(sum(p.count for p in portions.values()), len(pool) - len(exclude))


def test_an_arm_goes_through_passes_of_its_own():
    pool, weights = shelf(6, 40), {"a": 1.0, "b": 1.0}
    seen = []
    for iteration in range(12):
        budget = fixed_budget(pool, 4, weights, by="domain", seed=3, iteration=iteration)
        batch = draw_batch(pool, 4, seed=3, iteration=iteration, budget=budget)
        seen += [document.document_id for document in batch if document.domain == "a"]
    assert len(seen) == 24, "half of 12 batches of 4"
    assert set(Counter(seen).values()) == {4}, "four whole passes over 6 documents"


def test_fractions_of_a_document_come_with_time():
    pool = shelf(50, 50)
    budgets = [fixed_budget(pool, 4, {"a": 0.95, "b": 0.05}, by="domain", seed=0, iteration=n) for n in range(200)]
    counts = [budget.portions["b"].count for budget in budgets]
    assert {*counts} == {0, 1}
    assert sum(counts) == pytest.approx(200 * 4 * 0.05, abs=12)
    assert [budget.portions["b"].start for budget in budgets] == [sum(counts[:n]) for n in range(200)]


@pytest.mark.parametrize(
    ("weights", "said"),
    [({"a": 1.0}, "domain 'b' has no weight"), ({"a": 1.0, "b": 0.0, "c": 1.0}, "domain 'c' is not in the pool")],
)
def test_shares_must_name_the_arms_of_the_pool(weights: dict[str, float], said: str):
    with pytest.raises(DocumentError, match=said):
        fixed_budget(shelf(3, 3), 4, weights, by="domain", seed=0, iteration=0)
