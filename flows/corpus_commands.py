"""The corpus commands at work: pools in folders, without a run or a store."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import ConfigError, DocumentError, InfuserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a command shows."""

    facts: dict[str, Any]
    """For programs."""
    text: str
    """For people."""
    failure: InfuserError | None = None
    """What to end with after showing it; None for success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """What catalogues gave."""

    topics: Sequence[Any] = ()
    """Pairs that were searched for."""
    items: Sequence[Any] = ()
    """One per offer."""
    failures: Sequence[Any] = ()
    """Catalogues and queries without an answer."""
    coverage: Sequence[Any] = ()
    """Which source was found for which pair."""


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
    catalogue: str,
    configs: Sequence[Path],
    search: bool,
    judge: str,
    workers: int | None,
) -> Found:
    """Search, fetch, convert, chunk, judge, audit; write the pool and its report."""
    from corpus import build as building
    from corpus import build_report
    from corpus.find import intake
    from corpus.pool import work_of, writing
    from tasks.corpus_plan import plan_of

    config = _configured(configs)
    with writing(out), building.held(out):
        work = work_of(out)
        plan = plan_of(config, work, judge=judge, catalogue=catalogue, workers=workers or os.cpu_count() or 1)
        found = _searched(plan, out) if search else _Searched()
        items = intake.without_twins([*_given(sources, out), *found.items])
        pool = building.build(items, out, plan.build, stages=_progress)
        told = build_report.Told(
            judge=plan.judge,
            tokenizer=plan.tokenizer,
            topics=found.topics,
            failures=found.failures,
            coverage=found.coverage,
        )
        facts = build_report.write(pool, out, told)
    failure = None if pool.documents else DocumentError(build_report.why_empty(pool), hint=build_report.hint(pool))
    return Found(facts=facts, text=build_report.terminal(pool, out, facts), failure=failure)


def _configured(configs: Sequence[Path]) -> Any:
    from infuser_core.config.overlays import load

    try:
        return load(configs) if configs else None
    except ConfigError as error:
        if "is missing" not in error.message:
            raise
        hint = "--config takes a run's configuration; name a complete one first: --config configs/qwen3-4b.yaml"
        raise ConfigError(error.message, hint=hint) from error


def _given(sources: Sequence[str], out: Path) -> list[Any]:
    from corpus.find import intake
    from corpus.find.download import DownloadConfig
    from corpus.pool import work_of

    with _progress("download") as progress:
        return intake.gather(sources, out, work_of(out), DownloadConfig(), progress=progress)


def _searched(plan: Any, out: Path) -> _Searched:
    """The dev set's topics, the books that the catalogues offer for them, and who did not answer."""
    from corpus.harvest import harvest, write_taxonomy
    from corpus.pool import work_of
    from tasks.corpus_plan import taxonomy_of, wish_of

    with _progress("taxonomy, questions") as progress:
        taxonomy = taxonomy_of(plan, progress)
    write_taxonomy(taxonomy, out)
    with _progress("search and download") as progress:
        found = harvest(wish_of(plan, taxonomy.topics), out, work_of(out), searching=progress, fetching=progress)
    return _Searched(topics=taxonomy.topics, items=found.items, failures=found.failures, coverage=found.coverage)


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
