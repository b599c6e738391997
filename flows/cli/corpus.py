"""Commands that build, audit and convert document pools."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from infuser_core.errors import UsageError

corpus = typer.Typer(help="Textbooks: build, audit, import and export document pools.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")]
Out = Annotated[Path, typer.Option(help="Folder for the result; what is there already is gone on with.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; by default one per processor.")]
_MODES = ("exact", "paper", "loose")
_FORMATS = ("documents-json", "jsonl", "parquet")


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    corpus.command()(build)
    corpus.command()(audit)
    corpus.command("import")(import_)
    corpus.command()(export)
    app.add_typer(corpus, name="corpus")


def build(
    out: Out,
    source: Annotated[list[str] | None, typer.Option(help="PDF, Markdown or text file, folder, or address.")] = None,
    more: Annotated[list[str] | None, typer.Argument(help="Further sources.", metavar="[SOURCE]...")] = None,
    catalogue: Annotated[str, typer.Option(help="Address of a local catalogue whose books are fetched.")] = "",
    config: Annotated[
        list[Path] | None, typer.Option(help="YAML: sizes, tokenizer, judge, catalogues, what to compare with.")
    ] = None,
    search: Annotated[
        bool | None,
        typer.Option("--search/--no-search", help="Search the catalogues; by default where no source is named."),
    ] = None,
    judge: Annotated[
        str, typer.Option(help="none, rules, openai:MODEL@URL, or a model folder, instead of the configuration's.")
    ] = "",
    no_judge: Annotated[bool, typer.Option("--no-judge", help="Keep every chunk: the same as --judge none.")] = False,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Turn textbooks into a document pool; the same command again does only what is missing or has changed."""
    from flows.corpus_commands import build as go

    sources = [*(source or []), *(more or [])]
    wanted = bool(catalogue) or (bool(config) and not sources if search is None else search)
    if wanted and not catalogue and not config:
        raise UsageError("--search: no catalogue is known", hint="name a configuration with --config, or --catalogue")
    if not sources and not wanted:
        raise UsageError(
            "nothing to build from", hint="name files or addresses with --source, a --catalogue, or a --config"
        )
    if catalogue and not catalogue.lower().startswith(("http://", "https://")):
        raise UsageError(f"--catalogue {catalogue}: no address", hint="e.g. --catalogue http://127.0.0.1:8800")
    found = go(
        sources,
        out,
        catalogue=catalogue,
        configs=config or [],
        search=wanted,
        judge="none" if no_judge else judge,
        workers=workers,
    )
    _show(found.facts, found.text, as_json)
    if found.failure:
        raise found.failure


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
    """Does a pool share text with other data, in either direction? With planted controls and their recall."""
    from flows.corpus_commands import audit as go

    references = [*(reference or []), *(more or [])]
    if mode not in _MODES:
        raise UsageError(f"--mode {mode}: unknown", hint=", ".join(_MODES))
    if not references:
        raise UsageError("no reference to compare with", hint="name files or folders with --reference")
    found = go(pool, references, mode, out, workers=workers)
    _show(found.facts, found.text, as_json)


def import_(
    path: Annotated[Path, typer.Argument(help="documents.json, a list of chunks or questions, JSONL or parquet.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Read a pool in another format; fields without a place of their own are kept beside it."""
    from flows.corpus_commands import import_pool as go

    found = go(path, out)
    _show(found.facts, found.text, as_json)


def export(
    pool: Annotated[Path, typer.Option(help="A pool's folder, or a parquet file of documents.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    format_: Annotated[str, typer.Option("--format", help="documents-json, jsonl or parquet.")] = "documents-json",
    as_json: AsJson = False,
) -> None:
    """Write a pool in another format."""
    from flows.corpus_commands import export_pool as go

    if format_ not in _FORMATS:
        raise UsageError(f"--format {format_}: unknown", hint=", ".join(_FORMATS))
    found = go(pool, format_, out)
    _show(found.facts, found.text, as_json)


def _show(facts: dict[str, Any], text: str, as_json: bool) -> None:
    typer.echo(json.dumps(facts, ensure_ascii=False) if as_json else text)
