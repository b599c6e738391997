"""The chunk judge: a language model with a rubric, or rules on a text's form, keeps or drops each chunk."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from corpus.chunk.chunk import Chunk, Discard
from corpus.chunk.form import RULES, fault_of
from corpus.model_reply import ReplyProblem, ask
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.engines.worker_pool import Task, WorkerPool
from infuser_core.prompts.load import Template
from infuser_core.schemas import Document, Judgement

REASON_CHARS = 300
UNDECIDED = "undecided: the reply has no JSON boolean keep"
# Each attempt asks differently: a greedy model repeats itself on an unchanged prompt.
SUFFIXES = (
    "Your reply must be one JSON object whose key keep is true or false, without quotation marks around it.",
    'Answer now with exactly one line, either {"keep": true, "reason": "..."} or {"keep": false, "reason": "..."}.',
)
BY_SIZE = frozenset({Discard.TOO_SHORT, Discard.TOO_LONG})


def judge(
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
    """One row per document, in order.

    A reply without a JSON boolean `keep` is asked for again with a stricter last line. What is then still undecided is
    not kept, and says so.

    So many chunks as a `batch` has are judged at once, and each batch's rows are handed to `keep`, to be committed.
    `finished` are rows of an earlier attempt: their documents are not judged again.
    """
    known = {row.document_id: row for row in finished}
    ahead = [document for document in documents if document.document_id not in known]
    for start in range(0, len(ahead), batch):
        part = ahead[start : start + batch]
        # Done before: what is under way counts from there, so that the time left is right.
        before = len(documents) - len(ahead) + start
        rows = _judged(part, model, template, max_tokens, _shifted(progress, before, len(documents)))
        known |= {row.document_id: row for row in rows}
        keep(rows)
        progress(before + len(part), len(documents), 0)
    return [known[document.document_id] for document in documents]


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    def shown(done: int, _: int, tokens: int) -> None:
        progress(min(before + done, total), total, tokens)

    return shown


def _judged(
    documents: Sequence[Document],
    model: ChatModel,
    template: Template,
    max_tokens: int,
    progress: Progress,
) -> list[Judgement]:
    asked = ask(
        model,
        [template.messages(text=document.text) for document in documents],
        lambda place, found: _decision(found),
        task="judge",
        items=[document.document_id for document in documents],
        max_tokens=max_tokens,
        stricter=SUFFIXES,
        progress=progress,
    )
    last = {call.item: call.reply for call in asked.calls}
    return [
        Judgement(
            document_id=document.document_id,
            keep=keep,
            reason=reason,
            decided_by="judge",
            response=last[document.document_id],
        )
        for document, (keep, reason) in zip(
            documents, (value or (False, UNDECIDED) for value in asked.values), strict=True
        )
    ]


def _decision(found: dict[str, Any]) -> tuple[bool, str]:
    """Whether to keep the chunk, and why. A string "false" is no boolean: it would count as true."""
    keep = found.get("keep")
    if not isinstance(keep, bool):
        raise ReplyProblem('"keep" is neither true nor false')
    return keep, " ".join(str(found.get("reason", "")).split())[:REASON_CHARS]


def ruled_out(chunks: Sequence[Chunk]) -> list[Judgement]:
    """Rows for the spans that a rule discarded before the judge saw them."""
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
"""Chunks that one worker judges at once; fewer are judged here: a process takes longer to start."""
Decide = Callable[[Sequence[Document], WorkerPool, Progress], list[Judgement]]
"""One row per document, in order."""


def judge_by_rules(
    documents: Sequence[Document], workers: WorkerPool, progress: Progress = no_progress
) -> list[Judgement]:
    """Drops what no question can be asked about by its form alone, and keeps the rest."""
    parts = [documents[start : start + RULED_TOGETHER] for start in range(0, len(documents), RULED_TOGETHER)]
    task = Task(name="judging by rules", begin=_rules, item=_first)
    apart = workers.size > 1 and len(parts) > 1
    made: Iterator[tuple[int, list[Judgement]]] = workers.each(task, parts) if apart else enumerate(map(rule_on, parts))
    found: dict[int, list[Judgement]] = {}
    for place, rows in made:
        found[place] = rows
        progress(sum(map(len, found.values())), len(documents), 0)
    return [row for place in range(len(parts)) for row in found[place]]


def _rules() -> AbstractContextManager[Callable[[Sequence[Document]], list[Judgement]]]:
    return nullcontext(rule_on)


def _first(part: Sequence[Document]) -> str:
    return f"chunks from {part[0].document_id} on"


def rule_on(documents: Sequence[Document]) -> list[Judgement]:
    """A row per document, by its form."""
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
    """Keeps every chunk."""
    return keep_with(documents, reason="", decided_by="none")


def keep_with(documents: Sequence[Document], *, reason: str, decided_by: str) -> list[Judgement]:
    """Rows that keep every document, with the reason."""
    return [
        Judgement(document_id=row.document_id, keep=True, reason=reason, decided_by=decided_by, response="")
        for row in documents
    ]


WITHOUT_MODEL: dict[str, tuple[str, Decide]] = {"rules": (RULES, judge_by_rules), "none": ("none", keep_all)}
"""By the type of the judge in the settings: its name, and how it decides."""
