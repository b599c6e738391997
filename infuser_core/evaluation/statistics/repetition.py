"""Measure repetition among texts of a batch: BLEU between texts, and clusters by average linkage."""

from collections import Counter
from collections.abc import Sequence
from math import exp, log

ORDER = 4
"""Longest n-gram, words."""
SMOOTHING = 0.1
"""Matches assumed for an n-gram order without any, so that one such order does not make the similarity 0."""

Occurrence = tuple[tuple[str, ...], int]
"""An n-gram and its number among equal ones in its text: two texts share min(count, count) of them."""


def similarities(texts: Sequence[str]) -> list[list[float]]:
    """Similarities in [0, 1] of all pairs of texts: row i has that of text i to each text before it; 1 if equal.

    The mean of BLEU in both directions: the geometric mean of the clipped n-gram precisions, n = 1 .. 4, times the
    brevity penalty; 0 if no word is shared, and orders for which a text is too short are left out. Words are separated
    by blanks and compared in lower case.
    """
    words = [text.lower().split() for text in texts]
    places: list[dict[Occurrence, list[int]]] = [{} for _ in range(ORDER)]
    rows = []
    for place, own in enumerate(words):
        shared: list[Counter[int]] = [Counter() for _ in range(ORDER)]
        for n, (places_of, counts) in enumerate(zip(places, shared, strict=True), 1):
            grams: Counter[tuple[str, ...]] = Counter()
            for start in range(len(own) - n + 1):
                gram = tuple(own[start : start + n])
                grams[gram] += 1
                at = places_of.setdefault((gram, grams[gram]), [])
                counts.update(at)
                at.append(place)
        row = []
        for other, earlier in enumerate(words[:place]):
            common = [each[other] for each in shared]
            if own == earlier or not common[0]:
                row.append(float(own == earlier))
            else:
                row.append((_bleu(len(own), len(earlier), common) + _bleu(len(earlier), len(own), common)) / 2.0)
        rows.append(row)
    return rows


def _bleu(length: int, reference: int, shared: Sequence[int]) -> float:
    """BLEU of a text of `length` words against one of `reference` words, with `shared` n-grams for n = 1 .. 4."""
    totals = [length - n for n in range(min(ORDER, length))]
    precision = sum(log((match or SMOOTHING) / total) for match, total in zip(shared, totals, strict=False))
    return exp(precision / len(totals) + min(0.0, 1.0 - reference / length))


def cluster_sizes(texts: Sequence[str], *, distance: float) -> list[int]:
    """Size of each text's cluster: average linkage, cut where mean distances, 1 - similarity, exceed `distance`."""
    if len(texts) < 2:
        return [1] * len(texts)
    # Imported here: a plan names the reward and clusters nothing.
    from scipy.cluster.hierarchy import fcluster, linkage

    halves = similarities(texts)
    # scipy's condensed form: the distances of text 0 to all later ones, then those of text 1, and so on.
    condensed = [1.0 - halves[j][i] for i in range(len(texts)) for j in range(i + 1, len(texts))]
    labels = fcluster(linkage(condensed, method="average"), t=distance, criterion="distance")
    sizes = Counter(labels.tolist())
    return [sizes[label] for label in labels.tolist()]
