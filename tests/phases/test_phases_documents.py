"""The documents of an iteration: none twice in a batch, none forgotten, the next ones in place of excluded ones."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.cotrain.phases.allocate import draw_documents
from infuser_core.schemas import Document


def pool_of(size: int) -> list[Document]:
    return [
        Document(
            document_id=f"d{number}", source_id="s", header_path="", start=0, end=1, text="t", num_tokens=1, domain="",
            prompt_type="mcq",
        )
        for number in range(size)
    ]  # fmt: skip


SIZES, COUNTS, SEEDS = st.integers(1, 30), st.integers(1, 40), st.integers(0, 5)


@given(SIZES, COUNTS, SEEDS, st.integers(0, 50))
def test_a_batch_never_holds_a_document_twice(size: int, count: int, seed: int, iteration: int):
    batch = draw_documents(pool_of(size), count, seed=seed, iteration=iteration)
    assert len(batch) == len({document.document_id for document in batch}) == min(size, count)


@given(SIZES, COUNTS, SEEDS)
def test_a_pass_over_the_pool_meets_every_document(size: int, count: int, seed: int):
    iterations = -(-size // count)
    drawn = [
        document.document_id
        for iteration in range(iterations)
        for document in draw_documents(pool_of(size), count, seed=seed, iteration=iteration)
    ]
    assert set(drawn) == {document.document_id for document in pool_of(size)}


@given(SIZES, COUNTS, SEEDS)
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


@given(SIZES, COUNTS, SEEDS, st.integers(0, 20))
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
