"""Leaving documents out changes the batches that would have had them, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.phases.allocate import draw_documents
from infuser_core.schemas import Document

sizes = st.integers(1, 12)


def pool_of(size: int) -> list[Document]:
    return [
        Document(
            document_id=f"d{n}", source_id="s", header_path="", start=0, end=1, text="x", num_tokens=1, domain="",
            prompt_type="mcq",
        )
        for n in range(size)
    ]  # fmt: skip


@given(size=sizes, count=sizes, iteration=st.integers(0, 9), seed=st.integers(0, 3), data=st.data())
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
