"""Only (domain, subdomain, count) leave the development set."""

import pytest

from corpus.find.topics import topics_from_labels
from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Topic


def question(name: str, domain: str, subdomain: str) -> Question:
    return Question(
        question_id=name,
        text="text",
        choices=[],
        answer="A",
        verifier="choice",
        domain=domain,
        subdomain=subdomain,
        document_id="",
        rollout_id="",
        reasoning="",
    )


def test_pairs_are_counted_and_sorted():
    rows = [
        question("a", "Physics", "Optics"),
        question("b", "Biology", "Genetics"),
        question("c", "Physics", "Optics"),
    ]
    assert topics_from_labels(rows) == [
        Topic(domain="Biology", subdomain="Genetics", num_questions=1),
        Topic(domain="Physics", subdomain="Optics", num_questions=2),
    ]


@pytest.mark.parametrize(("domain", "subdomain"), [("", "Optics"), ("Physics", " ")])
def test_a_question_without_labels_is_named(domain, subdomain):
    with pytest.raises(DocumentError, match="q-17"):
        topics_from_labels([question("q-17", domain, subdomain)])
