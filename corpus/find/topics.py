"""Find the topics that the document pool must cover, from the questions of the development set.

A topic is a (domain, subdomain) pair: the labels that a question has, or that a language model (the librarian) assigns
to it. Only these pairs leave the module, so no later stage can search for the wording of a question. Synonymous labels
are merged: labels of the same words by rule, others by the model; every merge is recorded.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from corpus.find.queries import BY_RULE, Librarian, words
from corpus.model_reply import ModelCall, ReplyProblem, ask_model
from infuser_core.errors import DocumentError
from infuser_core.prompts.templates import render_question
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import Question, Topic

MAX_LABEL_CHARS = 60
MAX_LABEL_WORDS = 6
MAX_SHARED_WORDS = 3
"""Consecutive words that a label may share with its question: enough for a subject's name, not for a phrase."""
LABEL_TOKENS = 256
BATCH = 256
WINDOW = 80
"""Labels in one prompt for merging."""
MERGE_TOKENS = 2048
MAX_FAILED = 0.1
"""Largest share of questions that may stay unlabelled; with more, the pool would miss too many topics."""

Label = tuple[str, str]
"""Domain and subdomain of one question: broad area of study, and specialisation within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The (domain, subdomain) of a question, or the reason why it has none. Never contains the question's text."""

    question_id: str
    domain: str
    """Domain after merging; empty without a pair."""
    subdomain: str
    """Subdomain after merging; empty without a pair."""
    decided_by: str
    """`labels` for the data set's labels, else the name of the model."""
    reason: str
    """Why there is no pair; empty if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A label that was replaced by a synonymous one."""

    level: str
    """domain or subdomain."""
    within: str
    """Domain of a subdomain; empty for domains."""
    label: str
    into: str
    """Label that replaced it."""
    num_questions: int
    """Questions that had the label."""
    decided_by: str
    """`rule`, or the name of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """The topics of the development set (the paper's C), and how they were found. Later stages read only `topics`."""

    topics: list[Topic]
    """Distinct pairs with their counts, sorted by name."""
    assignments: list[Assignment]
    """One row per question, in the order of the questions."""
    merges: list[Merge]
    """One row per label that was replaced."""
    calls: list[ModelCall]
    """Requests to the model; replies about questions are left out, because they could repeat the question."""


def extract_topics(
    questions: Sequence[Question], librarian: Librarian | None = None, *, progress: Progress = no_progress
) -> Taxonomy:
    """Find the topics of a development set. The librarian labels the questions that lack a label.

    Raises DocumentError if such a question exists and there is no librarian, and if too many cannot be labelled.
    """
    pairs = [(" ".join(row.domain.split()), " ".join(row.subdomain.split())) for row in questions]
    own = {place: pair for place, pair in enumerate(pairs) if all(pair)}
    bare = [place for place in range(len(questions)) if place not in own]
    if not bare:
        return Taxonomy(
            topics=_count_topics(own), assignments=_assignments(questions, own, own, {}, ""), merges=[], calls=[]
        )
    if librarian is None:
        question = questions[bare[0]]
        raise DocumentError(
            f"taxonomy: question {question.question_id!r} has domain {question.domain!r} and subdomain "
            f"{question.subdomain!r}",
            hint="give every development question both labels, or set corpus.catalogue.model to have them assigned",
        )
    assigned, reasons, calls = _assign([questions[place] for place in bare], librarian, progress)
    failed = {bare[n]: reason for n, reason in reasons.items()}
    if len(failed) > MAX_FAILED * len(questions):
        place = min(failed)
        raise DocumentError(
            f"taxonomy: {len(failed)} of {len(questions)} questions could not be labelled, e.g. "
            f"{questions[place].question_id!r}: {failed[place]}",
            hint="use a stronger model for corpus.catalogue.model, or label the set",
        )
    labels = {**own, **{bare[n]: label for n, label in assigned.items()}}
    labels, merges, merge_calls = _merge_all(labels, own, librarian)
    return Taxonomy(
        topics=_count_topics(labels),
        assignments=_assignments(questions, own, labels, failed, librarian.model.name),
        merges=merges,
        calls=[*calls, *merge_calls],
    )


def _count_topics(labels: Mapping[int, Label]) -> list[Topic]:
    pairs = sorted(Counter(labels.values()).items())
    return [Topic(domain=domain, subdomain=sub, num_questions=n) for (domain, sub), n in pairs]


def _assignments(
    questions: Sequence[Question],
    own: Mapping[int, Label],
    labels: Mapping[int, Label],
    failed: Mapping[int, str],
    model: str,
) -> list[Assignment]:
    none = ("", "")
    return [
        Assignment(
            question_id=question.question_id,
            domain=labels.get(place, none)[0],
            subdomain=labels.get(place, none)[1],
            decided_by="labels" if place in own else model,
            reason=failed.get(place, ""),
        )
        for place, question in enumerate(questions)
    ]


def _assign(
    questions: Sequence[Question], librarian: Librarian, progress: Progress
) -> tuple[dict[int, Label], dict[int, str], list[ModelCall]]:
    labels: dict[int, Label] = {}
    reasons: dict[int, str] = {}
    calls: list[ModelCall] = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        values, batch_calls = ask_model(
            librarian.model,
            [librarian.prompts["assign_topic"].messages(question=render_question(q.text, q.choices)) for q in batch],
            lambda place, reply, batch=batch: (  # type: ignore[misc]
                _parse_label("domain", reply, batch[place]),
                _parse_label("subdomain", reply, batch[place]),
            ),
            task="assign",
            items=[question.question_id for question in batch],
            max_tokens=LABEL_TOKENS,
            keep_replies=False,
        )
        calls += batch_calls
        problems = {call.item: call.problem for call in batch_calls}
        for place, label in enumerate(values):
            if label is None:
                reasons[start + place] = problems[batch[place].question_id]
            else:
                labels[start + place] = label
        progress(start + len(batch), len(questions), 0)
    return labels, reasons, calls


def _parse_label(name: str, reply: dict[str, Any], question: Question) -> str:
    """Read the label `name` (domain or subdomain) from the model's reply.

    Raises ReplyProblem for a label that does not name a subject; the message never quotes it: it could be the question.
    """
    value = reply.get(name)
    if not isinstance(value, str) or not any(c.isalpha() for c in value):
        raise ReplyProblem(f'"{name}" is no text')
    label = " ".join(value.split())
    if len(label) > MAX_LABEL_CHARS or len(label.split()) > MAX_LABEL_WORDS:
        raise ReplyProblem(f'"{name}" is longer than {MAX_LABEL_WORDS} words or {MAX_LABEL_CHARS} characters')
    if any(c.isdigit() for c in label):
        raise ReplyProblem(f'"{name}" holds a number')
    tokens, run = label.casefold().split(), MAX_SHARED_WORDS + 1
    pieces = [f" {' '.join(tokens[start : start + run])} " for start in range(len(tokens) - run + 1)]
    texts = [f" {' '.join(text.casefold().split())} " for text in (question.text, *question.choices)]
    if any(piece in text for piece in pieces for text in texts):
        raise ReplyProblem(f'"{name}" repeats words of the question')
    return label


def _merge_all(
    labels: dict[int, Label], own: Mapping[int, Label], librarian: Librarian
) -> tuple[dict[int, Label], list[Merge], list[ModelCall]]:
    """Merge synonymous domains, then synonymous subdomains within each remaining domain."""
    counts = Counter(domain for domain, _ in labels.values())
    areas, merges, calls = merge_labels(counts, librarian, fixed=frozenset(domain for domain, _ in own.values()))
    merged: dict[int, Label] = {}
    for domain in sorted(set(areas.values())):
        within = {place: part for place, (area, part) in labels.items() if areas[area] == domain}
        fixed = frozenset(part for area, part in own.values() if area == domain)
        parts, more_merges, more_calls = merge_labels(Counter(within.values()), librarian, within=domain, fixed=fixed)
        merges, calls = [*merges, *more_merges], [*calls, *more_calls]
        merged |= {place: (domain, parts[part]) for place, part in within.items()}
    return merged, merges, calls


def merge_labels(
    counts: Mapping[str, int], librarian: Librarian, *, within: str = "", fixed: Set[str] = frozenset()
) -> tuple[dict[str, str], list[Merge], list[ModelCall]]:
    """Merge synonymous domains or, if `within` names a domain, its synonymous subdomains.

    `counts` has the number of questions of each label; `fixed` labels are never replaced. Returns the final label of
    each label, the merges, and the model's replies. The same counts and replies give the same result: labels are
    always processed in alphabetical order.
    """
    names = {label: label for label in sorted(counts)}
    merges: list[Merge] = []

    def fold(group: Sequence[str], keep: str, decided_by: str) -> None:
        """Replace the final labels of all labels in the group by the final label of `keep`."""
        keep = names[keep]
        for label in dict.fromkeys(names[label] for label in group):
            if label == keep or label in fixed:
                continue
            members = [name for name, final in names.items() if final == label]
            names.update(dict.fromkeys(members, keep))
            merges.append(
                Merge(
                    level="subdomain" if within else "domain",
                    within=within,
                    label=label,
                    into=keep,
                    num_questions=sum(counts[name] for name in members),
                    decided_by=decided_by,
                )
            )

    alike: dict[tuple[str, ...], list[str]] = {}
    for label in sorted(counts):
        alike.setdefault(tuple(words(label)) or (label,), []).append(label)
    for group in [group for group in alike.values() if len(group) > 1]:
        # Prefer a label of the data set, then the most frequent one, then alphabetical order.
        fold(group, min(group, key=lambda label: (label not in fixed, -counts[label], label)), BY_RULE)
    groups, calls = _synonyms(sorted(set(names.values())), within, fixed, librarian)
    for keep, group in groups:
        fold(group, keep, librarian.model.name)
    return names, merges, calls


def _synonyms(
    labels: list[str], within: str, fixed: Set[str], librarian: Librarian
) -> tuple[list[tuple[str, list[str]]], list[ModelCall]]:
    """Ask the model for groups of synonymous labels; returns each as (final label, labels that it replaces).

    A prompt has at most WINDOW labels: longer lists are split into blocks of half that size, and every pair of blocks
    makes a prompt, so that any two labels occur together in one.
    """
    half = WINDOW // 2
    if len(labels) <= WINDOW:
        windows = [labels] if len(labels) > 1 else []
    else:
        blocks = [labels[start : start + half] for start in range(0, len(labels), half)]
        windows = [[*first, *second] for first, second in itertools.combinations(blocks, 2)]
    kind = f'The entries are specialisations within "{within}".' if within else "The entries are broad areas of study."
    level = f"subdomain {within}" if within else "domain "
    values, calls = ask_model(
        librarian.model,
        [
            librarian.prompts["merge_topics"].messages(kind=kind, labels="\n".join(f"- {label}" for label in w))
            for w in windows
        ],
        lambda place, reply: _parse_groups(reply, windows[place], fixed),
        task="merge",
        items=[f"{level}: {window[0]} ... {window[-1]}" for window in windows],
        max_tokens=MERGE_TOKENS,
    )
    return [group for groups in values for group in groups or []], calls


def _parse_groups(reply: dict[str, Any], window: list[str], fixed: Set[str]) -> list[tuple[str, list[str]]]:
    rows = reply.get("groups")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ReplyProblem('"groups" is no list of objects')
    groups = []
    for row in rows:
        keep, merged = row.get("keep"), row.get("merge")
        if not isinstance(keep, str) or not isinstance(merged, list) or not all(isinstance(m, str) for m in merged):
            raise ReplyProblem('a group needs "keep", an entry, and "merge", a list of entries')
        groups.append((keep, merged))
    counts = Counter(label for keep, merged in groups for label in [keep, *merged])
    strange = next((label for label in counts if label not in window), None)
    if strange is not None:
        raise ReplyProblem(f"{strange[:60]!r} is not in the list")
    twice = next((label for label, times in counts.items() if times > 1), None)
    if twice is not None:
        raise ReplyProblem(f"{twice!r} is used more than once")
    for keep, merged in groups:
        bound = [label for label in merged if label in fixed]
        if bound:
            raise ReplyProblem(f"{bound[0]!r} must be kept, so it cannot become {keep!r}")
    return [(keep, merged) for keep, merged in groups if merged]
