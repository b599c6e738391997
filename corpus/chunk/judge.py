"""The chunk judge: a language model with a rubric, or rules on a text's form, keeps or drops each chunk."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from corpus.chunk.chunk import Chunk, Discard
from corpus.model_reply import ReplyProblem, ask
from corpus.read.garble import math_garbled
from infuser_core.engines.crew import Crew, Task
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
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
    batch: int = 0,
    finished: Sequence[Judgement] = (),
    keep: Callable[[Sequence[Judgement]], None] | None = None,
    progress: Progress = no_progress,
) -> list[Judgement]:
    """One row per document, in order.

    A reply without a JSON boolean `keep` is asked for again with a stricter last line. What is then still undecided is
    not kept, and says so.

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
        rows = _judged(part, model, template, max_tokens, _shifted(progress, before, len(documents)))
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


RULES = "rules-4"
MIN_LINES = 6
"""Lines or entries below which a list is too short to be told from prose."""
LIST_SHARE = 0.6
"""Share of a chunk's lines that have the form of a list of contents, an index, or a list of references."""
DEBRIS = 0.4
"""`math_garbled` of a chunk whose formulas came out as scattered signs."""
LETTERS = 0.35
"""Share of letters among the visible signs of prose below which a chunk is numbers and signs."""
LONG_WORD = re.compile(r"(?<!\S)(?=[A-Za-z])[A-Za-z.()/*,:_-]{50,}")
RUN_TOGETHER = 0.4
"""Share of the visible signs of prose in words of such a length from which the blanks between them are lost."""
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"\S.*?(?P<leader>\s*\.(?:\s*\.)+\s*|\s+)(?P<page>\d{1,4}|[ivxlc]{1,7})\s*$")
RISING = 0.9
"""Share of neighbouring entries whose page numbers do not fall: exercises end in numbers, too, but in any order."""
INDEX = re.compile(r"\S[^.!?]{0,80}?,\s*\d{1,4}(?:\s*[-\u2013,]\s*\d{1,4}|\s*,?\s*see(?: also)? [^.]+)*\.?\s*$")
ENTRIES = re.compile(r"\n\s*\n|\n(?=[-*] |\\?\[\w{1,12}\\?\])|(?<=[.\d]) (?=\[\d{1,3}\] [A-Z])")
ENTRY_WORDS = 80
"""Words of an entry of a list of sources; a paragraph that cites has more."""
REFERENCE = re.compile(
    r"^\s*(?:[-*]\s+)?\\?\[\w{1,12}\\?\]|\bdoi\b|\bISBN\b|\bpp?\.\s*\d|\bet al\.|\bProc\.|\bJournal\b|\bPress\b|\bvol\."
    r"|^\W*(?:[A-Z]\.[ -]?){1,3}\s?[A-Z][a-z]+|^\W*[A-Z][\w-]+,? [A-Z](?:[A-Z]?\b|\.)"
    r"|\b\d+\s?(?:\(\d+\))?\s?:\s?\d+\s?[-\u2013]\s?\d+"
)
LEGAL = re.compile(
    r"\b(?:licen[cs](?:e[sd]?|ing|ees?|ors?)|copyright(?:ed|s)?|warrant(?:y|ies)|(?:re)?distribut(?:e[sd]?|ing|ion)"
    r"|liab(?:le|ility)|(?:in)?fring(?:e|es|ing|ement)|damages|permissions?|derivative|patents?|modif(?:y|ied|ications?)"
    r"|permitted|granted|trademarks?|rights reserved|free software|public domain|general public|merchantability)\b",
    re.I,
)
LEGAL_SHARE = 0.05
"""Share of a paragraph's words that are those of a licence from which it is part of one."""
LEGAL_PART = 0.5
"""Share of a chunk's words in such paragraphs from which it is a licence."""
DEGREE = re.compile(
    r"\b(?:received|holds?|earned|obtained|completed) (?:his|her|their|the|an?)\b[^.]{0,40}?"
    r"\b(?:B\.?\s?S|B\.?\s?A|M\.?\s?S|Ph\.?\s?D|D\.?\s?Phil|bachelor|master|doctora?t?e?|diploma|degrees?)\b"
)
CAREER = re.compile(
    r"\bresearch interests\b|\b(?:assistant|associate|full|emeritus) professor\b|\bProfessor (?:of|at)\b", re.I
)
YEAR = re.compile(r"\b(?:1[89]|20)\d\d[a-z]?\b")


RULED_TOGETHER = 128
"""Chunks that one worker judges at once; fewer are judged here: a process takes longer to start."""
Decide = Callable[[Sequence[Document], Crew, Progress], list[Judgement]]
"""One row per document, in order."""


def judge_by_rules(documents: Sequence[Document], crew: Crew, progress: Progress = no_progress) -> list[Judgement]:
    """Drops what no question can be asked about by its form alone, and keeps the rest."""
    if crew.number < 2 or len(documents) < RULED_TOGETHER:
        progress(len(documents), len(documents), 0)
        return rule_on(documents)
    parts = [documents[start : start + RULED_TOGETHER] for start in range(0, len(documents), RULED_TOGETHER)]
    found: dict[int, list[Judgement]] = {}
    for place, rows in crew.each(Task(name="judging by rules", begin=_rules, item=_first), parts):
        found[place] = rows
        progress(sum(map(len, found.values())), len(documents), 0)
    return [row for place in range(len(parts)) for row in found[place]]


@contextmanager
def _rules() -> Iterator[Callable[[Sequence[Document]], list[Judgement]]]:
    yield rule_on


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


def keep_all(documents: Sequence[Document], crew: Crew, progress: Progress = no_progress) -> list[Judgement]:
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


def fault_of(text: str) -> str:
    """Reason for which a chunk teaches nothing by its form; empty when it may teach something."""
    if _is_legal(text):
        return "a licence: its words are about rights"
    if DEGREE.search(text) and len(CAREER.findall(text)) + len(DEGREE.findall(text)) > 1:
        return "biographies: degrees and posts of authors"
    prose = FENCE.sub("", text)
    lines = [line.strip() for line in prose.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) >= MIN_LINES and not _is_table(lines):
        if sum(bool(INDEX.match(line)) for line in lines) >= LIST_SHARE * len(lines):
            return "an index: most lines are a term and page numbers"
        if _is_contents(lines):
            return "a list of contents: most lines end in a page number"
    if _is_sources(prose):
        return "a list of references: most entries cite a work with its year"
    if math_garbled(prose) >= DEBRIS:
        return "debris of formulas: most words are one or two signs"
    ink = "".join(prose.split())
    if ink and sum(map(len, LONG_WORD.findall(prose))) >= RUN_TOGETHER * len(ink):
        return "words run together: most are longer than any word"
    if ink and sum(map(str.isalpha, ink)) < LETTERS * len(ink) and prose.strip() == text.strip():
        return "numbers and signs: few letters"
    return ""


def _is_sources(prose: str) -> bool:
    """Entries that cite a work with its year; in a list of them most words are theirs."""
    entries = [entry for entry in ENTRIES.split(prose) if entry.strip()]
    cited = [e for e in entries if YEAR.search(e) and REFERENCE.search(e) and len(e.split()) < ENTRY_WORDS]
    if len(entries) < MIN_LINES or len(cited) < MIN_LINES / 2:
        return False
    words = sum(len(entry.split()) for entry in cited)
    return len(cited) >= LIST_SHARE * len(entries) or words >= LIST_SHARE * len(prose.split())


def _is_legal(text: str) -> bool:
    """Whether most of a text is in paragraphs about rights; one of a tool for licences names them throughout."""
    sizes = [(len(part.split()), len(LEGAL.findall(part))) for part in re.split(r"\n\s*\n", text)]
    words = sum(size for size, _ in sizes)
    legal = sum(size for size, found in sizes if found > max(1, LEGAL_SHARE * size))
    return legal > LEGAL_PART * words or sum(found for _, found in sizes) > LEGAL_SHARE * words


def _is_contents(lines: Sequence[str]) -> bool:
    """Entries with leaders, or with page numbers that rise."""
    found = [match for line in lines if (match := ENTRY.match(line))]
    if len(found) < LIST_SHARE * len(lines):
        return False
    if sum("." in match["leader"] for match in found) >= LIST_SHARE * len(found):
        return True
    pages = [int(match["page"]) for match in found if match["page"].isdecimal()]
    rising = sum(left <= right for left, right in pairwise(pages))
    return len(pages) >= MIN_LINES and pages[0] < pages[-1] and rising >= RISING * (len(pages) - 1)


def _is_table(lines: Sequence[str]) -> bool:
    """A table of numbers teaches something; its rows end in a bar."""
    return sum(line.startswith("|") for line in lines) > len(lines) / 2
