"""The topics that the document pool must cover, read from the development set's own labels."""

from collections import Counter
from collections.abc import Sequence

from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Topic


def topics_from_labels(questions: Sequence[Question]) -> list[Topic]:
    """Distinct (domain, subdomain) pairs with their counts, sorted by name.

    Nothing else of a question leaves this function, so no later stage can search for a question's wording.
    Raises DocumentError for the first question that lacks one of the two labels.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    for question in questions:
        domain, subdomain = question.domain.strip(), question.subdomain.strip()
        if not domain or not subdomain:
            raise DocumentError(
                f"taxonomy: question {question.question_id!r} has domain {domain!r} and subdomain {subdomain!r}",
                hint="give every development question both labels, or label the set before building the corpus",
            )
        pairs[(domain, subdomain)] += 1
    return [Topic(domain=domain, subdomain=sub, num_questions=n) for (domain, sub), n in sorted(pairs.items())]
