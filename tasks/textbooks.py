"""Textbook stages: the target's topics, what catalogues offer for them, which books are taken, and their files.

Topics and sources are worked on in groups: each group is an artifact of its own. Within a group, answers and files
outlive a killed process in folders of the store (`textbooks/answers`, `textbooks/books`), so it loses one item at most.
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
from corpus.find.intake import Item
from corpus.find.queries import PROMPTS, Query, librarian_of
from corpus.find.search import Failure, Ranking, TopicSearch, search_topic
from corpus.find.topics import Assignment, Merge, extract
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
    from corpus.find.download import Holdings
    from corpus.find.session import Opened

T = TypeVar("T")
VERSION = 5
UNFINISHED = "unfinished"
"""Name in a summary: what a later attempt may bring, such as a book whose download failed."""
MANNERS = {"answers", "answer_days", "host_delay_seconds", "robots_exempt", "model", "shelf"}
"""Settings that say how catalogues are asked and not what: they enter no key (model and shelf enter by content)."""


def topic_groups(run: str, topics: ArtifactRef) -> range:
    """Numbers of the groups of topics."""
    return read_fact(
        run,
        lambda opened: _groups(opened, opened.store.manifest(topics).rows["topics"]),
        otherwise=range(1),
        note="how many groups of topics are searched for depends on the taxonomy: one group stands for all",
    )


def source_groups(run: str, chosen: ArtifactRef) -> range:
    """Numbers of the groups of admitted sources."""
    return read_fact(
        run,
        lambda opened: _groups(opened, opened.store.manifest(chosen).summary["admitted"]),
        otherwise=range(1),
        note="how many groups of textbooks there are depends on what is chosen: one group stands for all",
    )


def numbered(name: str, refs: Sequence[ArtifactRef]) -> dict[str, ArtifactRef]:
    """Inputs of several groups."""
    return {f"{name}{number}": ref for number, ref in enumerate(refs)}


def _groups(run: Run, items: int) -> range:
    return range(-(-items // run.config.corpus.group))


def _slice(run: Run, items: Sequence[T], group: int) -> list[T]:
    size = run.config.corpus.group
    return list(items[group * size : (group + 1) * size])


def retried(run: str, made: Callable[..., ArtifactRef], *given: Any) -> ArtifactRef:
    """The stage's artifact; made once more where an earlier build left something unfinished in it."""
    opened = current_run(run)
    for attempt in count():
        work = made.__wrapped__(opened, *given, attempt=attempt)  # type: ignore[attr-defined]
        ref = opened.store.find(work.recipe)
        if ref is None or not opened.store.manifest(ref).summary.get(UNFINISHED):
            return made(run, *given, attempt=attempt)
    raise AssertionError("numbers do not end")


def later(attempt: int) -> dict[str, int]:
    """The part of a key by which a later attempt differs."""
    return {"try": attempt} if attempt else {}


def _model(run: Run) -> tuple[NamedModel | None, dict[str, object]]:
    """The configured model, and what it adds to a key."""
    source = run.config.corpus.catalogue.model
    if source is None:
        return None, {}
    speaker = named_model(source, run.config.engine, run.pool, label="librarian")
    prompts = [template_digest(load_or_shipped(name, profile=run.config.prompts)) for name in PROMPTS]
    return speaker, {**speaker.identity, "prompts": prompts}


@stage("taxonomy")
def extract_taxonomy(run: Run, dev: ArtifactRef) -> Work:
    """The (domain, subdomain) pairs of the dev set: `topics` is all that later corpus stages read of it."""
    model, identity = _model(run)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        librarian = librarian_of(model.chat(), run.config.prompts) if model else None
        found = extract(run.store.rows(dev, "reference_questions", Question), librarian, progress=progress)
        failed = sum(bool(row.reason) for row in found.assignments)
        return Outcome(
            tables={
                "topics": Table(row_type=Topic, rows=found.topics),
                "topic_assignments": Table(row_type=Assignment, rows=found.assignments),
                "topic_merges": Table(row_type=Merge, rows=found.merges),
                "topic_calls": Table(row_type=ModelCall, rows=found.calls),
            },
            summary={"topics": len(found.topics), "merges": len(found.merges), "failed": failed},
        )

    return Work(recipe=run.recipe("taxonomy", VERSION, identity, {"dev": dev}), produce=produce)


def _holdings(run: Run, books: ArtifactRef | None) -> "Holdings":
    """Every book that was fetched. Each micro-world prints its own under the same names: they are held apart."""
    # Here and below, what speaks HTTP is imported where books are fetched: a plan fetches none.
    from corpus.find.download import Holdings

    return Holdings(run.store.root / "textbooks" / ("books" if books is None else books.key))


@contextmanager
def _opened(run: Run, books: ArtifactRef | None) -> Iterator["Opened"]:
    """The configured catalogues; the micro-world's is served on loopback for as long as it is needed."""
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
    """The micro-world's textbooks as PDF files, with the catalogue that offers them."""
    world, shelf = run.config.corpus.catalogue.world, run.config.corpus.catalogue.shelf

    def produce(workspace: Path, progress: Progress) -> Outcome:
        # Imported here: what writes PDF files takes a tenth of a second.
        from infuser_core.nano.textbooks import build_shelf

        books = build_shelf(workspace, seed=0, world=world_of(world), shelf=shelf)
        return Outcome(tables={}, summary={"offers": len(books)})

    values = recorded(run.config.corpus.catalogue, only=("world", "shelf"))
    return Work(recipe=run.recipe("textbooks", VERSION, values, {}), produce=produce)


@stage("search")
def search_textbooks(run: Run, topics: ArtifactRef, books: ArtifactRef | None, group: int, *, attempt: int = 0) -> Work:
    """Offers of the catalogues for one group of pairs, ranked, with every answer."""
    wanted = _slice(run, run.store.rows(topics, "topics", Topic), group)
    config = run.config.corpus.catalogue
    model, identity = _model(run)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from corpus.find.session import Answer

        librarian = librarian_of(model.chat(), run.config.prompts) if model else None
        found: list[TopicSearch] = []
        with _opened(run, books) as opened:
            for done, topic in enumerate(wanted, 1):
                found.append(search_topic(topic, opened.catalogues, config, librarian=librarian))
                progress(done, len(wanted), 0)
            answers = opened.recorder.answers
        failures = sum(len(search.failures) for search in found)
        return Outcome(
            tables={
                "offers": Table(row_type=Offer, rows=[row for search in found for row in search.offers]),
                "search_queries": Table(row_type=Query, rows=[row for search in found for row in search.queries]),
                "rankings": Table(row_type=Ranking, rows=[row for search in found for row in search.rankings]),
                "search_calls": Table(row_type=ModelCall, rows=[row for search in found for row in search.calls]),
                "search_failures": Table(
                    row_type=Failure, rows=[row for search in found for row in search.failures], volatile=True
                ),
                "answers": Table(row_type=Answer, rows=answers, volatile=True),
            },
            summary={
                "offers": sum(len(search.offers) for search in found),
                "failures": failures,
                UNFINISHED: failures,
            },
        )

    # The pairs enter by name: a question more or less changes no search.
    pairs = [[topic.domain, topic.subdomain] for topic in wanted]
    values = {
        "pairs": pairs,
        "catalogue": recorded(config, without=MANNERS),
        **identity,
        **later(attempt),
    }
    return Work(recipe=run.recipe("search", VERSION, values, {"books": books}), produce=produce)


@stage("choose")
def choose_textbooks(run: Run, topics: ArtifactRef, searches: Sequence[ArtifactRef], *, required: bool = True) -> Work:
    """Choice of the offers that become sources, by licence, file, language, identity and rank; others say why not."""

    def produce(workspace: Path, progress: Progress) -> Outcome:
        wanted = run.store.rows(topics, "topics", Topic)
        offers = [row for ref in searches for row in run.store.rows(ref, "offers", Offer)]
        rankings = [row for ref in searches for row in run.store.rows(ref, "rankings", Ranking)]
        rules = run.config.corpus.catalogue
        chosen = registry.admit(offers, wanted, rules, rankings)
        admitted = sum(source.status == registry.ADMITTED for source in chosen.sources)
        if required and not admitted:
            raise DocumentError(
                f"no admissible textbook for {len(wanted)} topics ({len(chosen.sources)} offers rejected)",
                hint="look at the rejected offers' reasons, or widen corpus.catalogue.licences",
            )
        bare = sum(not row.source_id for row in chosen.coverage)
        return Outcome(
            tables={
                "candidates_sources": Table(row_type=Source, rows=chosen.sources),
                "source_aliases": Table(row_type=registry.Alias, rows=chosen.aliases),
                "coverage": Table(row_type=registry.Coverage, rows=chosen.coverage),
            },
            summary={"admitted": admitted, "rejected": len(chosen.sources) - admitted, "uncovered_topics": bare},
        )

    config = run.config.corpus.catalogue
    values = {"licences": config.licences, "languages": config.languages, "books_per_topic": config.books_per_topic}
    inputs = {"topics": topics, **numbered("search", searches)}
    return Work(recipe=run.recipe("choose", VERSION, values, inputs), produce=produce)


@stage("download")
def download_textbooks(
    run: Run, chosen: ArtifactRef, books: ArtifactRef | None, group: int, *, attempt: int = 0
) -> Work:
    """The files of one group of admitted sources; refused ones stay with their reason."""
    rows = run.store.rows(chosen, "candidates_sources", Source)
    wanted = _slice(run, [source for source in rows if source.status == registry.ADMITTED], group)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from corpus.find.download import DownloadLog, download

        names: dict[str, list[str]] = {}
        for alias in run.store.rows(chosen, "source_aliases", registry.Alias):
            names.setdefault(alias.source_id, []).append(alias.identifier)
        holdings = _holdings(run, books)
        with _opened(run, books) as opened:
            sources, log = download(
                wanted, opened.address, workspace, holdings, opened.download, names=names, progress=progress
            )
        admitted = sum(bool(source.sha256) for source in sources)
        return Outcome(
            tables={
                "downloaded": Table(row_type=Source, rows=sources),
                "downloads": Table(row_type=DownloadLog, rows=log, volatile=True),
            },
            summary={"admitted": admitted, UNFINISHED: len(sources) - admitted},
        )

    # The sources enter by what is fetched: another ranking of the same books fetches nothing again.
    values = {"sources": [[source.source_id, source.download_url] for source in wanted], **later(attempt)}
    return Work(recipe=run.recipe("download", VERSION, values, {"books": books}), produce=produce)


def _after(row: Source, after: dict[str, Source]) -> Source:
    """A candidate with what its download gave; the words about it are the candidate's own."""
    if row.status != registry.ADMITTED:
        return row
    got = after[row.source_id]
    return replace(row, sha256=got.sha256, num_bytes=got.num_bytes, status=got.status, reason=got.reason)


@stage("sources")
def shelve_textbooks(
    run: Run,
    chosen: ArtifactRef,
    downloads: Sequence[ArtifactRef],
    given: Sequence[ArtifactRef] = (),
    *,
    required: bool = True,
) -> Work:
    """Source registry and files: every candidate with digest or reason, the same bytes once, and none `given`."""

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from corpus.find.download import link, refuse_twins

        after: dict[str, Source] = {}
        for ref in downloads:
            after |= {row.source_id: row for row in run.store.rows(ref, "downloaded", Source)}
        rows = run.store.rows(chosen, "candidates_sources", Source)
        first = [row for ref in given for row in run.store.rows(ref, "sources", Source)]
        sources = refuse_twins([*first, *(_after(row, after) for row in rows)])[len(first) :]
        kept = [source for source in sources if source.sha256]
        if required and not kept:
            reasons = "; ".join(sorted({source.reason for source in sources}))
            raise DocumentError(f"no textbook could be downloaded: {reasons}", hint="check the catalogue's addresses")
        for ref in downloads:
            folder = run.store.verified_folder(ref)
            for source in kept:
                path = file_of(folder, source.sha256)
                if path.is_file():
                    link(path, workspace)
        return Outcome(
            tables={"sources": Table(row_type=Source, rows=sources)},
            summary={"admitted": len(kept), "rejected": len(sources) - len(kept)},
        )

    inputs = {"chosen": chosen, **numbered("download", downloads), **numbered("given", given)}
    return Work(recipe=run.recipe("sources", VERSION, {}, inputs), produce=produce)


@stage("download")
def take_file(run: Run, item: Item) -> Work:
    """A file that somebody names, as a group of its own: its download and its registry in one. Where it lies, and its
    name, change nothing."""
    path, source = item.path, item.source
    assert path is not None, f"{item.given} has no file"
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
