"""Which documents an iteration draws: by pass and seed, and by the shares of a budget."""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from everything_stored import base_of, changed, recipes, walked
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.config.overlays import merge, validate
from infuser_core.cotrain.phases.allocate import Budget, Portion, draw_batch, draw_documents, fixed_budget
from infuser_core.errors import ConfigError, DocumentError
from infuser_core.planning.preflight import preflight
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


# The documents of an iteration: none twice in a batch, none forgotten, the next ones in place of excluded ones


def pool_of(size: int) -> list[Document]:
    return [
        Document(
            document_id=f"d{number}", source_id="s", header_path="", start=0, end=1, text="t", num_tokens=1, domain="",
            prompt_type="mcq",
        )
        for number in range(size)
    ]  # fmt: skip


GROUP_SIZES, COUNTS, SEEDS = st.integers(1, 30), st.integers(1, 40), st.integers(0, 5)


@given(GROUP_SIZES, COUNTS, SEEDS, st.integers(0, 50))
def test_a_batch_never_holds_a_document_twice(size: int, count: int, seed: int, iteration: int):
    batch = draw_documents(pool_of(size), count, seed=seed, iteration=iteration)
    assert len(batch) == len({document.document_id for document in batch}) == min(size, count)


@given(GROUP_SIZES, COUNTS, SEEDS)
def test_a_pass_over_the_pool_meets_every_document(size: int, count: int, seed: int):
    iterations = -(-size // count)
    drawn = [
        document.document_id
        for iteration in range(iterations)
        for document in draw_documents(pool_of(size), count, seed=seed, iteration=iteration)
    ]
    assert set(drawn) == {document.document_id for document in pool_of(size)}


@given(GROUP_SIZES, COUNTS, SEEDS)
def test_documents_are_drawn_equally_often(size: int, count: int, seed: int):
    passes = 6
    iterations = passes * size // min(size, count)
    drawn = Counter(
        document.document_id
        for iteration in range(iterations)
        for document in draw_documents(pool_of(size), count, seed=seed, iteration=iteration)
    )
    # Where a batch spans two passes, what both would give is replaced by the next in order.
    assert max(drawn.values()) - min(drawn.values()) <= passes


@given(GROUP_SIZES, COUNTS, SEEDS, st.integers(0, 20))
def test_the_draw_is_a_function_of_seed_and_iteration(size: int, count: int, seed: int, iteration: int):
    draw = draw_documents(pool_of(size), count, seed=seed, iteration=iteration)
    assert draw_documents(pool_of(size), count, seed=seed, iteration=iteration) == draw


def test_seeds_and_passes_have_orders_of_their_own():
    pool = pool_of(30)
    orders = [draw_documents(pool, 30, seed=seed, iteration=iteration) for seed in (0, 1) for iteration in (0, 1)]
    assert len({tuple(document.document_id for document in order) for order in orders}) == 4


def test_an_empty_pool_gives_no_documents():
    assert draw_documents([], 4, seed=0, iteration=0) == []


@given(
    size=st.integers(1, 12),
    count=st.integers(1, 12),
    iteration=st.integers(0, 9),
    seed=st.integers(0, 3),
    data=st.data(),
)
def test_batches_without_excluded_documents_stay_and_the_others_are_refilled(size, count, iteration, seed, data):
    pool = pool_of(size)
    exclude = data.draw(st.sets(st.sampled_from([document.document_id for document in pool])))
    whole = draw_documents(pool, count, seed=seed, iteration=iteration)
    batch = draw_documents(pool, count, seed=seed, iteration=iteration, exclude=exclude)
    assert not {document.document_id for document in batch} & exclude
    assert len(batch) == min(count, size, size - len(exclude)) == len({document.document_id for document in batch})
    kept = [document for document in whole if document.document_id not in exclude]
    assert batch[: len(kept)] == kept
    if len(kept) == len(whole):
        assert batch == whole


# What a budget's settings may be, and which stages they change


def base(world: Path, budget: dict[str, Any], **cotrain: Any) -> dict[str, Any]:
    return merge(base_of(world), {"cotrain": {"budget": budget, **cotrain}})


@pytest.mark.parametrize(
    ("budget", "cotrain", "said"),
    [
        ({"shares": {"a": 1.0}}, {}, "budget.mode is uniform"),
        ({"mode": "shares"}, {}, "needs budget.shares"),
        ({"mode": "shares", "shares": {"a": -1.0, "b": 2.0}}, {}, "negative"),
        ({"mode": "bandit", "shares": {"a": 1.0}}, {}, "leave the bandit something"),
        ({"mode": "bandit"}, {"frozen_batch": True}, "frozen_batch false"),
        ({"mode": "bandit"}, {"generator": {"update": False}}, "generator.update true"),
    ],
)
def test_impossible_budgets_are_refused(world: Path, budget: dict[str, Any], cotrain: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        validate(base(world, budget, **cotrain))


def test_a_bandit_without_influence_is_refused_before_the_run(world: Path):
    with pytest.raises(ConfigError, match="learnability measures no influence"):
        preflight(validate(base(world, {"mode": "bandit"}, reward={"name": "learnability"})))


@pytest.mark.parametrize("leaf", [{"exploration": 1.5}, {"floor": 0.1}, {"by": "source_id"}, {"shares": {"": 0.5}}])
def test_the_bandits_settings_change_its_stage_alone(world: Path, leaf: dict[str, Any]):
    one, other = (recipes(validate(base(world, {"mode": "bandit", **each})), world, fixed=True) for each in ({}, leaf))
    assert changed(one, other) == ["allocate"]


def test_a_longer_window_changes_the_iterations_that_look_further_back(world: Path):
    def inputs(window: int) -> list[set[str]]:
        store = walked(validate(base(world, {"mode": "bandit", "window": window})), world, fixed=False, iterations=3)
        return [set(recipe.inputs) for recipe in store.recipes if recipe.phase == "allocate"]

    short, long = inputs(1), inputs(5)
    assert short[:2] == long[:2]
    assert long[2] - short[2] == {"allocation2", "questions2", "scores2"}
