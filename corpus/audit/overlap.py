"""Contamination audit: does the pool repeat a dev, validation or benchmark question, or the other way round?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from corpus.audit.index import Matcher, Mode, OverlapConfig, Pair
from corpus.audit.ngrams import words
from corpus.audit.planted_controls import Plant, plant
from corpus.audit.shingles import estimate, signatures
from infuser_core.config.corpus import OverlapSettings
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.schemas import Document, Overlap, Question


def config_of(mode: Mode) -> OverlapConfig:
    """The settings of a named mode: loose takes n-grams of 5 words and half of a text for a match."""
    return OverlapConfig(mode=mode, n=5, containment=0.5) if mode == "loose" else OverlapConfig(mode=mode)


def configured(audit: OverlapSettings) -> OverlapConfig:
    """The settings of a run, with the mode's own values where they name none."""
    own = config_of(audit.mode)
    return replace(
        own,
        n=audit.n or own.n,
        containment=audit.containment or own.containment,
        run_words=audit.run_words,
        min_words=audit.min_words,
        paper_min_chars=audit.min_chars,
    )


Texts = Sequence[tuple[str, str]]
"""Identifiers and the texts that are compared."""


def serialise(question: Question) -> str:
    """Question, choices and reference answer in one string."""
    return " ".join([question.text, *question.choices, question.answer])


def audit(
    documents: Sequence[Document],
    references: Sequence[Question],
    config: OverlapConfig | None = None,
    *,
    progress: Progress = no_progress,
) -> tuple[list[Overlap], dict[str, float]]:
    """Compare every document with every reference, in both directions, and measure the search on planted controls.

    Gives every pair with a common n-gram and every planted control, then counts, matches and the recall of each kind of
    control; a kind without controls has no recall. A question is compared alone and with its choices and answer; the
    pair's row is the closer of the two.
    """
    config = config or OverlapConfig()
    chunks = [(document.document_id, document.text) for document in documents]
    items = [(q.question_id, text) for q in references for text in dict.fromkeys([q.text, serialise(q)])]
    rows = _compare(chunks, items, config, progress=progress)
    controls = plant(
        [text for _, text in chunks],
        [question.text for question in references],
        chars=config.control_chars,
        per_kind=config.controls_per_kind,
        answer_words=config.control_answer_words,
        seed=config.seed,
    )
    planted = []
    for control in controls:
        name = chunks[control.document][0]
        found = _compare([(name, control.text)], [(control.name, control.record)], config)
        # A pair that the search does not see is a row of zeros.
        planted.append(found[0] if found else _row(name, control.name, None, False, 0.0))
    return rows + planted, _counts(chunks, references, rows, config) | _recall(controls, planted, config)


def _compare(chunks: Texts, items: Texts, config: OverlapConfig, *, progress: Progress = no_progress) -> list[Overlap]:
    best: dict[tuple[str, str], Overlap] = {}
    ours, theirs = ([text for _, text in texts] for texts in (chunks, items))
    our_values, their_values = signatures(ours, config.n), signatures(theirs, config.n)
    found = _paper(ours, theirs, config) if config.mode == "paper" else {}
    exact = Matcher(theirs, config)
    for place, (document_id, text) in enumerate(chunks):
        pairs = {pair.item: pair for pair in exact.pairs([text], every=True)}
        for number in sorted(pairs.keys() | found.get(place, set())):
            pair = pairs.get(number)
            matched = number in found.get(place, set()) if config.mode == "paper" else bool(pair and pair.rule)
            close = estimate(our_values[place], their_values[number])
            row = _row(document_id, items[number][0], pair, matched, close)
            key = (row.document_id, row.reference_id)
            best[key] = max(best.get(key, row), row, key=_closeness)
        progress(place + 1, len(chunks), 0)
    return list(best.values())


def _paper(documents: Sequence[str], references: Sequence[str], config: OverlapConfig) -> dict[int, set[int]]:
    """References reported for each document: they are the queries, the documents are indexed."""
    from corpus.audit.lsh import PaperMatcher

    found: dict[int, set[int]] = {}
    for pair in PaperMatcher(documents, config).pairs(references):
        found.setdefault(pair.item, set()).add(pair.scanned)
    return found


def _closeness(row: Overlap) -> tuple[bool, float, int, float]:
    contained = max(row.containment_document, row.containment_reference)
    return row.matched, contained, row.longest_run, row.jaccard


def _row(document_id: str, reference_id: str, pair: Pair | None, matched: bool, minhash: float) -> Overlap:
    return Overlap(
        document_id=document_id,
        reference_id=reference_id,
        jaccard=pair.shared.jaccard if pair else 0.0,
        containment_document=pair.shared.containment_first if pair else 0.0,
        containment_reference=pair.shared.containment_second if pair else 0.0,
        longest_run=pair.shared.run.length if pair else 0,
        matched=matched,
        minhash=minhash,
    )


def _counts(
    chunks: Texts, references: Sequence[Question], rows: Sequence[Overlap], config: OverlapConfig
) -> dict[str, float]:
    lengths = [len(words(question.text)) for question in references]
    return {
        "documents": len(chunks),
        "references": len(references),
        "short_documents": sum(len(words(text)) < config.n for _, text in chunks),
        "short_references": sum(length < config.n for length in lengths),
        "below_paper_floor": sum(len(" ".join(words(q.text))) < config.paper_min_chars for q in references),
        "tiny_references": sum(length < config.min_words for length in lengths),
        "pairs_sharing": len(rows),
        "matches": sum(row.matched for row in rows),
        "matched_documents": len({row.document_id for row in rows if row.matched}),
        "matched_references": len({row.reference_id for row in rows if row.matched}),
    }


def _recall(controls: Sequence[Plant], rows: Sequence[Overlap], config: OverlapConfig) -> dict[str, float]:
    total: Counter[str] = Counter(control.label for control in controls)
    hits: Counter[str] = Counter()
    estimates: Counter[str] = Counter()
    for control, row in zip(controls, rows, strict=True):
        hits[control.label] += row.matched
        estimates[control.label] += row.minhash >= config.containment
    summary: dict[str, float] = {}
    for name, expected in dict.fromkeys((control.label, control.expected) for control in controls):
        label = "recall" if expected else "false_matches"
        summary[f"controls_{name}"] = total[name]
        summary[f"{label}_{name}"] = hits[name] / total[name]
        summary[f"minhash_{label}_{name}"] = estimates[name] / total[name]
    return summary
