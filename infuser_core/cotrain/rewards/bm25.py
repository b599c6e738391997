"""Control reward: lexical similarity to the dev set, Okapi BM25 with each dev question as a query.

Formula of Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009), with k1 = 1.2 and b = 0.75.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from infuser_core.schemas import InfluenceScore, Question

NEEDS_INFLUENCE = False
NEEDS_DEV = True


def rewards(scores: Sequence[InfluenceScore], questions: Sequence[Question], dev: Sequence[Question]) -> list[float]:
    """BM25 of each question's text, mean over the dev questions; the collection is the iteration's questions."""
    queries, collection = [row.text for row in dev], [row.text for row in questions]
    return [bm25(text, queries, collection) for text in collection]


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


@lru_cache(maxsize=1)
def _collection(texts: tuple[str, ...]) -> tuple[Counter[str], float]:
    """The number of texts with each word, and the mean number of words."""
    counts = [_words(text) for text in texts]
    return Counter(word for count in counts for word in count), sum(map(Counter.total, counts)) / len(texts) or 1.0


def bm25(text: str, queries: Sequence[str], collection: Sequence[str]) -> float:
    """Mean over the queries of the text's BM25 score in the collection."""
    frequency, mean_length = _collection(tuple(collection))
    words, total = _words(text), 0.0
    bound = 1.2 * (0.25 + 0.75 * words.total() / mean_length)
    for word, queried in Counter(word for query in queries for word in _words(query)).items():
        rarity = math.log(1 + (len(collection) - frequency[word] + 0.5) / (frequency[word] + 0.5))
        total += queried * rarity * words[word] * 2.2 / (words[word] + bound)
    return total / len(queries)
