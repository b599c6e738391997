"""Topics that the document pool must cover: the development set's own labels, or labels assigned by a language model.

Nothing of a question but its pair of labels leaves this module, so no later stage can search for a question's wording.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.find import topic_merging
from corpus.model_reply import ModelCall, ReplyProblem, ask
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.errors import DocumentError
from infuser_core.prompts.load import Template, render_question
from infuser_core.schemas import Question, Topic

MAX_LABEL_CHARS = 60
MAX_LABEL_WORDS = 6
MAX_SHARED_WORDS = 3
"""Consecutive words that a label may share with its question: the name of a subject, no phrase of the text."""
MAX_TOKENS = 256
BATCH = 256
# The nested labels under which data sets keep an area and its specialisation, the finest pair first.
LABEL_FIELDS = (("field", "subfield"), ("domain", "subdomain"), ("discipline", "field"), ("category", "subject"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The pair of one question."""

    domain: str
    """Broad area of study."""
    subdomain: str
    """Specialisation within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """How one question came to its pair, or why it has none. Holds nothing of its text."""

    question_id: str
    """The question."""
    domain: str
    """Domain after merging; empty without a pair."""
    subdomain: str
    """Subdomain after merging; empty without a pair."""
    decided_by: str
    """`labels` for the data set's own, else the name of the model."""
    reason: str
    """Why there is no pair; empty when there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Librarian:
    """The model that labels questions, with its prompts."""

    model: ChatModel
    """Answers prompts."""
    assign: Template
    """Asks for a question's pair."""
    merge: Template
    """Asks for synonyms in a list of labels."""
    attempts: int = 3
    """Times a prompt is asked before its question counts as failed."""
    max_failed: float = 0.1
    """Share of unlabelled questions above which the pool would miss too much of the target: an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """The finite set of pairs C and how it came about. Later stages read `topics` alone."""

    topics: list[Topic]
    """Distinct pairs with their counts, sorted by name."""
    assignments: list[Assignment]
    """One row per question, in order."""
    merges: list[topic_merging.Merge]
    """One row per label that became another."""
    calls: list[ModelCall]
    """What the model was asked, without the replies to questions, which could repeat them."""


def labels_in(row: dict[str, Any]) -> Label | None:
    """The pair in a raw row of a data set: the first two nested labels of LABEL_FIELDS that are both there."""
    for names in LABEL_FIELDS:
        domain, subdomain = (" ".join(str(row.get(name) or "").split()) for name in names)
        if domain and subdomain:
            return Label(domain=domain, subdomain=subdomain)
    return None


def topics_from_labels(questions: Sequence[Question]) -> list[Topic]:
    """Distinct (domain, subdomain) pairs with their counts, sorted by name.

    Raises DocumentError for the first question that lacks one of the two labels.
    """
    return extract(questions).topics


def extract(
    questions: Sequence[Question], librarian: Librarian | None = None, *, progress: Progress = no_progress
) -> Taxonomy:
    """The pairs of a development set. Questions without both labels are the librarian's.

    Raises DocumentError for the first of them when there is no librarian, and when too many cannot be labelled.
    """
    own = {place: label for place, question in enumerate(questions) if (label := _own(question))}
    open_places = [place for place in range(len(questions)) if place not in own]
    if open_places and librarian is None:
        question = questions[open_places[0]]
        raise DocumentError(
            f"taxonomy: question {question.question_id!r} has domain {question.domain!r} and subdomain "
            f"{question.subdomain!r}",
            hint="give every development question both labels, or set corpus.catalogue.model to have them assigned",
        )
    if not open_places or librarian is None:
        return _result(questions, own, own, {}, "labels", [], [])
    assigned, reasons, calls = _assign([questions[place] for place in open_places], librarian, progress)
    labels = {**own, **{open_places[n]: label for n, label in assigned.items()}}
    failed = {open_places[n]: reason for n, reason in reasons.items()}
    _refuse_gaps(questions, failed, librarian.max_failed)
    merged, merges, said = _merge(labels, own, librarian)
    return _result(questions, own, merged, failed, librarian.model.name, merges, [*calls, *said])


def _own(question: Question) -> Label | None:
    return labels_in({"domain": question.domain, "subdomain": question.subdomain})


def _assign(
    questions: Sequence[Question], librarian: Librarian, progress: Progress
) -> tuple[dict[int, Label], dict[int, str], list[ModelCall]]:
    labels: dict[int, Label] = {}
    reasons: dict[int, str] = {}
    calls: list[ModelCall] = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        asked = ask(
            librarian.model,
            [librarian.assign.messages(question=render_question(q.text, q.choices)) for q in batch],
            lambda place, reply, batch=batch: _label(reply, batch[place]),  # type: ignore[misc]
            task="assign",
            items=[question.question_id for question in batch],
            max_tokens=MAX_TOKENS,
            attempts=librarian.attempts,
            keep_replies=False,
        )
        calls += asked.calls
        problems = {call.item: call.problem for call in asked.calls}
        for place, label in enumerate(asked.values):
            if label is None:
                reasons[start + place] = problems[batch[place].question_id]
            else:
                labels[start + place] = label
        progress(start + len(batch), len(questions), 0)
    return labels, reasons, calls


def _label(reply: dict[str, Any], question: Question) -> Label:
    parts = [_checked(name, reply.get(name), question) for name in ("domain", "subdomain")]
    return Label(domain=parts[0], subdomain=parts[1])


def _checked(name: str, value: Any, question: Question) -> str:
    """A label that names a subject. The problems never quote the value: it could be the question."""
    if not isinstance(value, str) or not any(c.isalpha() for c in value):
        raise ReplyProblem(f'"{name}" is no text')
    label = " ".join(value.split())
    if len(label) > MAX_LABEL_CHARS or len(label.split()) > MAX_LABEL_WORDS:
        raise ReplyProblem(f'"{name}" is longer than {MAX_LABEL_WORDS} words or {MAX_LABEL_CHARS} characters')
    if any(c.isdigit() for c in label):
        raise ReplyProblem(f'"{name}" holds a number')
    if _repeats(label, [question.text, *question.choices]):
        raise ReplyProblem(f'"{name}" repeats words of the question')
    return label


def _repeats(label: str, texts: Sequence[str]) -> bool:
    said = label.casefold().split()
    run = MAX_SHARED_WORDS + 1
    pieces = [" ".join(said[start : start + run]) for start in range(len(said) - run + 1)]
    padded = [f" {' '.join(text.casefold().split())} " for text in texts]
    return any(f" {piece} " in text for piece in pieces for text in padded)


def _refuse_gaps(questions: Sequence[Question], failed: dict[int, str], max_failed: float) -> None:
    if len(failed) > max_failed * len(questions):
        place = min(failed)
        raise DocumentError(
            f"taxonomy: {len(failed)} of {len(questions)} questions could not be labelled, e.g. "
            f"{questions[place].question_id!r}: {failed[place]}",
            hint="use a stronger model for corpus.catalogue.model, or label the set",
        )


def _merge(
    labels: dict[int, Label], own: dict[int, Label], librarian: Librarian
) -> tuple[dict[int, Label], list[topic_merging.Merge], list[ModelCall]]:
    """Domains first, then the subdomains within each of the domains that are left."""
    asking = {"model": librarian.model, "template": librarian.merge, "attempts": librarian.attempts}
    areas = topic_merging.merge(
        Counter(label.domain for label in labels.values()),
        level="domain",
        fixed=frozenset(label.domain for label in own.values()),
        **asking,  # type: ignore[arg-type]
    )
    moved = {p: Label(domain=areas.names[row.domain], subdomain=row.subdomain) for p, row in labels.items()}
    merges, calls = list(areas.merges), list(areas.calls)
    merged: dict[int, Label] = {}
    for domain in sorted({label.domain for label in moved.values()}):
        within = {place: label for place, label in moved.items() if label.domain == domain}
        parts = topic_merging.merge(
            Counter(label.subdomain for label in within.values()),
            level="subdomain",
            within=domain,
            fixed=frozenset(label.subdomain for label in own.values() if label.domain == domain),
            **asking,  # type: ignore[arg-type]
        )
        merges, calls = [*merges, *parts.merges], [*calls, *parts.calls]
        merged |= {p: Label(domain=domain, subdomain=parts.names[row.subdomain]) for p, row in within.items()}
    return merged, merges, calls


def _result(
    questions: Sequence[Question],
    own: dict[int, Label],
    labels: dict[int, Label],
    failed: dict[int, str],
    model: str,
    merges: list[topic_merging.Merge],
    calls: list[ModelCall],
) -> Taxonomy:
    pairs = Counter((label.domain, label.subdomain) for label in labels.values())
    rows = []
    for place, question in enumerate(questions):
        label = labels.get(place, Label(domain="", subdomain=""))
        rows.append(
            Assignment(
                question_id=question.question_id,
                domain=label.domain,
                subdomain=label.subdomain,
                decided_by="labels" if place in own else model,
                reason=failed.get(place, ""),
            )
        )
    topics = [Topic(domain=domain, subdomain=sub, num_questions=n) for (domain, sub), n in sorted(pairs.items())]
    return Taxonomy(topics=topics, assignments=rows, merges=merges, calls=calls)
