"""The corpus commands: build, audit, import and export of document pools."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import BusyRunError, ConfigError, DocumentError, InfuserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Output of a corpus command."""

    facts: dict[str, Any]
    """For programs."""
    text: str
    """For people."""
    failure: InfuserError | None = None
    """Error to end with after showing it; None for success."""


@contextmanager
def _progress(label: str) -> Iterator[Any]:
    """A live line with the time left, on standard error."""
    from infuser_core.terminal import live

    with live(label) as console:
        yield console.progress


def build(
    sources: Sequence[str],
    out: Path,
    *,
    configs: Sequence[Path],
    search: bool,
    judge: str,
    workers: int | None,
) -> Found:
    """Search, fetch, convert, chunk, judge and audit by the stages of a run, in its store; export the pool."""
    from corpus import pool, report
    from corpus.settings import build_settings
    from flows.corpus import built_pool
    from infuser_core import settings
    from tasks.run import opened

    config = _configured(configs)
    planned = build_settings(config, judge=judge)
    with pool.writing(out), _alone(out):
        pool.refuse_imported(out)
        out.mkdir(parents=True, exist_ok=True)
        # One build at a time for a folder; it holds what it made against gc, but is no run that others follow.
        with opened(pool.build_name(out), planned.config, journal="corpus.jsonl", published=False, listed=False) as run:
            items = _given(sources, out, settings.writable_store_root() / "textbooks")
            made = built_pool(
                run.name,
                items,
                planned,
                search=search,
                workers=workers or os.cpu_count() or 1,
            )
            run.journal.finish()
            changed = pool.copy_pool(run.store.verified_folder(made), list(run.store.manifest(made).files), out)
    facts = {**pool.read_facts(out), "changed": changed}
    rows = pool.read_sources(out)
    failure = None if facts["documents"] else DocumentError(report.why_empty(rows), hint=report.hint(rows))
    return Found(facts=facts, text=report.terminal(facts, rows, out, changed=changed), failure=failure)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """A folder has one build at a time: the store's words for a run that is held say which folder is meant."""
    try:
        yield
    except BusyRunError as error:
        raise BusyRunError(f"{out}: another build is at work there", hint="wait for it, or take --out") from error


def _configured(configs: Sequence[Path]) -> Any:
    from infuser_core.config.overlays import load

    try:
        return load(configs) if configs else None
    except ConfigError as error:
        if "is missing" not in error.message:
            raise
        hint = "--config takes a run's configuration; name a complete one first: --config configs/qwen3-4b.yaml"
        raise ConfigError(error.message, hint=hint) from error


def _given(sources: Sequence[str], out: Path, folder: Path) -> list[Any]:
    """The named sources with their files, each once."""
    from corpus.find import intake
    from corpus.find.guard import WebConfig

    with _progress("download") as progress:
        return intake.gather(sources, out, folder, WebConfig(), progress=progress)


def audit(pool: Path, references: Sequence[Path], mode: str, out: Path, *, workers: int | None) -> Found:
    """Compare a pool with references; write the pairs and the report."""
    from corpus.audit import audit as auditing
    from corpus.pool import writing

    with writing(out), _progress("audit, MB") as progress:
        result = auditing.audit_pool(
            pool, references, mode, out, workers=workers or os.cpu_count() or 1, progress=progress
        )
    return Found(facts=auditing.as_json(result), text=auditing.terminal(result, out))


def import_pool(path: Path, out: Path) -> Found:
    """Read a pool in a known format into a folder."""
    from corpus import formats

    facts = formats.import_pool(path, out)
    return Found(facts=facts, text=formats.describe(facts, out))


def export_pool(pool: Path, format_: str, out: Path) -> Found:
    """Write a pool in a known format."""
    from corpus import formats

    facts = formats.export_pool(pool, format_, out)
    return Found(facts=facts, text=formats.describe(facts, out))
