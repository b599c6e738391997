"""Choices that are not sampled: which checkpoint is reported, and in which order questions are trained on."""

import math
from collections import Counter
from collections.abc import Sequence


def best_index(accuracies: Sequence[float]) -> int:
    """Index of the highest validation accuracy; the earliest wins ties. Raises ValueError where there is none."""
    if not accuracies:
        raise ValueError("no validation accuracy to choose from; evaluate at least one checkpoint")
    if any(math.isnan(accuracy) for accuracy in accuracies):
        raise ValueError(f"a validation accuracy is not a number: {list(accuracies)}; evaluate that checkpoint again")
    return max(range(len(accuracies)), key=lambda index: (accuracies[index], -index))


def stratified_order(document_ids: Sequence[str]) -> list[int]:
    """Row order in which every document's questions are spread evenly, so that one minibatch mixes documents.

    The j-th of a document's k questions gets the ideal position (j + 1/2) / k; ties go to the document seen first.
    """
    sizes = Counter(document_ids)
    first_seen = {document_id: place for place, document_id in enumerate(sizes)}
    seen: Counter[str] = Counter()
    positions: list[tuple[float, int, int]] = []
    for row, document_id in enumerate(document_ids):
        positions.append(((seen[document_id] + 0.5) / sizes[document_id], first_seen[document_id], row))
        seen[document_id] += 1
    return [row for _, _, row in sorted(positions)]
