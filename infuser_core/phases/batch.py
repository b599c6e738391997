"""The documents of one iteration: B of the pool, in seeded passes."""

import random
from collections.abc import Collection, Sequence

from infuser_core.schemas import Document
from infuser_core.seeding import seed_of


def draw_documents(
    pool: Sequence[Document], count: int, *, seed: int, iteration: int, exclude: Collection[str] = ()
) -> list[Document]:
    """The iteration's batch: passes over the pool in seeded order, never the same document twice in one batch.

    The next documents of the order take the place of excluded ones, so that batches without them stay as they were.
    """
    count = min(count, len(pool))
    batch: list[Document] = []
    orders: dict[int, list[int]] = {}
    position = iteration * count
    left = sum(document.document_id not in exclude for document in pool)
    while len(batch) < min(count, left):
        number, place = divmod(position, len(pool))
        if number not in orders:
            orders[number] = list(range(len(pool)))
            random.Random(seed_of(seed, "documents", number)).shuffle(orders[number])
        document = pool[orders[number][place]]
        if document not in batch and document.document_id not in exclude:
            batch.append(document)
        position += 1
    return batch
