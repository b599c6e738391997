"""Synthetic English-like text for the audit benchmark: chunks of a pool, and shards of conversations on disk."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infuser_core.schemas import Document
from infuser_core.store.tables import write_rows

VOCABULARY = 20_000
CHUNK_CHARS = 5_000
AT_ONCE = 2_000
"""Records made and written together; what is in memory does not grow with the shard."""
PLANTED_EVERY = 1_000
"""One record in so many quotes a chunk of the pool whole."""
QUESTION_CHARS = 400
"""Length of the user's turn; the rest is the assistant's."""


class Prose:
    """Words drawn as in English: few of them are frequent, and those are short."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self._words = [self._word(rank) for rank in range(VOCABULARY)]
        weights = np.cumsum(1 / np.arange(10, VOCABULARY + 10))
        self._weights = weights / weights[-1]

    def _word(self, rank: int) -> str:
        size = max(1, int(self._draw.normal(3 + rank / 4000, 2)))
        return "".join(self._draw.choice(list("abcdefghijklmnoprstuvw"), size))

    def texts(self, chars: np.ndarray) -> Iterator[str]:
        """One text of each length, to within a word."""
        counts = chars // 6 + 1
        ends = np.concatenate([[0], np.cumsum(counts)])
        chosen = np.searchsorted(self._weights, self._draw.random(int(ends[-1]), dtype=np.float32))
        numbers = np.minimum(chosen, VOCABULARY - 1).tolist()
        words = self._words
        for (begin, end), size in zip(pairwise(ends.tolist()), chars.tolist(), strict=True):
            text = " ".join([words[number] for number in numbers[begin:end]])
            yield f"{text[: size - 1].capitalize()}."

    def lengths(self, number: int, mean: int) -> np.ndarray:
        """Lengths of records, characters: most within a third of the mean."""
        return np.maximum(self._draw.normal(mean, mean / 3, number), 60).astype(np.int64)


def chunks(prose: Prose, number: int) -> list[str]:
    """Texts of the pool."""
    return list(prose.texts(np.full(number, CHUNK_CHARS)))


def write_pool(path: Path, texts: list[str]) -> None:
    """The pool as a parquet file of documents."""
    rows = [
        Document(
            document_id=str(number),
            source_id="synthetic",
            header_path="",
            start=0,
            end=len(text),
            text=text,
            num_tokens=0,
            domain="",
            prompt_type="mcq",
        )
        for number, text in enumerate(texts)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, rows, Document)


def write_shard(path: Path, prose: Prose, pool: list[str], *, records: int, chars: int) -> list[int]:
    """A shard of conversations; returns the numbers of the records that quote a chunk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    planted = list(range(0, records, PLANTED_EVERY))
    turn = pa.struct({"role": pa.string(), "content": pa.string()})
    schema = pa.schema({"id": pa.string(), "messages": pa.list_(turn)})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for begin in range(0, records, AT_ONCE):
            number = min(AT_ONCE, records - begin)
            rows = [
                _conversation(record, text, pool)
                for record, text in enumerate(prose.texts(prose.lengths(number, chars)), begin)
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return planted


def _conversation(record: int, text: str, pool: list[str]) -> dict[str, object]:
    answer = text[QUESTION_CHARS:]
    if record % PLANTED_EVERY == 0:
        answer = f"{answer} {pool[record % len(pool)]}"
    turns = [("user", text[:QUESTION_CHARS]), ("assistant", answer)]
    return {"id": str(record), "messages": [{"role": role, "content": said} for role, said in turns]}
