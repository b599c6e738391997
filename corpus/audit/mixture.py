"""SFT mixture audit: an instruction-finetuned anchor's training data against all that a run learns or is judged by.

A record of such a mixture is a conversation, or a prompt with its response; the other layouts are those of
`references.py`. Appendix: contamination audit, deduplication check.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.audit.overlap import serialise
from corpus.audit.scan import Finding, PoolText
from infuser_core.schemas import AuditFact, Document, Question

_ASKED = ("prompt", "instruction", "query", "problem_statement")
_CONTEXT = ("input", "context")
_REPLIED = ("response", "completion", "output", "chosen")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOverlap:
    """A text of the run and a record of the mixture that share n-grams."""

    side: str
    """document, dev or validation."""
    item_id: str
    """Document or question."""
    shard: str
    """File of the mixture."""
    record: int
    """Number of the record in its file, 0-based."""
    record_id: str
    """The record's own identifier, or empty."""
    jaccard: float
    """Jaccard similarity of the two sets of word n-grams."""
    estimate: float
    """MinHash estimate of it, in the paper's mode; else 0."""
    containment_item: float
    """Share of the run's n-grams found in the record."""
    containment_record: float
    """Share of the record's n-grams found in the run's text."""
    longest_run: int
    """Longest common run, words."""
    item_start: int
    """First character of the run in the document, or in the question with its choices and answer."""
    item_end: int
    """One past its last character."""
    matched: bool
    """Whether the pair passes the match rule."""
    rule: str
    """Why it matches; empty where it does not."""


def texts_of(documents: Sequence[Document], dev: Sequence[Question], validation: Sequence[Question]) -> list[PoolText]:
    """Everything that is looked for, under names that say on which side it stands."""
    asked = {"dev": dev, "validation": validation}
    return [
        *(PoolText(document_id=f"document:{row.document_id}", text=row.text) for row in documents),
        *(
            PoolText(document_id=f"{side}:{row.question_id}", text=serialise(row))
            for side, rows in asked.items()
            for row in rows
        ),
    ]


def overlap_of(found: Finding) -> MixtureOverlap:
    """A finding as a row of its side."""
    side, _, item = found.document_id.partition(":")
    return MixtureOverlap(
        side=side,
        item_id=item,
        shard=found.shard,
        record=found.record,
        record_id=found.record_id,
        jaccard=found.jaccard,
        estimate=found.estimate,
        containment_item=found.containment_document,
        containment_record=found.containment_reference,
        longest_run=found.longest_run,
        item_start=found.document_start,
        item_end=found.document_end,
        matched=found.matched,
        rule=found.rule,
    )


def matches_of(rows: Sequence[MixtureOverlap]) -> dict[tuple[str, str], MixtureOverlap]:
    """Matches by side and item, each with its longest common run."""
    best: dict[tuple[str, str], MixtureOverlap] = {}
    for row in sorted((row for row in rows if row.matched), key=lambda row: row.longest_run):
        best[row.side, row.item_id] = row
    return best


def side_facts(label: str, texts: Sequence[PoolText], rows: Sequence[MixtureOverlap]) -> list[AuditFact]:
    """Per side, the number of texts compared, of those that share n-grams with the mixture, and of those that match."""
    every = Counter(text.document_id.partition(":")[0] for text in texts)
    sharing = Counter(side for side, _ in {(row.side, row.item_id) for row in rows})
    matched = Counter(side for side, _ in matches_of(rows))
    return [
        AuditFact(name=f"{label}: {side} {what}", value=float(counts[side]))
        for side in every
        for what, counts in (("compared", every), ("sharing", sharing), ("matched", matched))
    ]


def conversation_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A prompt with its response as a conversation; any other row as it is."""
    said, context, replied = (_value(row, names) for names in (_ASKED, _CONTEXT, _REPLIED))
    if not said or not replied or isinstance(row.get("messages"), list):
        return row
    turns = [*_turns(said), *_turns(context), *_turns(replied)]
    named = {name: row[name] for name in ("id", "uuid", "question_id") if row.get(name) is not None}
    return {**named, "messages": turns}


def _turns(said: Any) -> list[Any]:
    """A text as a turn; turns as they are."""
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    return list(said) if isinstance(said, list) else []


def _value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name)), None)
