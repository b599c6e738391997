"""DuckDB as a lens over the store's parquet files: views in memory, nothing written.

A view is made when a statement first mentions it: opening the lens costs the same for ten artifacts and ten thousand.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import duckdb

from infuser_core import schemas
from infuser_core.errors import UsageError
from infuser_core.lineage.index import Catalogue, Record
from infuser_core.lineage.views import VIEWS
from infuser_core.runs import Journal, list_runs

if TYPE_CHECKING:
    from infuser_core.store import Store

Rows = list[dict[str, Any]]

TABLES: dict[str, type] = {
    "topics": schemas.Topic,
    "sources": schemas.Source,
    "pages": schemas.Page,
    "chunks": schemas.Document,
    "documents": schemas.Document,
    "judgements": schemas.Judgement,
    "overlaps": schemas.Overlap,
    "audit_summary": schemas.AuditFact,
    "reference_questions": schemas.Question,
    "questions": schemas.Question,
    "question_labels": schemas.QuestionLabel,
    "rollouts": schemas.Rollout,
    "allocations": schemas.Allocation,
    "gradients": schemas.Gradient,
    "scores": schemas.InfluenceScore,
    "generator_scores": schemas.GeneratorScore,
    "updates": schemas.Update,
    "asked_questions": schemas.Question,
    "audited_questions": schemas.Question,
    "responses": schemas.BenchmarkResponse,
    "verdicts": schemas.BenchmarkVerdict,
    "question_scores": schemas.QuestionScore,
    "benchmark_scores": schemas.BenchmarkScore,
    "leaks": schemas.Leak,
    "candidates": schemas.Candidate,
    "selections": schemas.Selection,
}
"""Tables that SQL can always select from, empty or not. `questions` are generated, `reference_questions` are given."""

_MADE = {
    "run_artifacts": "run varchar, iteration bigint, phase varchar, artifact_key varchar, digest varchar, rows bigint, "
    "seconds double, state varchar, attempt bigint",
    "artifacts": "artifact_key varchar, phase varchar, iteration bigint, digest varchar, version bigint, seed bigint, "
    "config json, summary json, rows bigint, num_bytes bigint, seconds double, created varchar",
    "artifact_inputs": "artifact_key varchar, input varchar, input_key varchar",
}
"""Tables made from journals and commit records, with their columns."""
_WORD = re.compile(r"[a-z_][a-z0-9_]*")
_LISTING = {"show", "describe", "summarize", "pragma", "information_schema", "duckdb_views", "duckdb_tables"}
"""Words of statements that may ask about every view."""


class Lens:
    """SQL over the artifacts of all runs, or of those named. One view per table name, with the run's columns first."""

    def __init__(self, store: "Store | Catalogue", *, runs: Sequence[str] | None = None) -> None:
        self.catalogue = store if isinstance(store, Catalogue) else Catalogue(store.root)
        self._connection = duckdb.connect(":memory:")
        self._connection.execute("set enable_progress_bar = false")
        self._defined: set[str] = set()
        names = list_runs(self.catalogue.root) if runs is None else list(runs)
        self._links = [link for name in names for link in _links(self.catalogue, name)]
        self._records = [self.catalogue.records[key] for key in sorted({link[3] for link in self._links})]

    @cached_property
    def _tables(self) -> set[str]:
        return {table for record in self._records for table in record.tables}

    def views(self) -> list[str]:
        """Names that `query` can select from."""
        return [*_MADE, *VIEWS, *sorted({*self._tables, *TABLES})]

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """The rows of one statement. Raises UsageError with DuckDB's message when the statement cannot run."""
        try:
            self._prepare(set(_WORD.findall(sql.lower())))
            return self._fetch(sql, parameters)
        except duckdb.Error as error:
            message = str(error).strip().splitlines()[0]
            raise UsageError(message, hint=f"views: {', '.join(self.views())}") from error

    def rows(
        self,
        table: str,
        keys: Iterable[str],
        columns: Sequence[str],
        *,
        where: str = "true",
        parameters: Sequence[Any] = (),
    ) -> Rows:
        """Rows of one table in these artifacts alone, in their order, with `artifact_key`.

        Columns that older artifacts lack are None. Opens the files of these artifacts and no other.
        """
        held = sorted({key for key in keys if table in self.catalogue.records[key].tables})
        if not held:
            return []
        source = _parquet([str(self.catalogue.path(key, table)) for key in held], "file_row_number = true")
        known = {column[0] for column in self._connection.execute(f"select * from {source} limit 0").description or []}
        chosen = ", ".join(f'"{name}"' if name in known else f'null as "{name}"' for name in columns)
        return self._fetch(
            f"select parse_path(artifact_file)[-2] as artifact_key, {chosen} from {source} "
            f"where {where} order by artifact_file, file_row_number",
            parameters,
        )

    def close(self) -> None:
        """Drop the views."""
        self._connection.close()

    def _fetch(self, sql: str, parameters: Sequence[Any]) -> Rows:
        cursor = self._connection.execute(sql, list(parameters))
        if cursor is None:
            raise UsageError("the statement is empty", hint='e.g. infuser sql "select * from run_artifacts"')
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _prepare(self, words: set[str]) -> None:
        """Make the views that a statement mentions, and those that they stand on."""
        wanted = set(self.views()) if words & _LISTING else words
        for name in [name for name in VIEWS if name in wanted]:
            self._prepare(set(_WORD.findall(VIEWS[name].lower())) - {name})
        for name in sorted((wanted & set(self.views())) - self._defined):
            self._defined.add(name)
            if name in _MADE:
                self._fill(name)
            elif name in VIEWS:
                self._connection.execute(f'create view "{name}" as {VIEWS[name]}')
            else:
                self._prepare({"run_artifacts"})
                self._define(name)

    def _fill(self, name: str) -> None:
        """One of the tables made from journals and commit records."""
        lines = {"run_artifacts": lambda: self._links, "artifacts": self._artifacts, "artifact_inputs": self._inputs}
        self._connection.execute(f"create table {name} ({_MADE[name]})")
        columns = list(zip(*lines[name](), strict=True))
        if columns:
            holes = ", ".join("unnest(?)" for _ in columns)
            self._connection.execute(f"insert into {name} select {holes}", [list(column) for column in columns])

    def _artifacts(self) -> list[tuple[Any, ...]]:
        return [_facts(record) for record in self._records]

    def _inputs(self) -> list[tuple[Any, ...]]:
        return [
            (record.key, name, identity.split("@")[0])
            for record in self._records
            for name, identity in record.inputs.items()
        ]

    def _define(self, table: str) -> None:
        paths = [str(self.catalogue.path(r.key, table)) for r in self._records if table in r.tables]
        if not paths:
            self._define_empty(table)
            return
        self._connection.execute(f"""
            create view "{table}" as
            select l.run, l.iteration, l.phase, l.artifact_key, t.* exclude (artifact_file)
            from {_parquet(paths)} t
            join run_artifacts l on l.artifact_key = parse_path(t.artifact_file)[-2]
        """)

    def _define_empty(self, table: str) -> None:
        # Loading it costs a fifth of a second, which few statements need.
        from infuser_core.tables import arrow_schema

        empty = arrow_schema(TABLES[table]).empty_table()
        self._connection.register(f"_{table}", empty)
        self._connection.execute(f"""
            create view "{table}" as
            select ''::varchar as run, 0::bigint as iteration, ''::varchar as phase, ''::varchar as artifact_key, *
            from "_{table}"
        """)


def _parquet(paths: Sequence[str], *options: str) -> str:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    arguments = [f"[{listed}]", "filename = 'artifact_file'", "union_by_name = true", *options]
    return f"read_parquet({', '.join(arguments)})"


def _facts(record: Record) -> tuple[Any, ...]:
    return (
        record.key,
        record.phase,
        record.iteration,
        record.digest,
        record.version,
        record.seed,
        record.config,
        json.dumps(record.summary),
        sum(record.rows.values()),
        record.num_bytes,
        record.seconds,
        record.created,
    )


def _links(catalogue: Catalogue, run: str) -> list[tuple[Any, ...]]:
    """One row per artifact of the run, with the state of its latest attempt."""
    return [
        (run, e.iteration, e.phase, e.key, e.digest, e.rows, e.seconds, e.state, e.attempt)
        for file in ("journal.jsonl", "studies.jsonl")
        for e in Journal(catalogue.root, run, file=file).latest()
        if e.key in catalogue.records
    ]
