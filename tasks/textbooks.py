"""Stages of textbooks: topics of the dev set, a search in catalogues, the choice of books, and their download.

Topics and sources are processed in groups, with an artifact per group. Within a group, answers and files survive a
killed process in folders of the store (`textbooks/answers`, `textbooks/books`).
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corpus.find import registry
from corpus.find.catalogue import Offer
from corpus.find.named_sources import SourceItem
from corpus.find.queries import PROMPTS, Query, librarian_of
from corpus.find.search import FailedQuery, Ranking, TopicSearch, search_topic
from corpus.find.topics import Assignment, Merge, extract_topics
from corpus.model_reply import ModelCall
from corpus.read.convert import storage_suffix
from corpus.read.file_kinds import file_of
from infuser_core import settings
from infuser_core.config.recorded import recorded
from infuser_core.errors import DocumentError
from infuser_core.evaluation.anchors import NamedModel, named_model
from infuser_core.evaluation.answering import template_digest
from infuser_core.nano.shelf import serve_shelf
from infuser_core.nano.world import world_of
from infuser_core.prompts.templates import load_or_shipped
from infuser_core.protocols import Progress
from infuser_core.schemas import Question, Source, Topic
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from infuser_core.system.sealed import digest_of_file
from tasks.run import Run, current_run
from tasks.stage import read_fact, stage
from tasks.work import Work

if TYPE_CHECKING:
    from corpus.find.session import CatalogueSession

T = TypeVar("T")
VERSION = 5
UNFINISHED = "unfinished"
"""Summary entry: number of items for which a later attempt may succeed, such as failed downloads."""
MANNERS = {"answers", "answer_days", "host_delay_seconds", "robots_exempt", "model", "shelf"}
"""Settings that affect only how catalogues are queried and enter no key (model and shelf enter by content)."""


def topic_groups(run: str, topics: ArtifactRef) -> range:
    """Range of the numbers of the topic groups."""
    return read_fact(
        run,
        lambda opened: _groups(opened, opened.store.manifest(topics).rows["topics"]),
        otherwise=range(1),
        note="how many groups of topics are searched for depends on the taxonomy: the plan takes one group",
    )


def source_groups(run: str, choice: ArtifactRef) -> range:
    """Range of the numbers of the groups of admitted sources."""
    return read_fact(
        run,
        lambda opened: _groups(opened, opened.store.manifest(choice).summary["admitted"]),
        otherwise=range(1),
        note="how many groups of textbooks there are depends on the choice: the plan takes one group",
    )


def numbered(name: str, refs: Sequence[ArtifactRef]) -> dict[str, ArtifactRef]:
    """Name the inputs of several groups: `name0`, `name1`, ..."""
    return {f"{name}{number}": ref for number, ref in enumerate(refs)}


def _groups(run: Run, items: int) -> range:
    return range(-(-items // run.config.corpus.group))


def _slice(run: Run, items: Sequence[T], group: int) -> list[T]:
    size = run.config.corpus.group
    return list(items[group * size : (group + 1) * size])


def retry_unfinished(run: str, stage_call: Callable[..., ArtifactRef], *inputs: Any) -> ArtifactRef:
    """Call a stage and return its artifact; try again if the stored one has unfinished items."""
    opened = current_run(run)
    for attempt in count():
        work = stage_call.__wrapped__(opened, *inputs, attempt=attempt)  # type: ignore[attr-defined]
        ref = opened.store.find(work.recipe)
        if ref is None or not opened.store.manifest(ref).summary.get(UNFINISHED):
            return stage_call(run, *inputs, attempt=attempt)
    raise AssertionError("numbers do not end")


def attempt_key(attempt: int) -> dict[str, int]:
    """Settings that distinguish the key of a repeated attempt."""
    return {"try": attempt} if attempt else {}


def _librarian_model(run: Run) -> tuple[NamedModel | None, dict[str, object]]:
    """The configured librarian model, which assigns topics, phrases queries and ranks books, and its part of a key."""
    source = run.config.corpus.catalogue.model
    if source is None:
        return None, {}
    model = named_model(source, run.config.engine, run.pool, label="librarian")
    prompts = [template_digest(load_or_shipped(name, profile=run.config.prompts)) for name in PROMPTS]
    return model, {**model.identity, "prompts": prompts}


@stage("taxonomy")
def extract_taxonomy(run: Run, dev: ArtifactRef) -> Work:
    """Extract the (domain, subdomain) pairs of the dev set, its only influence on later corpus stages."""
    model, identity = _librarian_model(run)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        librarian = librarian_of(model.chat(), run.config.prompts) if model else None
        taxonomy = extract_topics(run.store.rows(dev, "reference_questions", Question), librarian, progress=progress)
        failed = sum(bool(row.reason) for row in taxonomy.assignments)
        return Outcome(
            tables={
                "topics": Table(row_type=Topic, rows=taxonomy.topics),
                "topic_assignments": Table(row_type=Assignment, rows=taxonomy.assignments),
                "topic_merges": Table(row_type=Merge, rows=taxonomy.merges),
                "topic_calls": Table(row_type=ModelCall, rows=taxonomy.calls),
            },
            summary={"topics": len(taxonomy.topics), "merges": len(taxonomy.merges), "failed": failed},
        )

    return Work(recipe=run.recipe("taxonomy", VERSION, identity, {"dev": dev}), produce=produce)


@contextmanager
def _open_catalogues(run: Run, books: ArtifactRef | None) -> Iterator["CatalogueSession"]:
    """Open the configured catalogues; a micro-world's catalogue is served on loopback."""
    from corpus.find.session import open_catalogues

    served = serve_shelf(run.store.verified_folder(books)) if books else nullcontext("")
    with served as shelf:
        catalogues = open_catalogues(
            run.config.corpus.catalogue,
            shelf=shelf,
            folder=run.store.root / "textbooks" / "answers",
            search=settings.web_search_command(),
            contact=settings.contact(),
        )
        with catalogues as opened:
            yield opened


@stage("textbooks")
def print_textbooks(run: Run) -> Work:
    """Write the micro-world's textbooks as PDF files, with the catalogue that offers them."""
    world, shelf = run.config.corpus.catalogue.world, run.config.corpus.catalogue.shelf

    def produce(workspace: Path, progress: Progress) -> Outcome:
        # Imported here: the PDF writer takes a tenth of a second to import.
        from infuser_core.nano.textbooks import build_shelf

        books = build_shelf(workspace, seed=0, world=world_of(world), shelf=shelf)
        return Outcome(tables={}, summary={"offers": len(books)})

    values = recorded(run.config.corpus.catalogue, only=("world", "shelf"))
    return Work(recipe=run.recipe("textbooks", VERSION, values, {}), produce=produce)


@stage("search")
def search_textbooks(run: Run, topics: ArtifactRef, books: ArtifactRef | None, group: int, *, attempt: int = 0) -> Work:
    """Search the catalogues for one group of topics: ranked offers, and every answer."""
    group_topics = _slice(run, run.store.rows(topics, "topics", Topic), group)
    config = run.config.corpus.catalogue
    model, identity = _librarian_model(run)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from corpus.find.session import Answer

        librarian = librarian_of(model.chat(), run.config.prompts) if model else None
        searches: list[TopicSearch] = []
        with _open_catalogues(run, books) as opened:
            for count, topic in enumerate(group_topics, 1):
                searches.append(search_topic(topic, opened.catalogues, config, librarian=librarian))
                progress(count, len(group_topics), 0)
            answers = opened.recorder.answers
        failures = sum(len(search.failures) for search in searches)
        return Outcome(
            tables={
                "offers": Table(row_type=Offer, rows=[row for search in searches for row in search.offers]),
                "search_queries": Table(row_type=Query, rows=[row for search in searches for row in search.queries]),
                "rankings": Table(row_type=Ranking, rows=[row for search in searches for row in search.rankings]),
                "search_calls": Table(row_type=ModelCall, rows=[row for search in searches for row in search.calls]),
                "search_failures": Table(
                    row_type=FailedQuery, rows=[row for search in searches for row in search.failures], volatile=True
                ),
                "answers": Table(row_type=Answer, rows=answers, volatile=True),
            },
            summary={
                "offers": sum(len(search.offers) for search in searches),
                "failures": failures,
                UNFINISHED: failures,
            },
        )

    # Topics enter the key by name: other questions with the same topics give the same searches.
    pairs = [[topic.domain, topic.subdomain] for topic in group_topics]
    values = {
        "pairs": pairs,
        "catalogue": recorded(config, without=MANNERS),
        **identity,
        **attempt_key(attempt),
    }
    return Work(recipe=run.recipe("search", VERSION, values, {"books": books}), produce=produce)


@stage("choose")
def choose_textbooks(run: Run, topics: ArtifactRef, searches: Sequence[ArtifactRef], *, required: bool = True) -> Work:
    """Choose the offers that become sources, by licence, file, language, identity and rank; others get a reason."""

    def produce(workspace: Path, progress: Progress) -> Outcome:
        topic_rows = run.store.rows(topics, "topics", Topic)
        offers = [row for ref in searches for row in run.store.rows(ref, "offers", Offer)]
        rankings = [row for ref in searches for row in run.store.rows(ref, "rankings", Ranking)]
        rules = run.config.corpus.catalogue
        admission = registry.admit_offers(offers, topic_rows, rules, rankings)
        admitted = sum(source.status == registry.ADMITTED for source in admission.sources)
        if required and not admitted:
            raise DocumentError(
                f"no admissible textbook for {len(topic_rows)} topics ({len(admission.sources)} offers rejected)",
                hint="look at the rejected offers' reasons, or widen corpus.catalogue.licences",
            )
        bare = sum(not row.source_id for row in admission.coverage)
        return Outcome(
            tables={
                "candidates_sources": Table(row_type=Source, rows=admission.sources),
                "source_aliases": Table(row_type=registry.Alias, rows=admission.aliases),
                "coverage": Table(row_type=registry.Coverage, rows=admission.coverage),
            },
            summary={"admitted": admitted, "rejected": len(admission.sources) - admitted, "uncovered_topics": bare},
        )

    config = run.config.corpus.catalogue
    values = {"licences": config.licences, "languages": config.languages, "books_per_topic": config.books_per_topic}
    inputs = {"topics": topics, **numbered("search", searches)}
    return Work(recipe=run.recipe("choose", VERSION, values, inputs), produce=produce)


@stage("download")
def download_textbooks(
    run: Run, chosen: ArtifactRef, books: ArtifactRef | None, group: int, *, attempt: int = 0
) -> Work:
    """Download the files of one group of admitted sources; failed ones get a reason."""
    rows = run.store.rows(chosen, "candidates_sources", Source)
    group_sources = _slice(run, [source for source in rows if source.status == registry.ADMITTED], group)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        # Imported here, like all modules with HTTP: plans do not need them.
        from corpus.find.download import DownloadLog, Holdings, download_sources

        names: dict[str, list[str]] = {}
        for alias in run.store.rows(chosen, "source_aliases", registry.Alias):
            names.setdefault(alias.source_id, []).append(alias.identifier)
        # Different micro-worlds use the same file names, so each has a separate folder.
        holdings = Holdings(run.store.root / "textbooks" / ("books" if books is None else books.key))
        with _open_catalogues(run, books) as opened:
            sources, log = download_sources(
                group_sources, opened.address, workspace, holdings, opened.download, names=names, progress=progress
            )
        admitted = sum(bool(source.sha256) for source in sources)
        return Outcome(
            tables={
                "downloaded": Table(row_type=Source, rows=sources),
                "downloads": Table(row_type=DownloadLog, rows=log, volatile=True),
            },
            summary={"admitted": admitted, UNFINISHED: len(sources) - admitted},
        )

    # Sources enter the key by id and address: the ranking of the books does not matter.
    values = {"sources": [[source.source_id, source.download_url] for source in group_sources], **attempt_key(attempt)}
    return Work(recipe=run.recipe("download", VERSION, values, {"books": books}), produce=produce)


def _with_download(row: Source, downloads: dict[str, Source]) -> Source:
    """A candidate's row with the results of its download."""
    if row.status != registry.ADMITTED:
        return row
    download = downloads[row.source_id]
    return replace(
        row, sha256=download.sha256, num_bytes=download.num_bytes, status=download.status, reason=download.reason
    )


@stage("sources")
def shelve_textbooks(
    run: Run,
    chosen: ArtifactRef,
    downloads: Sequence[ArtifactRef],
    given: Sequence[ArtifactRef] = (),
    *,
    required: bool = True,
) -> Work:
    """Make the source registry and files: candidates with digest or reason, without duplicates or copies of `given`."""

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from corpus.find.download import link_file, reject_duplicates

        downloaded: dict[str, Source] = {}
        for ref in downloads:
            downloaded |= {row.source_id: row for row in run.store.rows(ref, "downloaded", Source)}
        rows = run.store.rows(chosen, "candidates_sources", Source)
        first = [row for ref in given for row in run.store.rows(ref, "sources", Source)]
        sources = reject_duplicates([*first, *(_with_download(row, downloaded) for row in rows)])[len(first) :]
        admitted = [source for source in sources if source.sha256]
        if required and not admitted:
            reasons = "; ".join(sorted({source.reason for source in sources}))
            raise DocumentError(f"no textbook could be downloaded: {reasons}", hint="check the catalogue's addresses")
        for ref in downloads:
            folder = run.store.verified_folder(ref)
            for source in admitted:
                path = file_of(folder, source.sha256)
                if path.is_file():
                    link_file(path, workspace)
        return Outcome(
            tables={"sources": Table(row_type=Source, rows=sources)},
            summary={"admitted": len(admitted), "rejected": len(sources) - len(admitted)},
        )

    inputs = {"chosen": chosen, **numbered("download", downloads), **numbered("given", given)}
    return Work(recipe=run.recipe("sources", VERSION, {}, inputs), produce=produce)


@stage("download")
def take_file(run: Run, item: SourceItem) -> Work:
    """Store a named file as a group of one book, downloaded and registered. Its path and name do not matter."""
    path, source = item.path, item.source
    assert path is not None, f"{item.input} has no file"
    name = f"{source.sha256}{storage_suffix(path)}"
    row = replace(source, title="", source_url="", download_url="", filename=name)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        shutil.copyfile(path, workspace / name)
        if digest_of_file(workspace / name) != source.sha256:
            raise DocumentError(f"{path} changed while it was read", hint="start again")
        rows = Table(row_type=Source, rows=[row])
        return Outcome(tables={"downloaded": rows, "sources": rows}, summary={"admitted": 1})

    values = {"given": [source.source_id, name, source.licence]}
    return Work(recipe=run.recipe("download", VERSION, values, {}), produce=produce)
