"""A language model keeps or drops each chunk. What it does not clearly keep is not kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corpus.chunk import Chunk, Discard
from corpus.model_reply import objects
from infuser_core.engines.protocols import ChatModel, Messages, Progress, no_progress
from infuser_core.prompts.load import Template
from infuser_core.schemas import Document, Judgement

REASON_CHARS = 300
ATTEMPTS = 3
UNDECIDED = "undecided: the reply has no JSON boolean keep"
# Each attempt asks differently: a greedy model repeats itself on an unchanged prompt.
SUFFIXES = (
    "Your reply must be one JSON object whose key keep is true or false, without quotation marks around it.",
    'Answer now with exactly one line, either {"keep": true, "reason": "..."} or {"keep": false, "reason": "..."}.',
)
BY_SIZE = frozenset({Discard.TOO_SHORT, Discard.TOO_LONG})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a reply says."""

    keep: bool
    """The reply's own boolean."""
    reason: str
    """The reply's own reason, one line."""


def judge(
    documents: Sequence[Document],
    model: ChatModel,
    template: Template,
    max_tokens: int,
    *,
    retry: Template | None = None,
    attempts: int = ATTEMPTS,
    batch: int = 0,
    finished: Sequence[Judgement] = (),
    keep: Callable[[Sequence[Judgement]], None] | None = None,
    progress: Progress = no_progress,
) -> list[Judgement]:
    """One row per document, in order.

    A reply without a JSON boolean `keep` is asked for again, up to `attempts` times in all: with the `retry` template,
    or with the rubric and a stricter last line. What is then still undecided is not kept, and says so.

    With `batch`, so many chunks are judged at once and each batch's rows are handed to `keep`, to be committed.
    `finished` are rows of an earlier attempt: their documents are not judged again.
    """
    known = {row.document_id: row for row in finished}
    ahead = [document for document in documents if document.document_id not in known]
    size = batch or max(len(ahead), 1)
    for start in range(0, len(ahead), size):
        part = ahead[start : start + size]
        # Done before: what is under way counts from there, so that the time left is right.
        before = len(documents) - len(ahead) + start
        rows = _judged(part, model, template, max_tokens, retry, attempts, _shifted(progress, before, len(documents)))
        known |= {row.document_id: row for row in rows}
        if keep:
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
    retry: Template | None,
    attempts: int,
    progress: Progress,
) -> list[Judgement]:
    replies = [""] * len(documents)
    decisions: list[Decision | None] = [None] * len(documents)
    for attempt in range(max(attempts, 1)):
        ahead = [place for place, decision in enumerate(decisions) if decision is None]
        if not ahead:
            break
        prompts = [_prompt(documents[place], template, retry, attempt) for place in ahead]
        for place, reply in zip(ahead, model.complete(prompts, max_tokens=max_tokens, progress=progress), strict=True):
            replies[place], decisions[place] = reply, decide(reply)
    return [_row(*found) for found in zip(documents, replies, decisions, strict=True)]


def _prompt(document: Document, template: Template, retry: Template | None, attempt: int) -> Messages:
    chosen = retry if attempt and retry else template
    prompt = chosen.messages(text=document.text)
    if not attempt or (retry and attempt == 1):
        return prompt
    suffix = SUFFIXES[min(attempt, len(SUFFIXES)) - 1]
    return [*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}\n\n{suffix}"}]


def decide(reply: str) -> Decision | None:
    """The first JSON object of a reply with a boolean `keep`, after any thoughts; None when there is none.

    A string "false" is no boolean: it would count as true.
    """
    for found in objects(reply.rpartition("</think>")[2]):
        keep = found.get("keep")
        if isinstance(keep, bool):
            reason = " ".join(str(found.get("reason", "")).split())
            return Decision(keep=keep, reason=reason[:REASON_CHARS])
    return None


def _row(document: Document, reply: str, decision: Decision | None) -> Judgement:
    return Judgement(
        document_id=document.document_id,
        keep=decision is not None and decision.keep,
        reason=decision.reason if decision else UNDECIDED,
        decided_by="judge",
        response=reply,
    )


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
