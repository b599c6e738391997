"""MinHash signatures equal to datasketch's bit for bit.

The scheme is datasketch's `affine32`: a 32-bit hash h is mixed by MurmurHash3's finaliser, then permuted as
a h + b modulo 2^32; the signature is the minimum over the n-grams for each of the permutations. The hash of an n-gram
is `shingles.hash32`. Signatures of another scheme, seed, hash or normaliser never compare; `NAME` holds all of them.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from corpus.audit import shingles
from corpus.audit.ngrams import NORMALISER
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
def permutations() -> tuple[np.ndarray, np.ndarray]:
    """Factors and offsets of the permutations, as columns."""
    # Imported here: it brings scipy and redis, and recipes only name the scheme.
    from datasketch import MinHash

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


def _minimum(hashes: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
    a, b = permutations()
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
