"""Write an HTML page for reviewing the books of a pool by eye.

For each book it shows sample chunks next to pictures of their pages, formulas, listings, and the removed text with the
reasons.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from corpus.chunk.chunk import CONVERT, Discarded
from corpus.pool import DISCARDED, DOCUMENTS, PoolSource, read_facts, read_sources, require_built
from infuser_core.errors import DocumentError
from infuser_core.results.lineage.pages import environment
from infuser_core.results.report.page import style
from infuser_core.schemas import Document
from infuser_core.seeding import seed_of
from infuser_core.store.tables import TableRows
from infuser_core.system import child, durable

AROUND = 400
"""Characters of the Markdown shown before and after a chunk."""
SAMPLES = 5
"""Samples shown per book: listings, and discarded spans and removed lines of each reason; twice as many formulas."""
PICTURES = "infuser_core.results.view.pictures:pictures"
LIMITS = child.Limits(wall_seconds=120.0, cpu_seconds=120)

_FORMULA = re.compile(r"\$\$[^$]{3,300}\$\$|\$[^$\n]{3,160}\$")
_LISTING = re.compile(r"^```[^\n]*\n.*?^```", re.M | re.S)
_SCRIPTED = re.compile(r"[_^]\{|\\(?:frac|sqrt|sum|int)")


def write(pool: Path, file: Path, *, books: int, chunks: int) -> dict[str, Any]:
    """Write the review page: `books` random books that have documents, `chunks` chunks of each; the seed is fixed.

    Raises UsageError for a folder that is not a built pool.
    """
    require_built(pool)
    sources = read_sources(pool)
    draw = random.Random(seed_of(0, "corpus-shown"))
    admitted = [row for row in sources if row.num_documents]
    source_ids = {row.source_id for row in draw.sample(admitted, min(books, len(admitted)))}
    documents = _by_source(TableRows(pool / DOCUMENTS, Document), source_ids)
    discarded = _by_source(TableRows(pool / DISCARDED, Discarded), source_ids)
    sampled_books = [
        _book(pool, row, documents.get(row.source_id, []), discarded.get(row.source_id, []), draw, chunks)
        for row in admitted
        if row.source_id in source_ids
    ]
    rejected = [row for row in sources if not row.num_documents]
    # All text is escaped, so that nothing in a book can make the page load or run anything.
    page = (
        environment("corpus.show")
        .get_template("books.html")
        .render(facts=read_facts(pool), books=sampled_books, admitted=len(admitted), rejected=rejected, style=style())
    )
    durable.write(file, page.encode("utf-8", "replace"))
    samples = [chunk for book in sampled_books for chunk in book["chunks"]]
    return {
        "file": str(file),
        "books": len(sampled_books),
        "chunks": len(samples),
        "pictures": sum(chunk["picture"] is not None for chunk in samples),
        "bytes": file.stat().st_size,
    }


def _by_source(rows: Iterable[Any], source_ids: set[str]) -> dict[str, list[Any]]:
    by_source: dict[str, list[Any]] = {}
    for row in rows:
        if row.source_id in source_ids:
            by_source.setdefault(row.source_id, []).append(row)
    return by_source


def _book(
    pool: Path,
    source: PoolSource,
    documents: Sequence[Document],
    discarded: Sequence[Discarded],
    draw: random.Random,
    chunks: int,
) -> dict[str, Any]:
    """Variables of the page's template for one book."""
    text = (pool / source.markdown).read_bytes().decode("utf-8", "replace")
    sample = sorted(draw.sample(range(len(documents)), min(chunks, len(documents))))
    rows = [documents[place] for place in sample]
    pictures, reason = _pictures(source, [row.text for row in rows])
    samples = [
        {
            "document": row,
            "before": text[max(0, row.start - AROUND) : row.start],
            "after": text[row.end : row.end + AROUND],
            "picture": picture,
        }
        for row, picture in zip(rows, pictures, strict=True)
    ]
    formulas = sorted({formula for row in documents for formula in _FORMULA.findall(row.text)})
    listings = [listing for row in documents for listing in _LISTING.findall(row.text)]
    spans = [
        ("judge" if row.stage == "judge" else row.reason, text[row.start : row.end]) for row in discarded if row.is_span
    ]
    # Formulas with subscripts, fractions or large operators first.
    some = sorted(_some(formulas, draw, 4 * SAMPLES), key=lambda each: not _SCRIPTED.search(each))
    return {
        "source": source,
        "chunks": samples,
        "no_picture": reason,
        "formulas": some[: 2 * SAMPLES],
        "listings": _some(listings, draw, SAMPLES),
        "discarded": _counted(spans, draw),
        "removed": _counted([(row.reason, row.text) for row in discarded if row.stage == CONVERT], draw),
    }


def _pictures(source: PoolSource, texts: list[str]) -> tuple[list[dict[str, Any] | None], str]:
    """A picture of the page of each chunk, or None; and the reason if there are no pictures."""
    none: list[dict[str, Any] | None] = [None] * len(texts)
    path = Path(source.input)
    if "://" in source.input or not path.is_file():
        return none, f"{source.input} is not available"
    data = path.read_bytes()
    if not data.startswith(b"%PDF-"):
        return none, "the source has no pages"
    if hashlib.sha256(data).hexdigest() != source.sha256:
        return none, f"{source.input} is another file than the pool was built from"
    try:
        pictures = child.call(PICTURES, {"path": str(path), "texts": texts}, LIMITS)
    except DocumentError as error:
        return none, error.message
    return pictures, "" if any(pictures) else "no page was recognised"


def _counted(rows: Sequence[tuple[str, str]], draw: random.Random) -> list[tuple[str, int, Sequence[str]]]:
    """Group texts by reason: (reason, number of texts, a few samples), the most frequent first."""
    counts = Counter(reason for reason, _ in rows)
    return [
        (reason, count, _some([text for own, text in rows if own == reason], draw, SAMPLES))
        for reason, count in counts.most_common()
    ]


def _some(rows: Sequence[str], draw: random.Random, count: int) -> list[str]:
    return [rows[place] for place in sorted(draw.sample(range(len(rows)), min(count, len(rows))))]
