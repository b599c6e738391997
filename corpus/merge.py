"""Several built pools as one: what one machine would have made of all their sources, in the order given."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpus import report
from corpus.find.registry import Coverage
from corpus.find.search import Failure
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
from infuser_core.store.tables import TableRows, concatenate
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
"""Fields of a source that an earlier one is the same as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of the pools."""

    folder: Path
    """Its folder."""
    facts: Mapping[str, Any]
    """Facts of its report."""
    twins: frozenset[str]
    """Its sources that an earlier pool has as well."""


def merge(pools: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the merged pool into an empty or new folder; the report's facts.

    Rows are copied a row group at a time. Raises UsageError for folders that are no built pools, pools of different
    judges, token counters or audits, and a folder that holds something else.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty", hint="name a new folder with --out")
    for pool in pools:
        require_built(pool)
    parts, sources = _united(pools)
    _agreed(parts, "judge"), _agreed(parts, "tokenizer")
    (out / MARKDOWN).mkdir(parents=True, exist_ok=True)
    for part in parts:
        gone = {row.markdown for row in read_sources(part.folder) if row.source_id in part.twins}
        for path in sorted((part.folder / MARKDOWN).glob("*.md")):
            if f"{MARKDOWN}/{path.name}" not in gone:
                with durable.replacing(out / MARKDOWN / path.name) as draft:
                    shutil.copyfile(path, draft)
    names = [OVERLAPS] if all((part.folder / OVERLAPS).is_file() for part in parts) else []
    names += sorted({f"{SEARCH}/{path.name}" for part in parts for path in (part.folder / SEARCH).glob("*.parquet")})
    for name in [DOCUMENTS, DISCARDED, *names]:
        _copy_rows(parts, name, out)
    write_table(out / SOURCES, sources, PoolSource)
    return _report(parts, sources, out)


def _united(pools: Sequence[Path]) -> tuple[list[Part], list[PoolSource]]:
    """Every source once: one of equal bytes or name stays, and later ones are rejected as its duplicates."""
    owners: dict[str, str] = {}
    parts, sources = [], []
    for pool in pools:
        twins = set()
        new: dict[str, str] = {}
        for row in read_sources(pool):
            names = [row.source_id, *([f"sha256:{row.sha256}"] if row.sha256 else [])]
            first = next((owners[name] for name in names if name in owners), None)
            if first is None:
                new.update(dict.fromkeys(names, row.input))
                sources.append(row)
                continue
            twins.add(row.source_id)
            if row.input != first:
                reason = row.reason or f"duplicate of {first}"
                sources.append(replace(row, source_id=f"file:{row.input}", reason=reason, **_REJECTED))
        owners |= new
        parts.append(Part(folder=pool, facts=read_facts(pool), twins=frozenset(twins)))
    return parts, sources


def _agreed(parts: Sequence[Part], fact: str) -> Any:
    """The value that all pools have. Raises UsageError where they differ."""
    values = [part.facts[fact] for part in parts]
    other = next((place for place, value in enumerate(values) if value != values[0]), None)
    if other is not None:
        raise UsageError(
            f"{fact}: {values[0]!r} in {parts[0].folder}, {values[other]!r} in {parts[other].folder}",
            hint="pools that are merged are built with the same settings",
        )
    return values[0]


def _copy_rows(parts: Sequence[Part], name: str, out: Path) -> None:
    """One table of all parts."""
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    without = "" if name.startswith(SEARCH) else "source_id"
    there = [(part.folder / name, part.twins) for part in parts if (part.folder / name).is_file()]
    with durable.replacing(out / name) as draft:
        concatenate(there, draft, column=without)


def _report(parts: Sequence[Part], sources: Sequence[PoolSource], out: Path) -> dict[str, Any]:
    failures = out / SEARCH / "failures.parquet"
    told = report.Told(
        judge=parts[0].facts["judge"],
        tokenizer=parts[0].facts["tokenizer"],
        coverage=_coverage(parts, sources),
        failures=TableRows(failures, Failure) if failures.is_file() else (),
        audit=_audit(parts),
    )
    return report.write(out, sources, told)


def _coverage(parts: Sequence[Part], sources: Sequence[PoolSource]) -> list[Coverage]:
    """The pair that each source was found for, and the pairs that were searched for in vain."""
    found = [
        Coverage(domain=row.domain, subdomain=row.subdomain, source_id=row.source_id, rank=0)
        for row in sources
        if row.subdomain
    ]
    known = {(row.domain, row.subdomain) for row in found}
    asked = {(row["domain"], row["subdomain"]) for part in parts for row in part.facts["coverage"]}
    return [*found, *(Coverage(domain=one, subdomain=two, source_id="", rank=0) for one, two in sorted(asked - known))]


def _audit(parts: Sequence[Part]) -> dict[str, Any] | None:
    """Sums of the pools' audits; what was planted in each is counted together. None without an audit."""
    found = [part.facts["audit"] for part in parts]
    if not any(found):
        return None
    compared = {(one["mode"], *(row["name"] for row in one["references"])) for one in found if one}
    if not all(found) or len(compared) > 1:
        raise UsageError(
            "the pools were compared with different data", hint="build them with the same references and mode"
        )
    sums = Counter[str]()
    for one in found:
        sums.update({key: value for key, value in one.items() if isinstance(value, int)})
    references = [
        {**rows[0], "matched_documents": sum(row["matched_documents"] for row in rows)}
        for rows in zip(*(one["references"] for one in found), strict=True)
    ]
    read = {key: found[0][key] for key in ("read",) if key in found[0]}
    return {**found[0], **sums, **read, "references": references, "controls": _controls(found)}


def _controls(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Share found of all that was planted, by kind."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for one in found:
        for row in one["controls"]:
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
