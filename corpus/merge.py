"""Merge document pools into the pool that one build of all their sources would give, in the order of the pools."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpus import report
from corpus.find.registry import Coverage
from corpus.find.search import FailedQuery
from corpus.pool import (
    DISCARDED,
    DOCUMENTS,
    MARKDOWN,
    OVERLAPS,
    SEARCH,
    SOURCES,
    PoolSource,
    read_facts,
    read_sources,
    require_built,
    write_table,
)
from infuser_core.errors import UsageError
from infuser_core.store.tables import TableRows, concatenate_files
from infuser_core.system import durable

_REJECTED: dict[str, Any] = {
    "sha256": "",
    "converter": "",
    "chosen": "",
    "num_pages": 0,
    "num_chars": 0,
    "num_documents": 0,
    "num_discarded": 0,
    "markdown": "",
    "status": "rejected",
    "stage": "intake",
    "structure": "",
    "markdown_sha256": "",
    "page_starts": [],
}
"""Values of the table of sources for a source that duplicates an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPool:
    """A pool that is to be merged with others."""

    folder: Path
    facts: Mapping[str, Any]
    """Figures of its report."""
    duplicates: frozenset[str]
    """source_id of each of its sources that an earlier pool also has."""


def merge_pools(pools: Sequence[Path], out: Path) -> dict[str, Any]:
    """Merge pools into an empty or new folder; returns the figures of the report.

    Rows are copied one row group at a time. Raises UsageError for folders that are not built pools, for pools of
    different judges, token counters or audits, and for a folder `out` that is not empty.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty", hint="name a new folder with --out")
    for pool in pools:
        require_built(pool)
    parts, sources = _unite_sources(pools)
    for fact in ("judge", "tokenizer"):
        values = [part.facts[fact] for part in parts]
        other = next((place for place, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise UsageError(
                f"{fact}: {values[0]!r} in {parts[0].folder}, {values[other]!r} in {parts[other].folder}",
                hint="pools that are merged are built with the same settings",
            )
    (out / MARKDOWN).mkdir(parents=True, exist_ok=True)
    for part in parts:
        duplicates = {row.markdown for row in read_sources(part.folder) if row.source_id in part.duplicates}
        for path in sorted((part.folder / MARKDOWN).glob("*.md")):
            if f"{MARKDOWN}/{path.name}" not in duplicates:
                with durable.replacing(out / MARKDOWN / path.name) as draft:
                    shutil.copyfile(path, draft)
    names = [OVERLAPS] if all((part.folder / OVERLAPS).is_file() for part in parts) else []
    names += sorted({f"{SEARCH}/{path.name}" for part in parts for path in (part.folder / SEARCH).glob("*.parquet")})
    for name in [DOCUMENTS, DISCARDED, *names]:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        tables = [(part.folder / name, part.duplicates) for part in parts if (part.folder / name).is_file()]
        with durable.replacing(out / name) as draft:
            concatenate_files(tables, draft, column="" if name.startswith(SEARCH) else "source_id")
    write_table(out / SOURCES, sources, PoolSource)
    failures = out / SEARCH / "failures.parquet"
    inputs = report.ReportInputs(
        judge=parts[0].facts["judge"],
        tokenizer=parts[0].facts["tokenizer"],
        coverage=_merge_coverage(parts, sources),
        failures=TableRows(failures, FailedQuery) if failures.is_file() else (),
        audit=_merge_audits(parts),
    )
    return report.write_report(out, sources, inputs)


def _unite_sources(pools: Sequence[Path]) -> tuple[list[MergedPool], list[PoolSource]]:
    """Combine the sources of all pools; one with the bytes or identifier of an earlier pool's is rejected."""
    owners: dict[str, str] = {}
    parts, sources = [], []
    for pool in pools:
        duplicates = set()
        new: dict[str, str] = {}
        for row in read_sources(pool):
            names = [row.source_id, *([f"sha256:{row.sha256}"] if row.sha256 else [])]
            first = next((owners[name] for name in names if name in owners), None)
            if first is None:
                new.update(dict.fromkeys(names, row.input))
                sources.append(row)
                continue
            duplicates.add(row.source_id)
            if row.input != first:
                reason = row.reason or f"duplicate of {first}"
                sources.append(replace(row, source_id=f"file:{row.input}", reason=reason, **_REJECTED))
        owners |= new
        parts.append(MergedPool(folder=pool, facts=read_facts(pool), duplicates=frozenset(duplicates)))
    return parts, sources


def _merge_coverage(parts: Sequence[MergedPool], sources: Sequence[PoolSource]) -> list[Coverage]:
    """The (domain, subdomain) pair for which each source was found, and the pairs for which none was found."""
    coverage = [
        Coverage(domain=row.domain, subdomain=row.subdomain, source_id=row.source_id, rank=0)
        for row in sources
        if row.subdomain
    ]
    pairs = {(row["domain"], row["subdomain"]) for part in parts for row in part.facts["coverage"]}
    bare = sorted(pairs - {(row.domain, row.subdomain) for row in coverage})
    return [*coverage, *(Coverage(domain=one, subdomain=two, source_id="", rank=0) for one, two in bare)]


def _merge_audits(parts: Sequence[MergedPool]) -> dict[str, Any] | None:
    """Add up the figures of the pools' audits, including planted controls; None if no pool was audited."""
    audits = [part.facts["audit"] for part in parts]
    if not any(audits):
        return None
    compared = {(audit["mode"], *(row["name"] for row in audit["references"])) for audit in audits if audit}
    if not all(audits) or len(compared) > 1:
        raise UsageError(
            "the pools were compared with different data", hint="build them with the same references and mode"
        )
    sums = Counter[str]()
    for audit in audits:
        sums.update({key: value for key, value in audit.items() if isinstance(value, int)})
    references = [
        {**rows[0], "matched_documents": sum(row["matched_documents"] for row in rows)}
        for rows in zip(*(audit["references"] for audit in audits), strict=True)
    ]
    # Not a sum: all pools were compared with the same records.
    read = {key: audits[0][key] for key in ("read",) if key in audits[0]}
    return {**audits[0], **sums, **read, "references": references, "controls": _merge_controls(audits)}


def _merge_controls(audits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Combine the planted controls of all audits by kind: their number, and the share found by each mode."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for audit in audits:
        for row in audit["controls"]:
            kinds.setdefault(row["kind"], []).append(row)
    joined = []
    for rows in kinds.values():
        planted = sum(row["planted"] for row in rows)
        shares = {
            name: round(sum(row["planted"] * row[name] for row in rows) / planted, 4) if planted else 0.0
            for name, value in rows[0].items()
            if isinstance(value, float)
        }
        joined.append({**rows[0], **shares, "planted": planted})
    return joined
