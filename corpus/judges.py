"""Who decides on the chunks of a build: a language model by a rubric, or rules without a model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from corpus.garble import math_garbled
from corpus.judge import judge
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.prompts.load import Template
from infuser_core.schemas import Document, Judgement

RULES = "rules-1"
MIN_LINES = 6
"""Lines or entries below which a list is too short to be told from prose."""
LIST_SHARE = 0.6
"""Share of a chunk's lines that have the form of a list of contents, an index, or a list of references."""
DEBRIS = 0.4
"""`math_garbled` of a chunk whose formulas came out as scattered signs."""
LETTERS = 0.35
"""Share of letters among the visible signs of prose below which a chunk is numbers and signs."""
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"\S.*?(?P<leader>\s*\.(?:\s*\.)+\s*|\s+)(?P<page>\d{1,4}|[ivxlc]{1,7})\s*$")
RISING = 0.9
"""Share of neighbouring entries whose page numbers do not fall: exercises end in numbers, too, but in any order."""
INDEX = re.compile(r"\S[^.!?]{0,80}?,\s*\d{1,4}(?:\s*[-\u2013,]\s*\d{1,4}|\s*,?\s*see(?: also)? [^.]+)*\.?\s*$")
REFERENCE = re.compile(
    r"^\s*(?:[-*]\s+)?\\?\[\w{1,12}\\?\]|\bdoi\b|\bISBN\b|\bpp?\.\s*\d|\bet al\.|\bProc\.|\bJournal\b|\bPress\b|\bvol\."
)
YEAR = re.compile(r"\b(?:1[89]|20)\d\d[a-z]?\b")


class Judge(Protocol):
    """Keeps or drops chunks."""

    @property
    def name(self) -> str:
        """What the report shows."""
        ...

    def decide(self, documents: Sequence[Document], *, progress: Progress = no_progress) -> list[Judgement]:
        """One row per document, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJudge:
    """A language model with the rubric of `corpus.judge`."""

    model: ChatModel
    """Answers prompts; a KeptChat does not answer the same one twice."""
    template: Template
    """Rubric with the slot `{text}`."""
    max_tokens: int
    """Length limit of a reply, tokens."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def decide(self, documents: Sequence[Document], *, progress: Progress = no_progress) -> list[Judgement]:
        """One row per document, in order."""
        return judge(documents, self.model, self.template, self.max_tokens, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleJudge:
    """Drops what no question can be asked about by its form alone, and keeps the rest."""

    @property
    def name(self) -> str:
        """Name and version of the rules."""
        return RULES

    def decide(self, documents: Sequence[Document], *, progress: Progress = no_progress) -> list[Judgement]:
        """One row per document, in order."""
        rows = []
        for done, document in enumerate(documents, 1):
            fault = fault_of(document.text)
            rows.append(
                Judgement(
                    document_id=document.document_id,
                    keep=not fault,
                    reason=fault or "passes every rule",
                    decided_by="judge",
                    response="",
                )
            )
            progress(done, len(documents), 0)
        return rows


def fault_of(text: str) -> str:
    """Why a chunk teaches nothing by its form; empty when it may teach something."""
    prose = FENCE.sub("", text)
    lines = [line.strip() for line in prose.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) >= MIN_LINES and not _is_table(lines):
        if sum(bool(INDEX.match(line)) for line in lines) >= LIST_SHARE * len(lines):
            return "an index: most lines are a term and page numbers"
        if _is_contents(lines):
            return "a list of contents: most lines end in a page number"
    entries = [entry for entry in re.split(r"\n\s*\n|\n(?=[-*] |\\?\[\w{1,12}\\?\])", prose) if entry.strip()]
    cited = sum(bool(YEAR.search(entry) and REFERENCE.search(entry)) for entry in entries)
    if len(entries) >= MIN_LINES and cited >= LIST_SHARE * len(entries):
        return "a list of references: most entries cite a work with its year"
    if math_garbled(prose) >= DEBRIS:
        return "debris of formulas: most words are one or two signs"
    ink = [sign for sign in prose if not sign.isspace()]
    if ink and sum(sign.isalpha() for sign in ink) < LETTERS * len(ink) and prose.strip() == text.strip():
        return "numbers and signs: few letters"
    return ""


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
