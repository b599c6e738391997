"""Commands that build, audit and convert document pools."""

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, show
from infuser_core.errors import UsageError, quantity

Out = Annotated[Path, typer.Option(help="Folder for the result; an unfinished one there is continued.")]
Workers = Annotated[
    int | None, typer.Option(min=1, max=4096, help="Number of processes; by default one per processor.")
]
_FORMATS = ("documents-json", "jsonl", "parquet")


def build(
    out: Out,
    source: Annotated[
        list[str] | None, typer.Option(help="File (PDF, EPUB, Markdown, ...), folder, or address.")
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(help="Further sources.", metavar="[SOURCE]...")] = None,
    config: Annotated[
        list[Path] | None, typer.Option(help="YAML: sizes, tokenizer, judge, catalogues, what to compare with.")
    ] = None,
    search: Annotated[
        bool | None,
        typer.Option("--search/--no-search", help="Search the catalogues; by default if no source is named."),
    ] = None,
    judge: Annotated[
        str, typer.Option(help="none, rules, openai:MODEL@URL, or a model folder, instead of the configuration's.")
    ] = "",
    no_judge: Annotated[bool, typer.Option("--no-judge", help="Keep every chunk: the same as --judge none.")] = False,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Turn textbooks into a document pool.

    A repetition only processes what is missing or has changed.
    """
    # Arrow's own allocator does not return memory, so a build of many small tables would grow with every book.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from flows.corpus import build_pool

    sources = [*(source or []), *(more or [])]
    searches = bool(config) and not sources if search is None else search
    if searches and not config:
        raise UsageError("--search: no catalogue is known", hint="add --config FILE")
    if not sources and not searches:
        raise UsageError("nothing to build from", hint="name files or addresses with --source, or a --config")
    result = build_pool(
        sources,
        out,
        configs=config or [],
        search=searches,
        judge="none" if no_judge else judge,
        workers=workers,
    )
    show(result.facts, result.text, as_json=as_json)
    if result.failure:
        raise result.failure


def audit(
    pool: Annotated[Path, typer.Option(help="Parquet file of documents, or a pool's folder.")],
    out: Out,
    reference: Annotated[
        list[Path] | None, typer.Option(help="Parquet, JSONL or JSON file, or a folder of them, to compare with.")
    ] = None,
    more: Annotated[list[Path] | None, typer.Argument(help="Further references.", metavar="[REFERENCE]...")] = None,
    mode: Annotated[str, typer.Option(help="exact: 13-grams; paper: MinHash; loose: 5-grams, half a text.")] = "exact",
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Find text that a pool shares with other data.

    Compares in either direction, and measures recall on planted controls.
    """
    from corpus.audit import audit as auditing
    from corpus.pool import write_errors
    from infuser_core.terminal import live_console

    references = [*(reference or []), *(more or [])]
    if mode not in auditing.MODES:
        raise UsageError(f"--mode {mode}: unknown", hint=", ".join(auditing.MODES))
    if not references:
        raise UsageError("no reference to compare with", hint="name files or folders with --reference")
    processes = workers or os.cpu_count() or 1
    with write_errors(out), live_console("audit, MB") as console:
        result = auditing.audit_pool(pool, references, mode, out, workers=processes, progress=console.progress)
    show(auditing.as_json(result), auditing.summary_text(result, out), as_json=as_json)


def convert(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="documents.json, chunks, JSONL or parquet; with --format, a pool.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for a pool; with --format, the file to write.")],
    format_: Annotated[
        str, typer.Option("--format", help="Write a pool as documents-json, jsonl or parquet instead of reading one.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Convert documents into a pool, or a pool into another format."""
    from corpus.formats import describe, export_pool, import_pool

    if format_ and format_ not in _FORMATS:
        raise UsageError(f"--format {format_}: unknown", hint=", ".join(_FORMATS))
    facts = export_pool(path, format_, out) if format_ else import_pool(path, out)
    show(facts, describe(facts, out), as_json=as_json)


def merge(
    pools: Annotated[list[Path], typer.Argument(help="Folders written by `infuser corpus build`.", metavar="DIR...")],
    out: Annotated[Path, typer.Option(help="New folder for the merged pool.")],
    as_json: AsJson = False,
) -> None:
    """Merge pools that were built separately.

    The result is the same as one build of all their sources.
    """
    from corpus.merge import merge_pools
    from corpus.pool import read_sources, write_errors
    from corpus.report import summary_text

    with write_errors(out):
        facts = merge_pools(pools, out)
    show(facts, summary_text(facts, read_sources(out), out, changed=True), as_json=as_json)


def report(
    pool: Annotated[Path, typer.Argument(help="Folder written by `infuser corpus build`.", metavar="DIR")],
    html: Annotated[Path, typer.Option(help="File for the page.")],
    books: Annotated[int, typer.Option(min=1, max=1000, help="Books that are shown, a fixed sample.")] = 20,
    chunks: Annotated[int, typer.Option(min=1, max=100, help="Chunks of each.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Write a page to check the books of a pool.

    It shows chunks next to their pages, formulas, listings, and removed text with reasons.
    """
    from corpus.pool import write_errors
    from corpus.show.page import write

    with write_errors(html):
        facts = write(pool, html, books=books, chunks=chunks)
    chunks_text = f"{quantity(facts['chunks'], 'chunk')} of {quantity(facts['books'], 'book')}"
    text = f"{chunks_text}, {facts['pictures']} next to their page: {html}"
    show(facts, text, as_json=as_json)
