"""MinHash signatures equal to datasketch's bit for bit, and the paper's LSH search on them.

The scheme is datasketch's `affine32`: a 32-bit hash h is mixed by MurmurHash3's finaliser, then permuted as
a h + b modulo 2^32; the signature is the minimum over the n-grams for each of the permutations. The hash of an n-gram
is `shingles.hash32`. Signatures of another scheme, seed, hash or normaliser never compare; `NAME` holds all of them.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
from datasketch import MinHash, MinHashLSH, MinHashLSHEnsemble

from corpus.audit import index, shingles
from corpus.audit.index import Pair, Postings, Rule
from corpus.audit.ngrams import NORMALISER, compare, words
from corpus.audit.shingles import Batch

PERMUTATIONS = 128
SEED = 1
# datasketch 2 changed its default, so the name is fixed here.
SCHEME = "affine32"
NAME = f"{SCHEME}-{PERMUTATIONS}-seed{SEED}-polynomial64/{NORMALISER}"
"""Scheme of signatures, with everything that they depend on."""
EMPTY = np.uint32(0xFFFFFFFF)
"""Hash value of a text without words."""
_BLOCK = 512
"""n-grams permuted at once: with all permutations they fit the processor's cache."""


@cache
def _permutations() -> tuple[np.ndarray, np.ndarray]:
    a, b = MinHash(num_perm=PERMUTATIONS, seed=SEED, scheme=SCHEME).permutations
    return a[:, None], b[:, None]


def signatures(texts: Sequence[str], n: int) -> np.ndarray:
    """(texts, PERMUTATIONS) uint32: the signature of each text's word n-grams."""
    result = np.full((len(texts), PERMUTATIONS), EMPTY, dtype=np.uint32)
    for begin, end in shingles.batches(texts):
        of_batch(shingles.batch_of(texts[begin:end]), n, out=result[begin:end])
    return result


def of_batch(batch: Batch, n: int, *, out: np.ndarray) -> None:
    """Signatures of the texts of one batch."""
    hashes = _mixed(shingles.keys(batch, n))
    lengths = batch.lengths()
    scratch = np.empty(PERMUTATIONS * _BLOCK, dtype=np.uint32)
    begin = 0
    for number, (mark, length) in enumerate(zip(batch.marks.tolist(), lengths.tolist(), strict=True)):
        if length >= n:
            _minimum(hashes[begin : begin + length - n + 1], scratch, out[number])
        elif length:
            _minimum(_mixed(shingles.whole_keys(batch, np.array([number]))), scratch, out[number])
        begin = mark + 1


def minhash(hashvalues: np.ndarray) -> MinHash:
    """A signature as datasketch's object."""
    # Values alone: making the permutations anew would cost more than everything else.
    return MinHash(
        hashvalues=hashvalues,
        permutations=(_permutations()[0][:, 0], _permutations()[1][:, 0]),
        seed=SEED,
        scheme=SCHEME,
        hashfunc=shingles.hash32,
    )


def _minimum(hashes: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
    a, b = _permutations()
    for begin in range(0, len(hashes), _BLOCK):
        block = hashes[begin : begin + _BLOCK]
        permuted = scratch[: PERMUTATIONS * len(block)].reshape(PERMUTATIONS, len(block))
        np.multiply(a, block, out=permuted)
        permuted += b
        np.minimum(out, permuted.min(axis=1), out=out)


def _mixed(keys: np.ndarray) -> np.ndarray:
    """The upper halves of the keys after MurmurHash3's 32-bit finaliser."""
    h = (keys >> np.uint64(32)).astype(np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h


PARTITIONS = 32
_FACTOR = np.uint64(shingles.MIXER)


def estimate(first: np.ndarray, second: np.ndarray) -> float:
    """Estimated Jaccard similarity of two non-empty texts from their signatures."""
    return float(np.count_nonzero(first == second)) / PERMUTATIONS


def sizes(texts: Sequence[str], n: int) -> np.ndarray:
    """Distinct n-grams of each text."""
    found = [
        len(keys)
        for begin, end in shingles.batches(texts)
        for keys in shingles.gram_keys(shingles.batch_of(texts[begin:end]), n)
    ]
    return np.array(found, dtype=np.int64)


@cache
def _bands(threshold: float) -> tuple[int, int]:
    """Bands and rows of the search by Jaccard, found once: every planted control makes a search of its own."""
    found = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    return found.b, found.r


class _Ensemble(MinHashLSHEnsemble):
    """LSH Ensemble whose parameters are found once for a threshold."""

    found: ClassVar[dict[tuple[float, Any], tuple[Any, ...]]] = {}
    xqs: Any
    params: Any

    def _init_optimal_params(self, weights: Any) -> Any:
        key = (self.threshold, weights)
        if key not in self.found:
            self.found[key] = (super()._init_optimal_params(weights), self.xqs, self.params)
        rows, self.xqs, self.params = self.found[key]
        return rows


class PaperMatcher:
    """Two searches over signatures: MinHashLSH by Jaccard, LSH Ensemble by the query's containment in an item.

    Candidates are verified on estimates, as in the paper. Texts under `min_chars` after normalisation are left out.
    """

    def __init__(self, texts: Sequence[str], rule: Rule, *, min_chars: int) -> None:
        self.rule, self.texts, self.sharing = rule, texts, 0
        self._min_chars = min_chars
        self._values = signatures(texts, rule.n)
        self._sizes = sizes(texts, rule.n)
        self._indexed = [number for number, text in enumerate(texts) if self._long(text) and self._sizes[number]]
        self._resemblance = MinHashLSH(params=_bands(rule.containment), num_perm=PERMUTATIONS)
        self._containment = _Ensemble(threshold=rule.containment, num_perm=PERMUTATIONS, num_part=PARTITIONS)
        self._postings = _value_postings(self._values[self._indexed])
        entries = [(number, minhash(self._values[number]), int(self._sizes[number])) for number in self._indexed]
        for number, signature, _ in entries:
            self._resemblance.insert(number, signature)
        if entries:
            self._containment.index(entries)

    def _long(self, text: str) -> bool:
        return len(text) >= self._min_chars and len(" ".join(words(text))) >= self._min_chars

    def pairs(self, texts: Sequence[str], *, every: bool = False) -> Iterator[Pair]:
        """Every pair that both searches together report, in order."""
        values = signatures(texts, self.rule.n)
        for number in self._near(values):
            text = texts[number]
            if not self._long(text) or not self._indexed:
                continue
            size = int(sizes([text], self.rule.n)[0])
            query = minhash(values[number])
            similar = set(self._resemblance.query(query))
            candidates = similar | set(self._containment.query(query, size))
            self.sharing += len(candidates)
            for item in sorted(candidates):
                yield from self._verified(number, text, values[number], size, item, item in similar)

    def _near(self, values: np.ndarray) -> list[int]:
        """Texts that share at least one value with an indexed signature: no band of any search can agree without."""
        places, _ = self._postings.find(_value_keys(values).ravel())
        return [int(number) for number in np.unique(places // PERMUTATIONS)]

    def _verified(
        self, number: int, text: str, values: np.ndarray, size: int, item: int, similar: bool
    ) -> Iterator[Pair]:
        jaccard = estimate(values, self._values[item])
        contained = jaccard * (size + int(self._sizes[item])) / (1 + jaccard) / size
        rule = "jaccard" if similar and jaccard >= self.rule.containment else ""
        # A candidate of either search is verified against the containment too: the ensemble's are a superset of it.
        rule = rule or ("first" if contained >= self.rule.containment else "")
        if rule:
            shared = compare(words(text), words(self.texts[item]), self.rule.n)
            yield Pair(scanned=number, item=item, shared=shared, rule=rule, estimate=jaccard)


def _value_keys(values: np.ndarray) -> np.ndarray:
    places = np.arange(PERMUTATIONS, dtype=np.uint64) << np.uint64(32)
    keys: np.ndarray = (values.astype(np.uint64) | places) * _FACTOR
    return keys


def _value_postings(values: np.ndarray) -> Postings:
    keys = _value_keys(values).ravel()
    return index.postings(keys, np.repeat(np.arange(len(values), dtype=np.int32), PERMUTATIONS))
