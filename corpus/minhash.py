"""MinHash signatures and the paper's LSH search, for comparison with the exact audit."""

from collections.abc import Sequence
from dataclasses import dataclass

from datasketch import MinHash, MinHashLSH, MinHashLSHEnsemble

from corpus.ngrams import grams, words

PERMUTATIONS = 128
SEED = 1
# datasketch 2 changed its default; signatures of two schemes never compare, so the name is fixed here.
SCHEME = "affine32"
PARTITIONS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A signature and the size of the set behind it."""

    minhash: MinHash
    """Signature."""
    size: int
    """Distinct n-grams."""


def sketch(text: str, n: int) -> Sketch:
    """The signature of a text's word n-grams."""
    shingles = sorted(set(grams(words(text), n)))
    signature = MinHash(num_perm=PERMUTATIONS, seed=SEED, scheme=SCHEME)
    signature.update_batch([gram.encode() for gram in shingles])
    return Sketch(minhash=signature, size=len(shingles))


def estimate(first: Sketch, second: Sketch) -> float:
    """Estimated Jaccard similarity; 0 when a side is empty (two empty signatures would agree everywhere)."""
    if not first.size or not second.size:
        return 0.0
    return float(first.minhash.jaccard(second.minhash))


def lsh_pairs(indexed: Sequence[Sketch], queries: Sequence[Sketch], *, threshold: float) -> set[tuple[int, int]]:
    """(query, indexed) pairs that the paper's two searches report after verification on estimates.

    One search is for Jaccard similarity, the other for containment of the query in an indexed text.
    """
    sized = [(number, item) for number, item in enumerate(indexed) if item.size]
    if not sized:
        return set()
    resemblance = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    containment = MinHashLSHEnsemble(threshold=threshold, num_perm=PERMUTATIONS, num_part=PARTITIONS)
    for number, item in sized:
        resemblance.insert(number, item.minhash)
    containment.index([(number, item.minhash, item.size) for number, item in sized])
    found: set[tuple[int, int]] = set()
    for place, query in enumerate(queries):
        if not query.size:
            continue
        for number in resemblance.query(query.minhash):
            if estimate(query, indexed[number]) >= threshold:
                found.add((place, number))
        for number in containment.query(query.minhash, query.size):
            if _contained(query, indexed[number]) >= threshold:
                found.add((place, number))
    return found


def _contained(query: Sketch, item: Sketch) -> float:
    """Share of the query in the item, from the estimated Jaccard similarity and the two sizes."""
    jaccard = estimate(query, item)
    return jaccard * (query.size + item.size) / (1 + jaccard) / query.size
