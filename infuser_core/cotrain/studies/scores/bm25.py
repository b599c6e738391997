"""Lexical similarity to the dev set as a score: BM25, each dev question a query, the candidates the collection."""

from infuser_core.cotrain.rewards.bm25 import bm25
from infuser_core.cotrain.studies.candidates import Candidate


def score(question: Candidate) -> float:
    """BM25 of the question's text, mean over the dev questions."""
    return bm25(question.question.text, [row.text for row in question.dev], [row.text for row in question.questions])
