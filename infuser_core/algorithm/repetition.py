"""How much the texts of a batch repeat each other: BLEU between texts, clusters by average linkage."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp, log

ORDER = 4
"""Longest n-gram, words."""
SMOOTHING = 0.1
"""Stands for no match at all, so that one missing order does not make the whole similarity 0."""

Occurrence = tuple[tuple[str, ...], int]
"""An n-gram and the how manyth of its text it is: two texts share min(count, count) of them."""


def similarities(texts: Sequence[str]) -> list[list[float]]:
    """Row i: similarity of text i to each text before it, in [0, 1]; 1 for equal texts.

    The mean of BLEU in both directions: the geometric mean of the clipped n-gram precisions, n = 1 .. 4, times the
    brevity penalty; 0 where no word is shared, and orders for which a text is too short are left out. Words are what
    blanks part, in lower case.
    """
    words = [text.lower().split() for text in texts]
    places: list[dict[Occurrence, list[int]]] = [{} for _ in range(ORDER)]
    found = []
    for place, own in enumerate(words):
        shared: list[Counter[int]] = [Counter() for _ in range(ORDER)]
        for n, (known, counts) in enumerate(zip(places, shared, strict=True), 1):
            for occurrence in _occurrences(own, n):
                at = known.setdefault(occurrence, [])
                counts.update(at)
                at.append(place)
        found.append([_similarity(own, words[other], [each[other] for each in shared]) for other in range(place)])
    return found


def _occurrences(words: Sequence[str], n: int) -> Iterator[Occurrence]:
    seen: Counter[tuple[str, ...]] = Counter()
    for at in range(len(words) - n + 1):
        gram = tuple(words[at : at + n])
        seen[gram] += 1
        yield gram, seen[gram]


def _similarity(one: Sequence[str], other: Sequence[str], shared: Sequence[int]) -> float:
    if one == other:
        return 1.0
    if not shared[0]:
        return 0.0
    return (_bleu(len(one), len(other), shared) + _bleu(len(other), len(one), shared)) / 2.0


def _bleu(length: int, reference: int, shared: Sequence[int]) -> float:
    """Of a text with `length` words against one with `reference` words; `shared` n-grams for n = 1 .. 4."""
    totals = [length - n for n in range(min(ORDER, length))]
    precision = sum(log((match or SMOOTHING) / total) for match, total in zip(shared, totals, strict=False))
    return exp(precision / len(totals) + min(0.0, 1.0 - reference / length))


def cluster_sizes(texts: Sequence[str], *, distance: float) -> list[int]:
    """Size of the cluster of each text: the closest two are joined while their mean distance is below `distance`.

    A distance is 1 - similarity. Found by nearest-neighbour chains, in O(B^2) time and memory.
    """
    halves = similarities(texts)
    rows = [
        [1.0 - halves[max(i, j)][min(i, j)] if i != j else 0.0 for j in range(len(halves))] for i in range(len(halves))
    ]
    members: dict[int, list[int]] = {place: [place] for place in range(len(texts))}
    open_, chain = dict.fromkeys(members), list[int]()
    while open_:
        if not chain:
            chain.append(next(iter(open_)))
        last = chain[-1]
        nearest = _nearest(rows[last], last, open_, before=chain[-2] if len(chain) > 1 else None)
        if nearest is None or rows[last][nearest] >= distance:
            # Means over members never come nearer than the nearest member: this cluster is finished.
            del open_[last]
            chain.pop()
        elif len(chain) > 1 and nearest == chain[-2]:
            chain = chain[:-2]
            _join(rows, members, open_, kept=nearest, gone=last)
        else:
            chain.append(nearest)
    sizes = {place: len(cluster) for cluster in members.values() for place in cluster}
    return [sizes[place] for place in range(len(texts))]


def _nearest(row: Sequence[float], own: int, open_: dict[int, None], *, before: int | None) -> int | None:
    """The closest open cluster; of equals the one before in the chain, so that chains end."""
    best = before
    for other in open_:
        if other != own and (best is None or row[other] < row[best]):
            best = other
    return best


def _join(
    rows: list[list[float]], members: dict[int, list[int]], open_: dict[int, None], *, kept: int, gone: int
) -> None:
    """Two clusters become one, whose distances are the means over their members."""
    ours, theirs = len(members[kept]), len(members[gone])
    for other in open_:
        mean = (ours * rows[kept][other] + theirs * rows[gone][other]) / (ours + theirs)
        rows[kept][other] = rows[other][kept] = mean
    members[kept] += members.pop(gone)
    del open_[gone]
