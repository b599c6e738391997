"""The data that an instruction-finetuned anchor was trained on, against everything that a run learns or is judged by.

A record of such a mixture is a conversation, or a prompt with its response; the other layouts are those of
`references.py`. Appendix: contamination audit, deduplication check.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from corpus.audit.overlap import OverlapConfig, serialise
from corpus.audit.references import Shard, records
from corpus.audit.scan import Finding, PoolText, Scan, Scanner
from infuser_core.schemas import Document, Question

LOOKED_AT = 100
"""Records that say which layout a file has."""
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


class MixtureScanner(Scanner):
    """Scans a mixture's files; `workspace` takes the copy of one that has another layout."""

    def __init__(self, path: Path, texts: Sequence[PoolText], config: OverlapConfig, workspace: Path) -> None:
        super().__init__(path, texts, config)
        self._workspace = workspace

    def scan(self, shard: Shard, progress: Callable[[int], None] = lambda size: None) -> Scan:
        """Compare every record of the shard. `progress` is told the bytes done."""
        return super().scan(readable(shard, self._workspace), progress)


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


def readable(shard: Shard, folder: Path) -> Shard:
    """The shard with prompts and responses as conversations, under the same name and with the same record numbers.

    The shard itself where none of its first records is such a pair, else a copy of it in `folder`.
    """
    if not any(_is_pair(row) for row in islice(records(shard), LOOKED_AT)):
        return shard
    path = folder / "mixture.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in _conversations(shard))
    return Shard(name=shard.name, path=path, num_bytes=path.stat().st_size)


def _conversations(shard: Shard) -> Iterator[Mapping[str, Any]]:
    return (_as_conversation(row) if _is_pair(row) else row for row in records(shard))


def _is_pair(row: Mapping[str, Any]) -> bool:
    return bool(_value(row, _ASKED)) and bool(_value(row, _REPLIED)) and not isinstance(row.get("messages"), list)


def _as_conversation(row: Mapping[str, Any]) -> Mapping[str, Any]:
    turns = [*_turns(_value(row, _ASKED)), *_turns(_value(row, _CONTEXT)), *_turns(_value(row, _REPLIED))]
    named = {name: row[name] for name in ("id", "uuid", "question_id") if row.get(name) is not None}
    return {**named, "messages": turns}


def _turns(said: Any) -> list[Any]:
    """A text as a turn; turns as they are."""
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    return list(said) if isinstance(said, list) else []


def _value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name)), None)
