"""Find overlapping texts exactly, with an inverted index of n-gram hashes.

Hashes only find candidates, and never miss one: their counts of common n-grams are never too low. Every reported pair
is compared word by word.
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
"""Size of the Bloom filter, bits per key; less than 1 % of absent keys pass it."""
_MIN_WORDS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """Inverted index for one n-gram length: the hashes (keys) of n-grams, and the texts that contain each."""

    keys: np.ndarray
    """uint64: distinct keys in ascending order."""
    starts: np.ndarray
    """int64: position in `items` of each key's first text; the last value is the length of `items`."""
    items: np.ndarray
    """int32: numbers of the texts of each key, one key after another; a text occurs once per key."""
    sieve: np.ndarray
    """uint64: a Bloom filter. The upper bits of a key select a word, in which two bits are set: one memory access."""

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Look up keys; returns positions in `keys` of those that are indexed, and their positions in `self.keys`."""
        bits = _bits(keys)
        near = np.flatnonzero((self.sieve[_word(keys, len(self.sieve))] & bits) == bits)
        numbers = np.searchsorted(self.keys, keys[near])
        numbers[numbers == len(self.keys)] = 0
        same = self.keys[numbers] == keys[near]
        return near[same], numbers[same]

    def texts(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers of the texts with any of the keys, given by position; a text is repeated for each of its keys."""
        return np.concatenate([self.items[self.starts[k] : self.starts[k + 1]] for k in numbers])


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A scanned text and the indexed texts with which it has n-grams in common."""

    text: int
    """Number of the scanned text in its batch."""
    num_grams: int
    """Distinct n-grams of the scanned text."""
    items: np.ndarray
    """int64: numbers of indexed texts, ascending."""
    counts: np.ndarray
    """int64: number of distinct n-grams shared with each; never too low, too high if hashes collide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GramIndex:
    """Inverted index of the word n-grams of many texts; a text of fewer than n words is a single, shorter n-gram."""

    n: int
    sizes: np.ndarray
    """int64: number of distinct n-grams of each text."""
    lengths: np.ndarray
    """int64: number of words of each text."""
    tables: dict[int, Postings]
    """Postings by n-gram length."""

    def scan(self, batch: TextBatch) -> Iterator[Hit]:
        """Look up a batch of texts; yields a hit, in order, for each text that shares an n-gram with an indexed one."""
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
        """Write the arrays to a folder, so that other processes can map them into memory."""
        np.save(folder / "sizes.npy", self.sizes)
        np.save(folder / "lengths.npy", self.lengths)
        for length, postings in self.tables.items():
            for name in ("keys", "starts", "items", "sieve"):
                np.save(folder / f"{name}-{length}.npy", getattr(postings, name))


def load_index(folder: Path, n: int) -> GramIndex:
    """Map a saved index into memory; processes on a machine share it."""

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
    """Build the inverted index of the texts' n-grams."""
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
    """Build an inverted index from pairs of a key and a text number, given as two arrays without repeated pairs."""
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
"""Number of pairs of a scanned text reported besides its matches: those that share the most n-grams."""
SHARED = "shared"
"""Verdict on a pair with a common n-gram; on its own it does not make the pair a match."""


def verdicts_of(
    shared: Shared, first: Sequence[str], second: Sequence[str], config: OverlapSettings
) -> tuple[str, ...]:
    """Names of the rules that a pair of texts fulfils, out of whole, first, second, run and shared.

    whole: the texts are equal and too short for the other rules. first, second: at least the share `containment` of
    its n-grams is in the other text. run: a common run of at least `run_words` words. shared: a common n-gram. The
    first name other than `shared` is the reason for a match.
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
    """A scanned text and an indexed text that overlap, by their numbers."""

    scanned: int
    item: int
    shared: Shared
    """Their overlap; `first` is the scanned text."""
    verdicts: tuple[str, ...]
    estimate: float = 0.0
    """MinHash estimate of their Jaccard similarity if the search was based on it; else 0."""

    @property
    def rule(self) -> str:
        """Rule by which the pair matches; empty if it does not match."""
        return next((verdict for verdict in self.verdicts if verdict != SHARED), "")


class Matcher:
    """Finds the overlaps of scanned texts with indexed ones, by an index of n-grams and exact comparison."""

    def __init__(self, texts: Sequence[str], config: OverlapSettings, index: GramIndex | None = None) -> None:
        self.config = config
        self.texts = texts
        self.index = index or build_index(texts, config.n)
        self.sharing = 0
        """Number of pairs with a common n-gram hash so far."""
        self._words = lru_cache(maxsize=4096)(lambda item: words(texts[item]))

    def pairs(self, texts: Sequence[str], *, every: bool = False) -> Iterator[Pair]:
        """Yield all matching pairs, in order, and the closest others; with `every`, all pairs that share an n-gram."""
        for begin, end in shingles.batches(texts):
            for hit in self.index.scan(shingles.batch_of(texts[begin:end])):
                self.sharing += len(hit.items)
                number = begin + hit.text
                tokens = words(texts[number])
                for item in hit.items if every else self._candidates(hit, len(tokens)):
                    other = self._words(int(item))
                    shared = compare(tokens, other, self.config.n)
                    # Pairs without a common n-gram are hash collisions.
                    if shared.num_common:
                        verdicts = verdicts_of(shared, tokens, other, self.config)
                        yield Pair(scanned=number, item=int(item), shared=shared, verdicts=verdicts)

    def _candidates(self, hit: Hit, length: int) -> np.ndarray:
        """Indexed texts to compare exactly: all that can match by their counts, and the CONTEXT closest others."""
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
    """Find `short` texts, of fewer than n words, inside longer `texts`; the pairs report the short texts as scanned.

    A scan looks up n-grams of n words, and a short text has none. So the short texts are indexed and the long ones
    scanned.
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
