"""Search for overlapping texts as in the paper: MinHashLSH and LSH Ensemble of datasketch, on MinHash signatures.

Importing datasketch takes half a second: import this module inside the function that searches.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from datasketch import MinHash, MinHashLSH, MinHashLSHEnsemble

from corpus.audit import index, shingles
from corpus.audit.index import SHARED, Pair
from corpus.audit.ngrams import compare, words
from corpus.audit.shingles import PERMUTATIONS, SCHEME, SEED, estimate, permutations, signatures, sizes
from infuser_core.config.corpus import OverlapSettings

PARTITIONS = 32
_FACTOR = np.uint64(shingles.MIXER)


def minhash(hashvalues: np.ndarray) -> MinHash:
    """Convert a signature to datasketch's MinHash object."""
    # Pass the permutations: computing them for each object would take longer than everything else.
    return MinHash(
        hashvalues=hashvalues,
        permutations=(permutations()[0][:, 0], permutations()[1][:, 0]),
        seed=SEED,
        scheme=SCHEME,
        hashfunc=shingles.hash32,
    )


class PaperMatcher:
    """Finds overlapping texts with two indexes of signatures: MinHashLSH for Jaccard, LSH Ensemble for containment.

    Containment is that of the query in the indexed text. Candidates are verified on estimates, as in the paper.
    Texts shorter than `min_chars` are skipped.
    """

    def __init__(self, texts: Sequence[str], config: OverlapSettings) -> None:
        self.config, self.texts, self.sharing = config, texts, 0
        self._values = signatures(texts, config.n)
        self._sizes = sizes(texts, config.n)
        self._indexed = [number for number, text in enumerate(texts) if self._long(text) and self._sizes[number]]
        self._resemblance = MinHashLSH(threshold=config.containment, num_perm=PERMUTATIONS)
        self._containment = MinHashLSHEnsemble(threshold=config.containment, num_perm=PERMUTATIONS, num_part=PARTITIONS)
        places = np.repeat(np.arange(len(self._indexed), dtype=np.int32), PERMUTATIONS)
        self._postings = index.build_postings(_value_keys(self._values[self._indexed]), places)
        entries = [(number, minhash(self._values[number]), int(self._sizes[number])) for number in self._indexed]
        for number, signature, _ in entries:
            self._resemblance.insert(number, signature)
        if entries:
            self._containment.index(entries)

    def _long(self, text: str) -> bool:
        least = self.config.min_chars
        return len(text) >= least and len(" ".join(words(text))) >= least

    def pairs(self, texts: Sequence[str], *, every: bool = False) -> Iterator[Pair]:
        """Yield all overlapping pairs of a text and an indexed one that either search finds, in the order of texts."""
        values = signatures(texts, self.config.n)
        # Texts without a common signature value cannot be candidates of either search.
        places, _ = self._postings.find(_value_keys(values))
        for number in map(int, np.unique(places // PERMUTATIONS)):
            text = texts[number]
            if not self._long(text) or not self._indexed:
                continue
            size = int(sizes([text], self.config.n)[0])
            query = minhash(values[number])
            similar = set(self._resemblance.query(query))
            candidates = similar | set(self._containment.query(query, size))
            self.sharing += len(candidates)
            for item in sorted(candidates):
                jaccard = estimate(values[number], self._values[item])
                containment = jaccard * (size + int(self._sizes[item])) / (1 + jaccard) / size
                if item in similar and jaccard >= self.config.containment:
                    rule = "jaccard"
                elif containment >= self.config.containment:
                    rule = "first"
                else:
                    continue
                shared = compare(words(text), words(self.texts[item]), self.config.n)
                verdicts = (rule, SHARED) if shared.num_common else (rule,)
                yield Pair(scanned=number, item=item, shared=shared, verdicts=verdicts, estimate=jaccard)


def _value_keys(values: np.ndarray) -> np.ndarray:
    places = np.arange(PERMUTATIONS, dtype=np.uint64) << np.uint64(32)
    keys: np.ndarray = ((values.astype(np.uint64) | places) * _FACTOR).ravel()
    return keys
