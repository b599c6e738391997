"""Judge chunks: decide which to keep and which to drop, with a language model and a rubric or with rules on form."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from corpus.chunk.chunk import Chunk, Discard
from corpus.chunk.form import RULES, fault_of
from corpus.model_reply import ReplyProblem, ask_model
from infuser_core.prompts.templates import Template
from infuser_core.protocols import ChatModel, Progress, no_progress
from infuser_core.schemas import Document, Judgement
from infuser_core.system.worker_pool import Task, WorkerPool

REASON_CHARS = 300
UNDECIDED = "undecided: the reply has no JSON boolean keep"
# Every attempt ends in a different line: a model that decodes greedily repeats itself on an unchanged prompt.
SUFFIXES = (
    "Your reply must be one JSON object whose key keep is true or false, without quotation marks around it.",
    'Answer now with exactly one line, either {"keep": true, "reason": "..."} or {"keep": false, "reason": "..."}.',
)
BY_SIZE = frozenset({Discard.TOO_SHORT, Discard.TOO_LONG})


def judge_by_model(
    documents: Sequence[Document],
    model: ChatModel,
    template: Template,
    max_tokens: int,
    *,
    batch: int,
    finished: Sequence[Judgement],
    keep: Callable[[Sequence[Judgement]], None],
    progress: Progress = no_progress,
) -> list[Judgement]:
    """Judge documents with a language model; returns one row per document, in order.

    A reply without a JSON boolean `keep` is asked for again with a stricter last line. A document that is then still
    undecided is dropped with the reason UNDECIDED.

    `batch` documents are judged at once; then their rows are passed to `keep`, which saves them. `finished` are rows
    of an earlier attempt: their documents are not judged again.
    """
    rows = {row.document_id: row for row in finished}
    ahead = [document for document in documents if document.document_id not in rows]
    for start in range(0, len(ahead), batch):
        part = ahead[start : start + batch]
        finished_count = len(documents) - len(ahead) + start

        def report(count: int, _: int, tokens: int, before: int = finished_count) -> None:
            progress(min(before + count, len(documents)), len(documents), tokens)

        batch_rows = _judge_batch(part, model, template, max_tokens, report)
        rows |= {row.document_id: row for row in batch_rows}
        keep(batch_rows)
        progress(finished_count + len(part), len(documents), 0)
    return [rows[document.document_id] for document in documents]


def _judge_batch(
    documents: Sequence[Document],
    model: ChatModel,
    template: Template,
    max_tokens: int,
    progress: Progress,
) -> list[Judgement]:
    values, calls = ask_model(
        model,
        [template.messages(text=document.text) for document in documents],
        lambda place, reply: _parse_decision(reply),
        task="judge",
        items=[document.document_id for document in documents],
        max_tokens=max_tokens,
        stricter=SUFFIXES,
        progress=progress,
    )
    last = {call.item: call.reply for call in calls}
    return [
        Judgement(
            document_id=document.document_id,
            keep=keep,
            reason=reason,
            decided_by="judge",
            response=last[document.document_id],
        )
        for document, value in zip(documents, values, strict=True)
        for keep, reason in [value or (False, UNDECIDED)]
    ]


def _parse_decision(reply: dict[str, Any]) -> tuple[bool, str]:
    """Read the decision and its reason from a reply. The string "false" is refused: it would count as true."""
    keep = reply.get("keep")
    if not isinstance(keep, bool):
        raise ReplyProblem('"keep" is neither true nor false')
    return keep, " ".join(str(reply.get("reason", "")).split())[:REASON_CHARS]


def ruled_out(chunks: Sequence[Chunk]) -> list[Judgement]:
    """Judgement rows for chunks discarded before the judge, for their size, structure or garbled formulas."""
    return [
        Judgement(
            document_id=row.document.document_id,
            keep=False,
            reason=row.discard.value,
            decided_by="size" if row.discard in BY_SIZE else "structure",
            response="",
        )
        for row in chunks
        if row.discard is not None
    ]


RULED_TOGETHER = 128
"""Chunks in one task of a worker. Up to this number no workers are used: starting them would take longer."""
Decide = Callable[[Sequence[Document], WorkerPool, Progress], list[Judgement]]
"""Judges documents without a model; returns one row each, in order."""


def judge_by_rules(
    documents: Sequence[Document], workers: WorkerPool, progress: Progress = no_progress
) -> list[Judgement]:
    """Judge by rules: drop documents whose form alone, such as that of an index, shows that they teach nothing."""
    parts = [documents[start : start + RULED_TOGETHER] for start in range(0, len(documents), RULED_TOGETHER)]
    results: Iterator[tuple[int, list[Judgement]]]
    if workers.size > 1 and len(parts) > 1:
        task = Task(name="judging by rules", begin=_open_rules, item=_part_name)
        results = workers.each(task, parts)
    else:
        results = enumerate(map(rule_on, parts))
    rows_by_part: dict[int, list[Judgement]] = {}
    for place, rows in results:
        rows_by_part[place] = rows
        progress(sum(map(len, rows_by_part.values())), len(documents), 0)
    return [row for place in range(len(parts)) for row in rows_by_part[place]]


def _open_rules() -> AbstractContextManager[Callable[[Sequence[Document]], list[Judgement]]]:
    return nullcontext(rule_on)


def _part_name(part: Sequence[Document]) -> str:
    return f"chunks from {part[0].document_id} on"


def rule_on(documents: Sequence[Document]) -> list[Judgement]:
    """Judge documents by the rules on form in this process; returns one row each."""
    faults = [(document, fault_of(document.text)) for document in documents]
    return [
        Judgement(
            document_id=document.document_id,
            keep=not fault,
            reason=fault or "passes every rule",
            decided_by="judge",
            response="",
        )
        for document, fault in faults
    ]


def keep_all(documents: Sequence[Document], workers: WorkerPool, progress: Progress = no_progress) -> list[Judgement]:
    """Judge that keeps every document."""
    return keep_with(documents, reason="", decided_by="none")


def keep_with(documents: Sequence[Document], *, reason: str, decided_by: str) -> list[Judgement]:
    """Judgement rows that keep every document, all with the same reason."""
    return [
        Judgement(document_id=row.document_id, keep=True, reason=reason, decided_by=decided_by, response="")
        for row in documents
    ]


WITHOUT_MODEL: dict[str, tuple[str, Decide]] = {"rules": (RULES, judge_by_rules), "none": ("none", keep_all)}
"""Judges that need no model: their type in the settings to their name in recipes and their function."""
