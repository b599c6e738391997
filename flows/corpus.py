"""Build the document pool, from the dev set's topics to accepted chunks (appendix: document pool construction).

A run fills its pool from the configured catalogues; `infuser corpus build` also builds one from named sources.
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
from corpus.find.named_sources import SourceItem, gather_sources, is_address
from corpus.settings import BuildSettings, build_settings
from infuser_core import settings
from infuser_core.config.overlays import load
from infuser_core.errors import BusyRunError, ConfigError, DocumentError, InfuserError, UsageError
from infuser_core.store.recipe import ArtifactRef
from infuser_core.terminal import live_console
from tasks import audits, documents, pool, textbooks
from tasks.pool import BookGroup, CatalogueSearch
from tasks.run import current_run, open_run
from tasks.stage import subflow
from tasks.textbooks import retry_unfinished


@subflow("build-corpus", "document pool of {run}")
def document_pool(run: str, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """Build a run's pool from catalogues or read the configured pool, without documents that the audits drop."""
    place = current_run(run).config.corpus.pool
    if place:
        if documents.has_registry(place):
            documents.read_registry(run, place)
        existing = documents.read_pool(run, place)
        return _audit_and_fill(run, dev, validation, [existing], [existing])
    search = _search(run, dev)
    pages = [documents.convert_textbooks(run, search.sources, download) for download in search.downloads]
    bounds = [_bounds(run, ref) for ref in pages]
    groups = zip(search.downloads, pages, bounds, strict=True)
    chunks = [documents.chunk_textbooks(run, search.sources, *group) for group in groups]
    judgements = [documents.judge_chunks(run, group) for group in chunks]
    return _audit_and_fill(run, dev, validation, chunks, judgements, search.sources, pages)


def _search(run: str, dev: ArtifactRef, files: Sequence[ArtifactRef] = (), *, build: bool = False) -> CatalogueSearch:
    """Search the catalogues for the dev set's topics and download their books, without copies of those in `files`.

    A run needs at least one book. A `build` may find none, and retries failed items of an earlier build.
    """
    topics = textbooks.extract_taxonomy(run, dev)
    # A micro-world's catalogue offers its own textbooks.
    nano = current_run(run).config.corpus.catalogue.type == "nano"
    books = textbooks.print_textbooks(run) if nano else None

    def run_stage(stage: Callable[..., ArtifactRef], *inputs: Any) -> ArtifactRef:
        return retry_unfinished(run, stage, *inputs) if build else stage(run, *inputs)

    searches = [run_stage(textbooks.search_textbooks, topics, books, n) for n in textbooks.topic_groups(run, topics)]
    choice = textbooks.choose_textbooks(run, topics, searches, required=not build)
    groups = textbooks.source_groups(run, choice)
    downloads = [run_stage(textbooks.download_textbooks, choice, books, n) for n in groups]
    sources = textbooks.shelve_textbooks(run, choice, downloads, files, required=not build)
    return CatalogueSearch(topics=topics, searches=searches, choice=choice, downloads=downloads, sources=sources)


def _bounds(run: str, pages: ArtifactRef) -> ArtifactRef | None:
    """Find where the teaching text of one group's books begins and ends, with a model; None if none is configured."""
    return documents.find_structure(run, pages) if documents.has_structure_model(run) else None


def _audit_and_fill(
    run: str,
    dev: ArtifactRef,
    validation: ArtifactRef,
    chunks: Sequence[ArtifactRef],
    judgements: Sequence[ArtifactRef],
    sources: ArtifactRef | None = None,
    pages: Sequence[ArtifactRef] = (),
) -> ArtifactRef:
    """Audit each group for overlap with questions, and all groups for overlap with other data; then fill the pool."""
    overlap = current_run(run).config.corpus.overlap
    benchmarks = documents.benchmark_questions(run)
    pairs = zip(chunks, judgements, strict=True)
    audited = [audits.audit_questions(run, *pair, dev, validation, benchmarks) for pair in pairs]
    compared = [audits.audit_data(run, chunks, judgements, dev, validation, path) for path in overlap.references]
    for path in overlap.mixture:
        mixture = audits.audit_data(run, chunks, judgements, dev, validation, path)
        if overlap.sft_matched == "stop":
            audits.refuse_matches(run, mixture, path)
    return pool.fill_pool(run, sources, pages, chunks, judgements, audited, compared)


def make_exported_pool(run: str, items: Sequence[SourceItem], build: BuildSettings, *, search: bool) -> ArtifactRef:
    """Make the pool of named sources and, with `search`, of catalogue books, for export; failed items are retried."""
    files = [textbooks.take_file(run, item) for item in items if item.path]
    catalogue = _search(run, documents.reference_questions(run, "dev"), files, build=True) if search else None
    offers = [(catalogue.sources, ref) for ref in catalogue.downloads] if catalogue else []
    pairs = [*((ref, ref) for ref in files), *offers]
    # All groups share one model: only one group may use it at a time.
    model_lock = Lock() if documents.asks_model(run) else nullcontext()
    with ThreadPoolExecutor(current_run(run).workers.size) as threads:
        groups = list(threads.map(lambda pair: _judge_group(run, pair[0], pair[1], model_lock), pairs))
    questions = {part: documents.reference_questions(run, part) for part in sorted(build.sets)}
    if current_run(run).config.evaluate.benchmarks and build.audited:
        questions["benchmarks"] = documents.benchmark_questions(run)
    comparison = None
    if questions or current_run(run).config.corpus.overlap.references:
        chunks, judgements = [group.chunks for group in groups], [group.judgements for group in groups]
        comparison = audits.compare_pool(run, chunks, judgements, questions)
    return pool.built_pool(run, items, catalogue, groups, comparison, build)


def _judge_group(
    run: str, sources: ArtifactRef, download: ArtifactRef, model_lock: AbstractContextManager[object]
) -> BookGroup:
    pages = retry_unfinished(run, documents.convert_textbooks, sources, download)
    with model_lock:
        bounds = _bounds(run, pages)
    chunks = documents.chunk_textbooks(run, sources, download, pages, bounds)
    with model_lock:
        judgements = documents.judge_chunks(run, chunks)
    return BookGroup(pages=pages, bounds=bounds, chunks=chunks, judgements=judgements)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPool:
    """Result of `infuser corpus build`."""

    facts: dict[str, Any]
    text: str
    failure: InfuserError | None
    """Error to raise after printing the text; None for success."""


def build_pool(
    sources: Sequence[str],
    out: Path,
    *,
    configs: Sequence[Path],
    search: bool,
    judge: str,
    workers: int | None,
) -> BuiltPool:
    """Build a pool from sources (and a search), with the stages of a run, and export it to the folder `out`."""
    try:
        config = load(configs) if configs else None
    except ConfigError as error:
        if "is missing" not in error.message:
            raise
        hint = "--config takes a run's configuration; name a complete one first: --config configs/qwen3-4b.yaml"
        raise ConfigError(error.message, hint=hint) from error
    from corpus.find.web_config import WebConfig

    missing = [text for text in sources if not is_address(text) and not Path(text).exists()]
    if missing and len(missing) == len(sources) and not search:
        raise UsageError(f"{missing[0]}: no such file or folder", hint="correct the path; nothing was written")
    build = build_settings(config, judge=judge)
    with pools.write_errors(out), _locked(out):
        pools.refuse_other_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        # One build at a time per folder; it protects its artifacts against gc, but commands list no such run.
        name = pools.build_name(out)
        with open_run(name, build.config, journal="corpus.jsonl", listed=False, workers=workers) as run:
            downloads = settings.writable_store_root() / "textbooks"
            with live_console("download") as console:
                items = gather_sources(sources, out, downloads, WebConfig(), progress=console.progress)
            ref = make_exported_pool(run.name, items, build, search=search)
            run.journal.finish()
            changed = pools.copy_pool(run.store.verified_folder(ref), list(run.store.manifest(ref).files), out)
    facts = {**pools.read_facts(out), "changed": changed}
    rows = pools.read_sources(out)
    failure = (
        None
        if facts["documents"]
        else DocumentError(report.empty_pool_message(rows), hint=report.empty_pool_hint(rows))
    )
    return BuiltPool(facts=facts, text=report.summary_text(facts, rows, out, changed=changed), failure=failure)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Name the folder in the error message if another process is building it."""
    try:
        yield
    except BusyRunError as error:
        raise BusyRunError(f"{out}: another build is at work there", hint="wait for it, or take --out") from error
