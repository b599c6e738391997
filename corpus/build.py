"""Sources to a document pool in a folder, without a scheduler: `infuser corpus build`.

Every finished step is a file in the pool's work folder, named by the digest of everything it depends on. A build that
was killed, or whose inputs changed, finds what is still valid there and does the rest.
"""

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from corpus import pool as files
from corpus.audit.scan import Finding
from corpus.build_audit import Overlapping, OverlapPlan, audit_built
from corpus.chunk.judge import Judge
from corpus.find.intake import Item
from corpus.pool import (
    DISCARDED,
    DOCUMENTS,
    MARKDOWN,
    OVERLAPS,
    SOURCES,
    WORK,
    Discarded,
    PoolSource,
    markdown_name,
    write_json,
    write_table,
)
from corpus.source_steps import Chunked, Converted, SourceConfig, chunked, converted, key
from infuser_core import durable
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import BusyRunError, StoreError, UsageError
from infuser_core.schemas import Document

VERSION = 2
Stages = Callable[[str], AbstractContextManager[Progress]]
"""Name of a step to the progress that it reports to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """How sources become a pool."""

    source: SourceConfig = field(default_factory=SourceConfig)
    """Conversion and chunks."""
    judge: Judge | None = None
    """Who keeps or drops chunks; None keeps all."""
    overlap: OverlapPlan | None = None
    """What the pool is compared with; None for nothing."""
    workers: int = 1
    """Files converted, and references scanned, at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What one source became."""

    item: Item
    """What was given."""
    made: Converted | None
    """Its conversion; None when it was rejected before."""
    documents: list[Document]
    """Kept chunks in order."""
    discarded: list[Discarded]
    """All else; together with the documents a tiling of the Markdown."""
    num_chars: int = 0
    """Characters of the Markdown."""
    structure: str = ""
    """Who cut front and back matter."""

    @property
    def row(self) -> PoolSource:
        """Row of the sources table."""
        return _row(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All sources."""

    sources: list[Built]
    """In the order in which they were given."""
    overlap: Overlapping | None
    """What the audit found; None without one."""
    changed: bool
    """Whether the tables had to be written."""

    @property
    def documents(self) -> list[Document]:
        """Kept chunks of all sources."""
        return [row for source in self.sources for row in source.documents]

    @property
    def discarded(self) -> list[Discarded]:
        """Everything else."""
        return [row for source in self.sources for row in source.discarded]


@contextmanager
def held(out: Path) -> Iterator[None]:
    """The folder for one build at a time.

    Raises StoreError when it cannot be written, BusyRunError when it is held, UsageError for an imported pool.
    """
    if (out / files.IMPORTED).is_file():
        raise UsageError(f"{out} holds an imported pool", hint="name another folder with --out")
    try:
        (out / WORK).mkdir(parents=True, exist_ok=True)
        lock = (out / WORK / "lock").open("w")
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror}", hint="name a folder you may write") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyRunError(f"{out}: another build is at work there", hint="wait for it, or take --out") from error
        yield


def _silent(_: str) -> AbstractContextManager[Progress]:
    return nullcontext(no_progress)


def build(items: Sequence[Item], out: Path, config: BuildConfig, *, stages: Stages = _silent) -> Pool:
    """Convert, chunk, judge and audit every item; write documents, discards, sources, overlaps and Markdown."""
    work = out / WORK
    with stages("sources") as progress:
        built = _chunk_all(items, work, config, progress)
    if config.judge:
        with stages("judge, chunks") as progress:
            built = _judged(built, config.judge, progress)
    overlap = None
    if config.overlap:
        with stages("audit, MB") as progress:
            documents = [row for one in built for row in one.documents]
            overlap = audit_built(documents, config.overlap, work, workers=config.workers, progress=progress)
        built = _without(built, {name: ("overlap", reason, "") for name, reason in overlap.dropped.items()})
    return Pool(sources=built, overlap=overlap, changed=_write(built, overlap, out))


def _chunk_all(items: Sequence[Item], work: Path, config: BuildConfig, progress: Progress) -> list[Built]:
    """Conversions run in processes beside this one, as many as there are workers."""
    built: list[Built] = []
    with ThreadPoolExecutor(max_workers=max(config.workers, 1)) as threads:
        pages = [threads.submit(converted, item, work, config.source) for item in items]
        try:
            for done, (item, page) in enumerate(zip(items, pages, strict=True), 1):
                made = page.result()
                text = made is not None and not made.reason
                parts = chunked(item, made, work, config.source) if made and text else _NOTHING
                built.append(_of(item, made, parts))
                progress(done, len(items), 0)
        finally:
            threads.shutdown(cancel_futures=True)
    return built


_NOTHING = Chunked(documents=[], discarded=[], num_chars=0, structure="")


def _of(item: Item, made: Converted | None, parts: Chunked) -> Built:
    return Built(
        item=item,
        made=made,
        documents=parts.documents,
        discarded=parts.discarded,
        num_chars=parts.num_chars,
        structure=parts.structure,
    )


def _judged(built: Sequence[Built], judge: Judge, progress: Progress) -> list[Built]:
    """Kept documents, and dropped ones among the discards."""
    documents = [row for one in built for row in one.documents]
    verdicts = judge.decide(documents, progress=progress)
    return _without(built, {row.document_id: ("judge", row.reason, row.response) for row in verdicts if not row.keep})


def _without(built: Sequence[Built], dropped: dict[str, tuple[str, str, str]]) -> list[Built]:
    """The sources without some documents: they become discards, with (stage, reason, response)."""
    result = []
    for one in built:
        out = [row for row in one.documents if row.document_id in dropped]
        spans = [
            Discarded(
                source_id=row.source_id,
                start=row.start,
                end=row.end,
                stage=dropped[row.document_id][0],
                reason=dropped[row.document_id][1],
                header_path=row.header_path,
                num_tokens=row.num_tokens,
                response=dropped[row.document_id][2],
            )
            for row in out
        ]
        kept = [row for row in one.documents if row.document_id not in dropped]
        discarded = sorted([*one.discarded, *spans], key=lambda row: row.start)
        result.append(replace(one, documents=kept, discarded=discarded) if out else one)
    return result


def _ending(one: Built) -> tuple[str, str]:
    """Stage and reason of a source that gave no documents; both empty for one that gave some."""
    if one.made is None:
        return one.item.stage, one.item.source.reason
    if one.made.reason:
        return "convert", one.made.reason
    if one.documents:
        return "", ""
    reasons: dict[str, int] = {}
    for row in one.discarded:
        if row.reason != "blank":
            label = row.stage if row.stage in ("judge", "overlap") else row.reason
            reasons[label] = reasons.get(label, 0) + 1
    stage = next((name for name in ("overlap", "judge") if name in reasons), "chunk")
    return stage, "no documents: " + ", ".join(f"{count} spans {name}" for name, count in sorted(reasons.items()))


def _row(one: Built) -> PoolSource:
    source, made = one.item.source, one.made
    stage, reason = _ending(one)
    text = made is not None and not made.reason
    return PoolSource(
        source_id=source.source_id,
        input=one.item.given,
        title=source.title,
        author=source.author,
        domain=source.discipline,
        subdomain=one.item.subdomain,
        licence=source.licence,
        licence_evidence=source.licence_evidence,
        sha256=source.sha256,
        num_bytes=source.num_bytes,
        converter=made.converter if made else "",
        chosen=made.chosen if made else "",
        num_pages=made.num_pages if made else 0,
        num_chars=one.num_chars,
        num_documents=len(one.documents),
        num_discarded=sum(row.reason != "blank" for row in one.discarded),
        markdown=f"{MARKDOWN}/{markdown_name(source.source_id)}" if text else "",
        status="rejected" if stage else "admitted",
        stage=stage,
        reason=reason,
        structure=one.structure,
    )


def _write(built: Sequence[Built], overlap: Overlapping | None, out: Path) -> bool:
    """Write the tables unless they are there already. Markdown first: no row ever points to a missing text."""
    state = out / WORK / "written.json"
    texts = {one.row.markdown: one.made for one in built if one.made and one.row.markdown}
    tables = [DOCUMENTS, DISCARDED, SOURCES, *([OVERLAPS] if overlap else [])]
    whole = all((out / name).is_file() for name in [*tables, *texts])
    wanted = {"tables": _digest(built, overlap), "markdown": {name: made.sha256 for name, made in texts.items()}}
    before = json.loads(state.read_text()) if state.is_file() else {}
    if whole and before == wanted:
        return False
    state.unlink(missing_ok=True)
    old = before.get("markdown", {}) if isinstance(before, dict) else {}
    for name, made in texts.items():
        if old.get(name) != made.sha256 or not (out / name).is_file():
            durable.write(out / name, made.page().markdown.encode("utf-8"))
    for path in (out / MARKDOWN).glob("*.md"):
        if f"{MARKDOWN}/{path.name}" not in texts:
            path.unlink()
    write_table(out / DISCARDED, [row for one in built for row in one.discarded], Discarded)
    if overlap:
        write_table(out / OVERLAPS, overlap.findings, Finding)
    else:
        (out / OVERLAPS).unlink(missing_ok=True)
    write_table(out / DOCUMENTS, [row for one in built for row in one.documents], Document)
    write_table(out / SOURCES, [one.row for one in built], PoolSource)
    write_json(state, wanted)
    return True


def _digest(built: Sequence[Built], overlap: Overlapping | None) -> str:
    """Of everything in the tables; a text stands in it by the digest of its source's Markdown and its span."""
    total = hashlib.sha256(key(VERSION, overlap.identity if overlap else "").encode())
    for one in built:
        total.update(key(asdict(one.row), one.made.sha256 if one.made else "").encode())
        for document in one.documents:
            # Without a place in the Markdown, as the comparison splitter leaves it, the text speaks for itself.
            text = document.text if document.start < 0 else ""
            total.update(key(asdict(replace(document, text=text))).encode())
        for row in one.discarded:
            total.update(key(asdict(row)).encode())
    return total.hexdigest()
