"""A language model keeps or drops each chunk. What it does not clearly keep is not kept."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corpus.chunk import Chunk, Discard
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.prompts.load import Template
from infuser_core.schemas import Document, Judgement

REASON_CHARS = 300
THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
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
    progress: Progress = no_progress,
) -> list[Judgement]:
    """One row per document, in order.

    A reply without a JSON boolean `keep` is asked again with the `retry` template where one is given (a greedy model
    repeats itself on the same prompt). What is then still undecided is not kept, and says so.
    """
    prompts = [template.messages(text=document.text) for document in documents]
    replies = model.complete(prompts, max_tokens=max_tokens, progress=progress) if prompts else []
    decisions = [decide(reply) for reply in replies]
    open_places = [place for place, decision in enumerate(decisions) if decision is None]
    if retry and open_places:
        again = [retry.messages(text=documents[place].text) for place in open_places]
        for place, reply in zip(open_places, model.complete(again, max_tokens=max_tokens), strict=True):
            replies[place], decisions[place] = reply, decide(reply)
    rows = zip(documents, replies, decisions, strict=True)
    return [_row(document, reply, decision) for document, reply, decision in rows]


def decide(reply: str) -> Decision | None:
    """The first JSON object of a reply with a boolean `keep`; None when there is none.

    A string "false" is no boolean: it would count as true.
    """
    for found in _objects(THOUGHT.sub("", reply)):
        keep = found.get("keep")
        if isinstance(keep, bool):
            reason = " ".join(str(found.get("reason", "")).split())
            return Decision(keep=keep, reason=reason[:REASON_CHARS])
    return None


def _objects(text: str) -> Iterator[dict[str, object]]:
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            found, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(found, dict):
                yield found
        place = text.find("{", end)


def _row(document: Document, reply: str, decision: Decision | None) -> Judgement:
    return Judgement(
        document_id=document.document_id,
        keep=decision is not None and decision.keep,
        reason=decision.reason if decision else "undecided: the reply has no JSON boolean keep",
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
