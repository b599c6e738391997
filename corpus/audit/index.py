"""An inverted index of n-gram hashes, and the pairs of overlapping texts that it finds.

Hashes only find candidates: their counts are never too low, and every reported pair is compared word by word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from corpus.audit import shingles
from corpus.audit.ngrams import Shared, compare, words
from corpus.audit.shingles import TextBatch
from infuser_core.config.corpus import OverlapSettings

BITS_PER_KEY = 32
"""Size of the Bloom filter, bits per key; it lets less than 1 % of absent keys pass to the search."""
_MIN_WORDS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """Keys of n-grams of one length, and the texts that have them."""

    keys: np.ndarray
    """uint64: distinct keys in ascending order."""
    starts: np.ndarray
    """int64: first posting of each key, and one past the last."""
    items: np.ndarray
    """int32: text numbers, each once per key."""
    sieve: np.ndarray
    """uint64: a Bloom filter. The upper bits of a key choose one word, in which it sets two bits: one memory access."""

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `keys` of the indexed ones, and for each its position in `self.keys`."""
        bits = _bits(keys)
        near = np.flatnonzero((self.sieve[_word(keys, len(self.sieve))] & bits) == bits)
        numbers = np.searchsorted(self.keys, keys[near])
        numbers[numbers == len(self.keys)] = 0
        same = self.keys[numbers] == keys[near]
        return near[same], numbers[same]

    def texts(self, numbers: np.ndarray) -> np.ndarray:
        """Text numbers of all postings of the keys."""
        return np.concatenate([self.items[self.starts[k] : self.starts[k + 1]] for k in numbers])


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One scanned text and the indexed texts that it shares n-grams with."""

    text: int
    """Number of the scanned text in its batch."""
    num_grams: int
    """Distinct n-grams of the scanned text."""
    items: np.ndarray
    """int64: numbers of indexed texts, ascending."""
    counts: np.ndarray
    """int64: distinct n-grams shared with each, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GramIndex:
    """Indexed texts. A text of fewer than n words is one shingle, searched for at its length."""

    n: int
    sizes: np.ndarray
    """int64: distinct n-grams of each text."""
    lengths: np.ndarray
    """int64: words of each text."""
    tables: dict[int, Postings]
    """Postings by n-gram length."""

    def scan(self, batch: TextBatch) -> Iterator[Hit]:
        """One hit for each text of the batch that shares an n-gram, in order."""
        numbers_by_text: dict[int, list[np.ndarray]] = {}
        keys = shingles.keys(batch, self.n)
        for length, postings in self.tables.items():
            ours = keys if length == self.n else shingles.keys(batch, length)
            places, numbers = postings.find(ours)
            if not len(places):
                continue
            owners = batch.owners(places)
            cuts = np.flatnonzero(np.diff(owners)) + 1
            for owner, part in zip(owners[np.concatenate([[0], cuts])], np.split(numbers, cuts), strict=True):
                numbers_by_text.setdefault(int(owner), []).append(postings.texts(np.unique(part)))
        lengths = batch.lengths()
        for owner in sorted(numbers_by_text):
            items, counts = np.unique(np.concatenate(numbers_by_text[owner]), return_counts=True)
            first = 0 if not owner else int(batch.marks[owner - 1]) + 1
            grams = keys[first : first + max(int(lengths[owner]) - self.n + 1, 0)]
            size = max(len(np.unique(grams)), 1)
            yield Hit(text=owner, num_grams=size, items=items.astype(np.int64), counts=counts)

    def save(self, folder: Path) -> None:
        """Write the arrays, for other processes to map."""
        np.save(folder / "sizes.npy", self.sizes)
        np.save(folder / "lengths.npy", self.lengths)
        for length, postings in self.tables.items():
            for name in ("keys", "starts", "items", "sieve"):
                np.save(folder / f"{name}-{length}.npy", getattr(postings, name))


def load_index(folder: Path, n: int) -> GramIndex:
    """Map the saved index into memory: processes share its pages."""

    def array(name: str) -> np.ndarray:
        values: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r")
        return values

    present = sorted(int(path.stem.split("-")[1]) for path in folder.glob("keys-*.npy"))
    tables = {
        length: Postings(**{name: array(f"{name}-{length}") for name in ("keys", "starts", "items", "sieve")})
        for length in present
    }
    return GramIndex(n=n, sizes=array("sizes"), lengths=array("lengths"), tables=tables)


def build_index(texts: Sequence[str], n: int) -> GramIndex:
    """Index the n-grams of the texts."""
    keys: dict[int, list[np.ndarray]] = {}
    items: dict[int, list[np.ndarray]] = {}
    sizes, lengths = np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=np.int64)
    for begin, end in shingles.batches(texts):
        batch = shingles.batch_of(texts[begin:end])
        lengths[begin:end] = batch.lengths()
        for number, grams in enumerate(shingles.gram_keys(batch, n), begin):
            sizes[number] = len(grams)
            if len(grams):
                size = min(n, int(lengths[number]))
                keys.setdefault(size, []).append(grams)
                items.setdefault(size, []).append(np.full(len(grams), number, dtype=np.int32))
    tables = {size: build_postings(np.concatenate(keys[size]), np.concatenate(items[size])) for size in sorted(keys)}
    return GramIndex(n=n, sizes=sizes, lengths=lengths, tables=tables)


def build_postings(keys: np.ndarray, items: np.ndarray) -> Postings:
    """Group text numbers by key; `items` has the text number of each key, no text twice for one key."""
    order = np.argsort(keys, kind="stable")
    keys, items = keys[order], items[order]
    first = np.concatenate([np.ones(min(len(keys), 1), dtype=bool), keys[1:] != keys[:-1]])
    starts = np.append(np.flatnonzero(first), len(keys))
    distinct = keys[first]
    num_words = max(1 << (len(distinct) * BITS_PER_KEY // 64).bit_length(), _MIN_WORDS)
    sieve = np.zeros(num_words, dtype=np.uint64)
    np.bitwise_or.at(sieve, _word(distinct, num_words), _bits(distinct))
    return Postings(keys=distinct, starts=starts, items=items, sieve=sieve)


def _word(keys: np.ndarray, num_words: int) -> np.ndarray:
    upper: np.ndarray = keys >> np.uint64(65 - num_words.bit_length())
    return upper.view(np.int64)


def _bits(keys: np.ndarray) -> np.ndarray:
    one, low = np.uint64(1), np.uint64(63)
    bits: np.ndarray = (one << (keys & low)) | (one << ((keys >> np.uint64(6)) & low))
    return bits


CONTEXT = 50
"""Number of closest pairs of a scanned text that are reported although no rule matches them."""
SHARED = "shared"
"""Verdict on a pair with a common n-gram; it alone makes no match."""


def verdicts_of(
    shared: Shared, first: Sequence[str], second: Sequence[str], config: OverlapSettings
) -> tuple[str, ...]:
    """All verdicts on a pair: whole, first or second (the side that is contained), run, shared.

    The first verdict other than `shared` is the reason of a match.
    """
    if min(len(first), len(second)) < config.min_words:
        return ("whole",) if first == second else ()
    verdicts = {
        "first": shared.containment_first >= config.containment,
        "second": shared.containment_second >= config.containment,
        "run": shared.run.length >= config.run_words,
        SHARED: shared.run.length >= config.n,
    }
    return tuple(name for name, holds in verdicts.items() if holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A scanned text and an indexed one, by their numbers."""

    scanned: int
    item: int
    shared: Shared
    """Their overlap; `first` is the scanned text."""
    verdicts: tuple[str, ...]
    estimate: float = 0.0
    """MinHash estimate of their Jaccard similarity, if the search decided on it; else 0."""

    @property
    def rule(self) -> str:
        """Reason of the match; empty if the pair does not match."""
        return next((verdict for verdict in self.verdicts if verdict != SHARED), "")


class Matcher:
    """Compares texts with indexed ones."""

    def __init__(self, texts: Sequence[str], config: OverlapSettings, index: GramIndex | None = None) -> None:
        self.config = config
        self.texts = texts
        self.index = index or build_index(texts, config.n)
        self.sharing = 0
        """Pairs with a common n-gram seen so far, by hash."""
        self._words = lru_cache(maxsize=4096)(lambda item: words(texts[item]))

    def pairs(self, texts: Sequence[str], *, every: bool = False) -> Iterator[Pair]:
        """Every matching pair, in order, and the closest of the others; with `every` all pairs that share an n-gram."""
        for begin, end in shingles.batches(texts):
            for hit in self.index.scan(shingles.batch_of(texts[begin:end])):
                self.sharing += len(hit.items)
                number = begin + hit.text
                tokens = words(texts[number])
                for item in hit.items if every else self._candidates(hit, len(tokens)):
                    other = self._words(int(item))
                    shared = compare(tokens, other, self.config.n)
                    # Without a common n-gram two n-grams had one hash.
                    if shared.num_common:
                        verdicts = verdicts_of(shared, tokens, other, self.config)
                        yield Pair(scanned=number, item=int(item), shared=shared, verdicts=verdicts)

    def _candidates(self, hit: Hit, length: int) -> np.ndarray:
        """Items that can match, by counts that are never too low, and the closest CONTEXT of the others."""
        sizes, lengths = self.index.sizes[hit.items], self.index.lengths[hit.items]
        short = np.minimum(lengths, length) < self.config.n
        contained = np.maximum(hit.counts / hit.num_grams, hit.counts / np.maximum(sizes, 1)) >= self.config.containment
        runs = hit.counts >= self.config.run_words - self.config.n + 1
        able = short | contained | runs
        others = np.flatnonzero(~able)
        closest = others[np.argsort(-hit.counts[others], kind="stable")[:CONTEXT]]
        items: np.ndarray = hit.items[np.sort(np.concatenate([np.flatnonzero(able), closest]))]
        return items


def short_pairs(texts: Sequence[str], short: Sequence[str], config: OverlapSettings) -> Iterator[Pair]:
    """Find `short` texts, of fewer than n words, in the longer `texts`; the pairs report the short ones as scanned.

    A scan looks for n-grams and a short text has none: so the short texts are indexed and the long ones scanned.
    """
    if not short:
        return
    for pair in Matcher(short, config).pairs(texts):
        if pair.rule and len(words(texts[pair.scanned])) >= config.n:
            yield _swap_sides(pair)


def _swap_sides(pair: Pair) -> Pair:
    shared = pair.shared
    swapped = replace(
        shared,
        containment_first=shared.containment_second,
        containment_second=shared.containment_first,
        run=replace(shared.run, first=shared.run.second, second=shared.run.first),
    )
    verdicts = tuple({"first": "second", "second": "first"}.get(name, name) for name in pair.verdicts)
    return replace(pair, scanned=pair.item, item=pair.scanned, shared=swapped, verdicts=verdicts)
