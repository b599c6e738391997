"""Exact comparison of texts by word n-grams: shared n-grams, both containments and the longest common run."""

import string
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

PUNCTUATION = str.maketrans("", "", string.punctuation)
NORMALISER = "nfc-casefold-nfc-nopunct-1"


def words(text: str) -> list[str]:
    """Normalised words. NFC stands twice because folding the case can undo it."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return folded.translate(PUNCTUATION).split()


def grams(tokens: Sequence[str], n: int) -> list[str]:
    """Word n-grams in order, as strings; one whole-text shingle for a text of fewer than n words."""
    if len(tokens) < n:
        return [" ".join(tokens)] if tokens else []
    return [" ".join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What two texts have in common."""

    reference: int
    """Number of the indexed text."""
    num_common: int
    """Distinct n-grams in both."""
    containment_document: float
    """Share of the scanned text's n-grams found in the indexed text."""
    containment_reference: float
    """Share of the indexed text's n-grams found in the scanned text."""
    jaccard: float
    """Jaccard similarity of the two sets."""
    longest_run: int
    """Longest common run, words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """N-grams of the smaller side; the larger side is scanned against it text by text."""

    n: int
    """Words per n-gram."""
    postings: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """N-gram to (text number, position)."""
    sizes: list[int] = field(default_factory=list)
    """Distinct n-grams per indexed text."""
    lengths: list[int] = field(default_factory=list)
    """Words per n-gram of each text: n, or its own length where the text is shorter than n."""

    def add(self, text: str) -> int:
        """Index a text; returns its number."""
        tokens = words(text)
        number = len(self.sizes)
        shingles = grams(tokens, self.n)
        for position, gram in enumerate(shingles):
            self.postings[gram].append((number, position))
        self.sizes.append(len(set(shingles)))
        self.lengths.append(min(self.n, len(tokens)))
        return number

    def scan(self, text: str) -> Iterator[Shared]:
        """One row per indexed text that shares an n-gram with `text`, by its number.

        A short indexed text is one shingle of its own length and is looked for at that length.
        """
        tokens = words(text)
        own = set(grams(tokens, self.n))
        common: dict[int, set[str]] = defaultdict(set)
        longest: dict[int, int] = defaultdict(int)
        for length in sorted(set(self.lengths) - {0}):
            self._pass(tokens, length, common, longest)
        for number in sorted(common):
            shared = len(common[number])
            whole = self.lengths[number] == min(self.n, len(tokens))
            # A short text inside a longer one covers none of its n-grams: counted as one on the common side only.
            in_document = shared if whole else 0
            yield Shared(
                reference=number,
                num_common=shared,
                containment_document=in_document / len(own),
                containment_reference=shared / self.sizes[number],
                jaccard=in_document / (len(own) + self.sizes[number] - in_document),
                longest_run=longest[number],
            )

    def _pass(self, tokens: list[str], length: int, common: dict[int, set[str]], longest: dict[int, int]) -> None:
        if len(tokens) < length:
            return
        runs: dict[tuple[int, int], int] = {}
        for gram in grams(tokens, length):
            here: dict[tuple[int, int], int] = {}
            for number, position in self.postings.get(gram, ()):
                if self.lengths[number] != length:
                    continue
                run = runs.get((number, position - 1), length - 1) + 1
                here[(number, position)] = run
                common[number].add(gram)
                longest[number] = max(longest[number], run)
            runs = here
