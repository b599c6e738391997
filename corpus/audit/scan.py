"""Compare one shard (file) of reference records with an indexed document pool."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus.audit import index
from corpus.audit.index import GramIndex, Matcher, Pair, short_pairs
from corpus.audit.ngrams import places, words
from corpus.audit.references import Reference, ReferenceShard, texts_of
from corpus.pool import pool_file
from infuser_core.config.corpus import OverlapSettings
from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.schemas import Overlap
from infuser_core.store.tables import read_foreign_rows, read_rows, write_rows
from infuser_core.system import sealed

if TYPE_CHECKING:
    from corpus.audit.lsh import PaperMatcher

_BATCH_CHARS = 1 << 20
COUNTS = ("read", "texts", "empty", "short", "tiny", "sharing")
_DOCUMENTS = "documents.parquet"
_SIDES = {"first": "reference", "second": "document"}
_NAMES = ("document_id", "doc_id", "id")
_TEXTS = ("text", "content")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolText:
    """Identifier and text of a document: the columns of a pool that an audit needs."""

    document_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Result of comparing one shard with the pool."""

    findings: list[Overlap]
    """Overlapping pairs, in the order of the records."""
    counts: dict[str, int]
    """Numbers by the names of COUNTS: records read; texts; empty texts; short ones (under n words); tiny ones (under
    min_words); pairs that share an n-gram."""

    def as_json(self) -> dict[str, Any]:
        """The scan as JSON values."""
        return {"counts": self.counts, "findings": [asdict(row) for row in self.findings]}

    @staticmethod
    def from_file(path: Path) -> "Scan":
        """Read a scan from its file. Raises ValueError if the file was changed."""
        values = sealed.read(path)
        return Scan(findings=[Overlap(**row) for row in values["findings"]], counts=values["counts"])


def pool_texts(pool: Path) -> list[PoolText]:
    """Read the documents of a pool in parquet: ours, or any table with columns for an identifier and a text."""
    path = pool_file(pool)
    if path.suffix != ".parquet":
        raise DocumentError(f"{pool}: not a parquet file", hint="`infuser corpus convert` reads other formats")
    texts = []
    for row in read_foreign_rows(path):
        name = next((row[key] for key in _NAMES if row.get(key) is not None), None)
        text = next((row[key] for key in _TEXTS if isinstance(row.get(key), str)), None)
        if name is None or text is None:
            raise DocumentError(
                f"{pool}: no columns document_id and text (found {', '.join(row)})", hint="name a pool of documents"
            )
        texts.append(PoolText(document_id=str(name), text=text))
    if not texts:
        raise DocumentError(f"{pool}: no documents in it", hint="name a pool with documents")
    return texts


def matcher_of(
    texts: Sequence[str], config: OverlapSettings, index: GramIndex | None = None
) -> "Matcher | PaperMatcher":
    """Make the search of the configured mode, with an index of the texts."""
    if config.mode == "paper":
        from corpus.audit.lsh import PaperMatcher

        return PaperMatcher(texts, config)
    return Matcher(texts, config, index)


class Scanner:
    """Compares shards of reference records with the documents of a pool."""

    def __init__(self, documents: Sequence[PoolText], config: OverlapSettings, index: GramIndex | None = None) -> None:
        self.documents, self.config, self._index = documents, config, index

    @cached_property
    def matcher(self) -> "Matcher | PaperMatcher":
        """The search with its index; built on first use: an audit whose shards are all finished does not need it."""
        return matcher_of([document.text for document in self.documents], self.config, self._index)

    @property
    def digest(self) -> str:
        """sha256 of the identifiers and texts of all documents."""
        total = hashlib.sha256()
        for row in self.documents:
            total.update(json.dumps([row.document_id, row.text]).encode())
        return total.hexdigest()

    @contextmanager
    def on_disk(self, parent: Path) -> Iterator[Path]:
        """Write the documents and their index to a temporary folder below `parent`, for other processes to load."""
        with tempfile.TemporaryDirectory(prefix="index-", dir=parent.resolve()) as name:
            write_rows(Path(name) / _DOCUMENTS, self.documents, PoolText)
            if isinstance(self.matcher, Matcher):
                self.matcher.index.save(Path(name))
            yield Path(name)

    @staticmethod
    def from_disk(folder: Path, config: OverlapSettings) -> "Scanner":
        """Load a scanner from the folder that `on_disk` wrote."""
        gram_index = index.load_index(folder, config.n) if config.mode != "paper" else None
        return Scanner(read_rows(folder / _DOCUMENTS, PoolText), config, gram_index)

    def scan(self, shard: ReferenceShard, progress: Callable[[int], None] = lambda size: None) -> Scan:
        """Compare every record of the shard with the documents. `progress` is called with the bytes scanned so far."""
        counts = dict.fromkeys(COUNTS, 0)
        findings: list[Overlap] = []
        short: list[Reference] = []
        sharing = self.matcher.sharing
        size = 0
        for batch in self._batches(shard, counts):
            findings += self._findings(shard.name, batch, self.matcher.pairs([row.text for row in batch]))
            short += self._count(batch, counts)
            size += sum(len(row.text) for row in batch)
            # Characters approximate bytes; for a compressed file, which is smaller, progress reaches the end early.
            progress(min(size, shard.num_bytes))
        if self.config.mode != "paper":
            pairs = short_pairs([row.text for row in self.documents], [row.text for row in short], self.config)
            findings += self._findings(shard.name, short, pairs)
        progress(shard.num_bytes)
        counts["sharing"] = self.matcher.sharing - sharing
        findings.sort(key=lambda row: (row.record, row.part, row.document_id))
        return Scan(findings=findings, counts=counts)

    def _batches(self, shard: ReferenceShard, counts: dict[str, int]) -> Iterator[list[Reference]]:
        batch: list[Reference] = []
        size = 0
        for number, row in enumerate(rows_of(shard.path)):
            counts["read"] += 1
            for reference in texts_of(number, row):
                batch.append(reference)
                size += len(reference.text)
            if size >= _BATCH_CHARS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _count(self, batch: Sequence[Reference], counts: dict[str, int]) -> list[Reference]:
        """Add a batch to the counts; returns its texts of fewer than n words, to be searched for in documents later."""
        short = []
        for row in batch:
            # Most texts are far longer than n words, and need not be split into words.
            if len(row.text) >= 64 * self.config.n:
                continue
            length = len(words(row.text))
            counts["empty"] += not length
            if 0 < length < self.config.n:
                counts["short"] += 1
                counts["tiny"] += length < self.config.min_words
                short.append(row)
        counts["texts"] += len(batch)
        return short

    def _findings(self, shard: str, batch: Sequence[Reference], pairs: Iterable[Pair]) -> list[Overlap]:
        # Sorted by document, so that the word spans of each document are computed once.
        return [self._finding(shard, batch[p.scanned], p) for p in sorted(pairs, key=lambda pair: pair.item)]

    def _finding(self, shard: str, row: Reference, pair: Pair) -> Overlap:
        document, shared = self.documents[pair.item], pair.shared
        ours = _characters(row.text, shared.run.first, shared.run.length)
        theirs = _characters(document.text, shared.run.second, shared.run.length)
        return Overlap(
            document_id=document.document_id,
            shard=shard,
            record=row.record,
            record_id=row.name,
            part=row.part,
            num_common=shared.num_common,
            containment_document=shared.containment_second,
            containment_reference=shared.containment_first,
            jaccard=shared.jaccard,
            estimate=pair.estimate,
            longest_run=shared.run.length,
            document_start=theirs[0],
            document_end=theirs[1],
            reference_start=ours[0],
            reference_end=ours[1],
            matched=bool(pair.rule),
            rule=_SIDES.get(pair.rule, pair.rule),
            verdicts=" ".join(_SIDES.get(name, name) for name in pair.verdicts),
        )


_places = lru_cache(maxsize=256)(places)


def _characters(text: str, first: int, length: int) -> tuple[int, int]:
    """Character span of the run of `length` words that begins at word number `first`; (0, 0) without a run."""
    spans = _places(text)
    if not length or first + length > len(spans):
        return 0, 0
    return spans[first][0], spans[first + length - 1][1]


@contextmanager
def open_scanner(folder: Path, config: OverlapSettings) -> Iterator[Callable[[ReferenceShard], Scan]]:
    """Load, in a worker, the scanner that `Scanner.on_disk` wrote."""
    yield Scanner.from_disk(folder, config).scan
