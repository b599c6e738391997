"""The document pool, from the dev set's topics to kept chunks (appendix: document pool construction).

A run fills its pool from the configured catalogues; `infuser corpus build` makes one of named sources, too.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from corpus import pool as pools
from corpus import report
from corpus.find.intake import Item, gather
from corpus.settings import BuildSettings, build_settings
from infuser_core import settings
from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.errors import BusyRunError, ConfigError, DocumentError, InfuserError
from infuser_core.store.recipe import ArtifactRef
from infuser_core.terminal import live
from tasks import audits, documents, pool, textbooks
from tasks.pool import Found, Group
from tasks.run import current_run, open_run
from tasks.stage import subflow
from tasks.textbooks import retried


@subflow("build-corpus")
def document_pool(run: str, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """The documents of the textbooks, or of a pool that is given, without what the audit takes away."""
    place = current_run(run).config.corpus.pool
    if place:
        if documents.has_registry(place):
            documents.read_registry(run, place)
        given = documents.read_pool(run, place)
        return _audited(run, dev, validation, [given], [given])
    found = _searched(run, dev)
    pages = [documents.convert_textbooks(run, found.sources, download) for download in found.downloads]
    bounds = [_bounds(run, ref) for ref in pages]
    groups = zip(found.downloads, pages, bounds, strict=True)
    chunks = [documents.chunk_textbooks(run, found.sources, *group) for group in groups]
    judgements = [documents.judge_chunks(run, group) for group in chunks]
    return _audited(run, dev, validation, chunks, judgements, found.sources, pages)


def _searched(run: str, dev: ArtifactRef, given: Sequence[ArtifactRef] = (), *, build: bool = False) -> Found:
    """Taxonomy, search and download: what the catalogues offer, but for the books that are `given`.

    A run needs one at least. A `build` needs none, and retries what an earlier one lacked.
    """
    topics = textbooks.extract_taxonomy(run, dev)
    # The micro-world's textbooks, where they are what the catalogue offers.
    nano = current_run(run).config.corpus.catalogue.type == "nano"
    books = textbooks.print_textbooks(run) if nano else None

    def made(stage: Callable[..., ArtifactRef], *inputs: Any) -> ArtifactRef:
        return retried(run, stage, *inputs) if build else stage(run, *inputs)

    searches = [made(textbooks.search_textbooks, topics, books, n) for n in textbooks.topic_groups(run, topics)]
    chosen = textbooks.choose_textbooks(run, topics, searches, required=not build)
    groups = textbooks.source_groups(run, chosen)
    downloads = [made(textbooks.download_textbooks, chosen, books, n) for n in groups]
    sources = textbooks.shelve_textbooks(run, chosen, downloads, given, required=not build)
    return Found(topics=topics, searches=searches, chosen=chosen, downloads=downloads, sources=sources)


def _bounds(run: str, pages: ArtifactRef) -> ArtifactRef | None:
    """Bounds of the teaching text of one group's books, where the settings ask a model for them."""
    return documents.find_structure(run, pages) if documents.has_structure_model(run) else None


def _audited(
    run: str,
    dev: ArtifactRef,
    validation: ArtifactRef,
    chunks: Sequence[ArtifactRef],
    judgements: Sequence[ArtifactRef],
    sources: ArtifactRef | None = None,
    pages: Sequence[ArtifactRef] = (),
) -> ArtifactRef:
    """The overlap audit of each group against questions, of all against other data, and the pool."""
    overlap = current_run(run).config.corpus.overlap
    asked = documents.benchmark_questions(run)
    pairs = zip(chunks, judgements, strict=True)
    found = [audits.audit_questions(run, *pair, dev, validation, asked) for pair in pairs]
    compared = [audits.audit_data(run, chunks, judgements, dev, validation, path) for path in overlap.references]
    for path in overlap.mixture:
        mixture = audits.audit_data(run, chunks, judgements, dev, validation, path)
        if overlap.sft_matched == "stop":
            audits.refuse_matches(run, mixture, path)
    return pool.fill_pool(run, sources, pages, chunks, judgements, found, compared)


def built_pool(run: str, items: Sequence[Item], build: BuildSettings, *, search: bool) -> ArtifactRef:
    """The pool of named sources and perhaps catalogues' offers, to export; what an earlier build lacked is retried."""
    given = [textbooks.take_file(run, item) for item in items if item.path]
    found = _searched(run, documents.reference_questions(run, "dev"), given, build=True) if search else None
    offered = [(found.sources, ref) for ref in found.downloads] if found else []
    pairs = [*((ref, ref) for ref in given), *offered]
    # A model that is asked is one for all.
    asking = Lock() if documents.asks_model(run) else nullcontext()
    with ThreadPoolExecutor(current_run(run).workers.size) as threads:
        groups = list(threads.map(lambda pair: _judged(run, pair[0], pair[1], asking), pairs))
    comparison = _compared(run, groups, build)
    return pool.built_pool(run, items, found, groups, comparison, build)


def _judged(run: str, sources: ArtifactRef, download: ArtifactRef, asking: AbstractContextManager[object]) -> Group:
    pages = retried(run, documents.convert_textbooks, sources, download)
    with asking:
        bounds = _bounds(run, pages)
    chunks = documents.chunk_textbooks(run, sources, download, pages, bounds)
    with asking:
        judgements = documents.judge_chunks(run, chunks)
    return Group(pages=pages, bounds=bounds, chunks=chunks, judgements=judgements)


def _compared(run: str, groups: list[Group], build: BuildSettings) -> ArtifactRef | None:
    """The audit of what is kept, against the question sets that are there and other data; None without any."""
    questions = {part: documents.reference_questions(run, part) for part in sorted(build.sets)}
    if current_run(run).config.evaluate.benchmarks and build.audited:
        questions["benchmarks"] = documents.benchmark_questions(run)
    if not questions and not current_run(run).config.corpus.overlap.references:
        return None
    chunks, judgements = [group.chunks for group in groups], [group.judgements for group in groups]
    return audits.compare_pool(run, chunks, judgements, questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPool:
    """Output of a build."""

    facts: dict[str, Any]
    """For programs."""
    text: str
    """For people."""
    failure: InfuserError | None
    """Error to end with after showing it; None for success."""


def build_pool(
    sources: Sequence[str],
    out: Path,
    *,
    configs: Sequence[Path],
    search: bool,
    judge: str,
    workers: int | None,
) -> BuiltPool:
    """Search, fetch, convert, chunk, judge and audit by the stages of a run, in its store; export the pool."""
    config = _configured(configs)
    from corpus.find.guard import WebConfig

    planned = build_settings(config, judge=judge)
    with pools.writing(out), _alone(out):
        pools.refuse_imported(out)
        out.mkdir(parents=True, exist_ok=True)
        # One build at a time for a folder; it holds what it made against gc, but is no run that others follow.
        name = pools.build_name(out)
        with open_run(name, planned.config, journal="corpus.jsonl", listed=False, workers=workers) as run:
            fetched = settings.writable_store_root() / "textbooks"
            with live("download") as console:
                items = gather(sources, out, fetched, WebConfig(), progress=console.progress)
            made = built_pool(run.name, items, planned, search=search)
            run.journal.finish()
            changed = pools.copy_pool(run.store.verified_folder(made), list(run.store.manifest(made).files), out)
    facts = {**pools.read_facts(out), "changed": changed}
    rows = pools.read_sources(out)
    failure = None if facts["documents"] else DocumentError(report.why_empty(rows), hint=report.hint(rows))
    return BuiltPool(facts=facts, text=report.terminal(facts, rows, out, changed=changed), failure=failure)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """A folder has one build at a time: the store's words for a run that is held say which folder is meant."""
    try:
        yield
    except BusyRunError as error:
        raise BusyRunError(f"{out}: another build is at work there", hint="wait for it, or take --out") from error


def _configured(configs: Sequence[Path]) -> RunConfig | None:
    try:
        return load(configs) if configs else None
    except ConfigError as error:
        if "is missing" not in error.message:
            raise
        hint = "--config takes a run's configuration; name a complete one first: --config configs/qwen3-4b.yaml"
        raise ConfigError(error.message, hint=hint) from error
