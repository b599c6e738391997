"""Lexical similarity to the dev set as a score: Okapi BM25, each dev question a query, the candidates the collection.

Formula of Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009), with k1 = 1.2 and b = 0.75.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from infuser_core.cotrain.studies.candidates import Candidate


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


def score(question: Candidate) -> float:
    """BM25 of the question's text, mean over the dev questions."""
    return bm25(question.question.text, [row.text for row in question.dev], [row.text for row in question.questions])
