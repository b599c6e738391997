"""What a run draws its questions from, whatever made the pool."""

from functools import lru_cache

from infuser_core.schemas import Document, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store

TRAINING = "training_pool"
"""Phase of a pool that has more than documents of a corpus."""
TABLE = "pool_rows"
"""All rows of such a pool; its `documents` are those that no other artifact has."""


@lru_cache(maxsize=1)
def documents_of(store: Store, pool: ArtifactRef) -> list[Document]:
    """The rows of a pool, which every iteration asks for."""
    return store.rows(pool, TABLE if pool.kind == TRAINING else "documents", Document)


def carried(store: Store, pool: ArtifactRef) -> list[Question]:
    """The problems that rows of the pool carry, with the rows' ids."""
    return store.rows(pool, "problems", Question) if pool.kind == TRAINING else []
