"""SQL queries over the store: in-memory DuckDB views of the artifacts' parquet files, journals and commit records."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import duckdb

from infuser_core import schemas
from infuser_core.errors import UsageError
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import Record
from infuser_core.store.runs import RUNS, list_runs
from infuser_core.system import sealed
from infuser_core.terminal import to_json

_SCORES = ", ".join(f"s.{name}" for name in schemas.columns(schemas.InfluenceScore) if name != "question_id")
VIEWS: dict[str, str] = {
    "checkpoints": """
        select l.run, l.artifact_key, replace(l.phase, 'update_', '') as role, l.iteration + 1 as after_iterations,
               (a.summary ->> 'step')::bigint as step, i.input_key as parent_key, a.num_bytes, a.seconds
        from run_artifacts l
        join artifacts a on a.artifact_key = l.artifact_key
        left join artifact_inputs i on i.artifact_key = l.artifact_key and i.input = replace(l.phase, 'update_', '')
        where l.phase in ('anchor', 'update_solver', 'update_generator')
    """,
    "solver_answers": """
        select a.run, a.iteration, a.artifact_key, a.group_id as question_id, a.rollout_id, a.sample_index,
               a.checkpoint_id, a.verdict, a.reward, a.finish_reason, len(a.token_ids) as num_tokens, a.text
        from rollouts a
        where a.phase = 'rollout_questions'
    """,
    "benchmark_answers": """
        select r.run, r.iteration, r.phase, r.artifact_key, r.group_id as question_id, r.sample_index,
               r.checkpoint_id, r.verdict, r.finish_reason, len(r.token_ids) as response_tokens, r.text as response
        from rollouts r
        where r.phase in ('validate', 'evaluate')
        union all
        select s.run, s.iteration, coalesce(v.phase, s.phase) as phase, s.artifact_key, s.question_id, s.sample_index,
               c.input_key as checkpoint_id, v.verdict, s.finish_reason, s.response_tokens, s.response
        from responses s
        left join artifact_inputs c on c.artifact_key = s.artifact_key and c.input = 'solver'
        left join (
            select j.*, i.input_key from verdicts j
            join artifact_inputs i on i.artifact_key = j.artifact_key and i.input = 'responses'
        ) v on v.input_key = s.artifact_key and v.run = s.run and v.benchmark = s.benchmark
            and v.question_id = s.question_id and v.sample_index = s.sample_index
    """,
    "question_history": f"""
        select q.run, q.iteration, q.question_id, q.text, q.choices, q.answer, q.verifier, q.document_id, d.source_id,
               p.title as source_title, d.header_path, d.start as document_start, d."end" as document_end,
               d.text as document_text, q.rollout_id,
               g.checkpoint_id as generator, {_SCORES}, w.reward as generator_reward,
               w.advantage as generator_advantage, w.trained as generator_trained, q.artifact_key
        from questions q
        left join documents d on d.run = q.run and d.document_id = q.document_id
        left join sources p on p.run = q.run and p.source_id = d.source_id and p.status = 'admitted'
        left join rollouts g on g.run = q.run and g.artifact_key = q.artifact_key and g.rollout_id = q.rollout_id
        left join scores s on s.run = q.run and s.iteration >= q.iteration and s.question_id = q.question_id
        left join generator_scores w on w.run = q.run and w.iteration >= q.iteration and w.rollout_id = q.rollout_id
    """,
    "question_gauges": r"""
        with plain as (
            select q.run, q.iteration, q.question_id,
                   lower(trim(regexp_replace(concat_ws(' ', q.text, array_to_string(q.choices, ' ')), '\s+', ' ', 'g')))
                       as text,
                   coalesce(nullif(l.topic, 'unknown'), nullif(q.subdomain, ''), nullif(q.domain, ''), q.document_id)
                       as topic
            from questions q left join question_labels l
                on l.run = q.run and l.iteration = q.iteration and l.question_id = q.question_id
            where q.phase = 'generate_questions'),
        placed as (
            select *, row_number() over (partition by run, text order by iteration, question_id) as place from plain),
        gauges as (
            select run, iteration, count(*) as questions, avg((place > 1)::int) as copies,
                   pow(2, entropy(topic)) as topics, avg(length(text)) as characters
            from placed group by run, iteration),
        texts as (
            select run, iteration, avg((malformed_reason = '')::int) as valid
            from rollouts where role = 'generator' group by run, iteration),
        early as (
            select run, avg(topics) as topics, avg(characters) as characters, avg(valid) as valid
            from gauges join texts using (run, iteration) where iteration < 3 group by run)
        select g.run, g.iteration, g.questions, g.copies, g.topics, g.characters, t.valid,
               g.topics / least(e.topics, g.questions) as topics_change,
               g.characters / e.characters as characters_change, t.valid / e.valid as valid_change
        from gauges g join texts t using (run, iteration) left join early e using (run)
    """,
}
"""SELECT statement of each view by name. Views select only from tables, not from other views."""


if TYPE_CHECKING:
    from infuser_core.store.store import Store
    from infuser_core.store.tables import ArrowTable

Rows = list[dict[str, Any]]
"""Result rows of a statement, each a dictionary by column name."""

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
    "earlier_questions": schemas.Question,
    "question_labels": schemas.QuestionLabel,
    "key_accuracies": schemas.KeyAccuracy,
    "rollouts": schemas.Rollout,
    "allocations": schemas.Allocation,
    "gradients": schemas.Gradient,
    "scores": schemas.InfluenceScore,
    "generator_scores": schemas.GeneratorScore,
    "updates": schemas.Update,
    "step_costs": schemas.StepCost,
    "not_finite": schemas.NotFinite,
    "asked_questions": schemas.Question,
    "audited_questions": schemas.Question,
    "responses": schemas.BenchmarkResponse,
    "verdicts": schemas.BenchmarkVerdict,
    "question_scores": schemas.QuestionScore,
    "benchmark_scores": schemas.BenchmarkScore,
    "leaks": schemas.Leak,
    "continuations": schemas.Continuation,
    "candidates": schemas.Candidate,
    "selections": schemas.Selection,
}
"""Row types by name of the tables that always exist in SQL. `questions` are generated, `reference_questions` come from
data sets."""

_RECORD_TABLES = {
    "run_artifacts": "run varchar, iteration bigint, phase varchar, artifact_key varchar, digest varchar, rows bigint, "
    "seconds double, state varchar, attempt bigint",
    "artifacts": "artifact_key varchar, phase varchar, iteration bigint, digest varchar, version bigint, seed bigint, "
    "config json, summary json, rows bigint, num_bytes bigint, seconds double, created varchar",
    "artifact_inputs": "artifact_key varchar, input varchar, input_key varchar",
}
"""SQL columns by name of the tables made from journals and commit records."""
_JOURNALS = ("journal.jsonl", "studies.jsonl")
_SCALARS = {str: "varchar", int: "bigint", float: "double", bool: "boolean"}
_READING = {"SELECT", "EXPLAIN", "MULTI", "PRAGMA"}
"""DuckDB's types of statements that change no file; MULTI is a PIVOT."""
_EXPLAIN = re.compile(r"^\s*explain\s*(analyze\b|\([^)]*\))?", re.IGNORECASE)
_WORD = re.compile(r"[a-z_][a-z0-9_]*")
_EMPTY = 'e.g. infuser sql "select * from run_artifacts"'
_LISTING = {"show", "describe", "summarize", "pragma", "information_schema", "duckdb_views", "duckdb_tables"}
"""Words in statements that may list all views, which must then exist."""


class Lens:
    """Answers SQL queries over the artifacts of all runs or of some: one view per table name, created on first use.

    The view of a table begins with the columns run, iteration, phase and artifact_key. `shelf` is the folder of the
    store to query: runs or evaluations. With `iterations`, only artifacts of these iterations are included and opened.
    `catalogue` is that of another lens on the store, which has read the artifacts' records.
    """

    def __init__(
        self,
        store: "Store",
        *,
        runs: Sequence[str] | None = None,
        iterations: Collection[int] | None = None,
        shelf: str = RUNS,
        catalogue: Catalogue | None = None,
    ) -> None:
        self.catalogue = catalogue or Catalogue(store.root)
        self._connection = duckdb.connect(":memory:")
        # In Jupyter without ipywidgets there is no bar, and an error if it is turned off.
        if self._fetch("select current_setting('enable_progress_bar') as bar", ())[0]["bar"]:
            self._connection.execute("set enable_progress_bar = false")
        self._defined: set[str] = set()
        self._files: set[str] = set()
        names = list_runs(store.root) if runs is None else runs
        links = (link for name in names for link in _links(self.catalogue, name, shelf))
        self._links = [link for link in links if iterations is None or link[1] in iterations]
        self._records = [self.catalogue.record(key) for key in sorted({link[3] for link in self._links})]

    def views(self) -> list[str]:
        """Names of all tables and views from which statements can select."""
        return [
            *_RECORD_TABLES,
            *VIEWS,
            *sorted({*TABLES, *(table for record in self._records for table in record.rows)}),
        ]

    def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Rows:
        """Execute a trusted statement; returns its rows. Raises UsageError with DuckDB's message if it fails."""
        with self._usage_errors(sql):
            self._prepare(set(_WORD.findall(sql.lower())))
            return self._fetch(sql, parameters)

    @contextmanager
    def _usage_errors(self, sql: str, *, seconds: float | None = None) -> Iterator[None]:
        """Turn DuckDB's errors about a statement into UsageErrors, and interrupt the statement after `seconds`."""
        stop = Timer(seconds or 0.0, self._connection.interrupt)
        if seconds is not None:
            stop.start()
        try:
            yield
        except duckdb.InterruptException as error:
            hint = "narrow it down, e.g. to one run or with a limit; `infuser sql` has no limit of time"
            raise UsageError(f"the statement took more than {seconds:g} s", hint=hint) from error
        except duckdb.Error as error:
            message = str(error).strip().splitlines()[0]
            columns = self._list_columns(sql) if isinstance(error, duckdb.BinderException) else ""
            raise UsageError(message, hint=columns or f"views: {', '.join(self.views())}") from error
        finally:
            stop.cancel()

    def _list_columns(self, sql: str) -> str:
        """The columns of the views that a statement names."""
        names = sorted(self._defined & set(_WORD.findall(sql.lower())))
        columns = {name: self._fetch(f'describe "{name}"', ()) for name in names}
        return "; ".join(f"{name}: {', '.join(row['column_name'] for row in rows)}" for name, rows in columns.items())

    def query_as_arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> "ArrowTable":
        """Execute a trusted statement as `query` does; returns an arrow table. Raises UsageError if it fails."""
        with self._usage_errors(sql):
            self._prepare(set(_WORD.findall(sql.lower())))
            rows = self._connection.sql(sql, params=parameters)
            if rows is None:
                raise UsageError("the statement returns no rows", hint=_EMPTY)
            return rows.to_arrow_table()

    def query_untrusted(self, sql: str, *, most: int | None = None, seconds: float | None = None) -> Rows:
        """Execute a user's statement, which can only read the store's tables; returns at most `most` rows.

        The lens stays restricted afterwards. Raises UsageError for a statement that writes, takes longer than
        `seconds`, or fails.
        """
        with self._usage_errors(sql, seconds=seconds):
            self._lock(sql)
            return self._fetch(sql, (), most=most)

    def save(self, sql: str, file: Path, *, seconds: float | None = None) -> None:
        """Execute a user's statement and write all its rows to a file: CSV if the suffix is .csv, otherwise parquet."""
        with self._usage_errors(sql, seconds=seconds):
            self._lock(sql, str(file))
            rows = self._connection.sql(sql)
            if rows is None:
                raise UsageError("the statement is empty", hint=_EMPTY)
            (rows.write_csv if file.suffix == ".csv" else rows.write_parquet)(str(file))

    def _lock(self, sql: str, *more: str) -> None:
        """Create the views that a statement needs, then let DuckDB open only their files and `more`.

        Raises UsageError if the statement is not read-only.
        """
        self._refuse_writing(sql)
        self._prepare(set(_WORD.findall(sql.lower())))
        self._connection.execute("set allowed_paths = ?", [sorted({*self._files, *more})])
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def _refuse_writing(self, sql: str) -> None:
        for statement in self._connection.extract_statements(sql):
            kind = statement.type.name
            if kind == "EXPLAIN":
                # EXPLAIN ANALYZE executes the statement, so it must be read-only, too.
                (inner,) = self._connection.extract_statements(_EXPLAIN.sub("", statement.query))
                kind = kind if inner.type.name in _READING - {"EXPLAIN"} else f"{kind} {inner.type.name}"
            if kind not in _READING:
                raise UsageError(
                    f"{kind.replace('_', ' ')}: only statements that read are answered",
                    hint="SELECT, DESCRIBE, SUMMARIZE, SHOW, PIVOT or EXPLAIN; --unsafe gives DuckDB without limits",
                )

    def rows(
        self,
        table: str,
        keys: Iterable[str],
        columns: Sequence[str],
        *,
        where: str = "true",
        parameters: Sequence[Any] = (),
    ) -> Rows:
        """Read some columns of one table of these artifacts, and `artifact_key`, sorted by artifact and row number.

        `where` is an SQL condition. Columns that the table lacks are None.
        """
        keys = sorted({key for key in keys if table in self.catalogue.record(key).rows})
        if not keys:
            return []
        source = _parquet(self.catalogue.paths(keys, table), "file_row_number = true")
        with self._usage_errors(table):
            names = {column[0] for column in self._connection.execute(f"describe from {source}").fetchall()}
            selection = ", ".join(f'"{name}"' if name in names else f'null as "{name}"' for name in columns)
            return self._fetch(
                f"select parse_path(artifact_file)[-2] as artifact_key, {selection} from {source} "
                f"where {where} order by artifact_file, file_row_number",
                parameters,
            )

    def close(self) -> None:
        """Close the database with all its views."""
        self._connection.close()

    def _fetch(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], *, most: int | None = None) -> Rows:
        cursor = self._connection.execute(sql, parameters)
        if cursor is None:
            raise UsageError("the statement is empty", hint=_EMPTY)
        names = [column[0] for column in cursor.description or []]
        rows = cursor.fetchall() if most is None else cursor.fetchmany(most)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _prepare(self, words: set[str]) -> None:
        """Create the views with these names, and the tables that they select from."""
        names = set(self.views()) if words & _LISTING else words
        for name in [name for name in VIEWS if name in names]:
            self._prepare(set(_WORD.findall(VIEWS[name].lower())) - {name})
        for name in sorted(names & set(self.views())):
            # Preparing a view above may have created it.
            if name in self._defined:
                continue
            self._defined.add(name)
            if name in _RECORD_TABLES:
                self._fill(name)
            elif name in VIEWS:
                self._connection.execute(f'create view "{name}" as {VIEWS[name]}')
            else:
                self._prepare({"run_artifacts"})
                self._define(name)

    def _fill(self, name: str) -> None:
        """Create a table from journals and commit records, with its rows."""
        lines: list[tuple[Any, ...]] = self._links
        if name == "artifacts":
            lines = [_facts(record) for record in self._records]
        elif name == "artifact_inputs":
            lines = [(each.key, name, ref.split("@")[0]) for each in self._records for name, ref in each.inputs.items()]
        self._connection.execute(f"create table {name} ({_RECORD_TABLES[name]})")
        columns = list(zip(*lines, strict=True))
        if columns:
            placeholders = ", ".join("unnest(?)" for _ in columns)
            self._connection.execute(f"insert into {name} select {placeholders}", [list(column) for column in columns])

    def _define(self, table: str) -> None:
        paths = self.catalogue.paths([record.key for record in self._records if table in record.rows], table)
        if not paths:
            # Not with `arrow_schema`: importing arrow takes a tenth of a second.
            run_columns = {"run": "varchar", "iteration": "bigint", "phase": "varchar", "artifact_key": "varchar"}
            columns = {**run_columns, **_columns(TABLES[table])}.items()
            selection = ", ".join(f'null::{kind} as "{name}"' for name, kind in columns)
            self._connection.execute(f'create view "{table}" as select {selection} where false')
            return
        self._files.update(map(str, paths))
        # Files of older versions may lack columns.
        present = {row[0] for row in self._connection.execute(f"describe select * from {_parquet(paths)}").fetchall()}
        absent = "".join(
            f', null::{kind} as "{name}"' for name, kind in _columns(TABLES.get(table)).items() if name not in present
        )
        self._connection.execute(f"""
            create view "{table}" as
            select l.run, l.iteration, l.phase, l.artifact_key, t.* exclude (artifact_file){absent}
            from {_parquet(paths)} t
            join run_artifacts l on l.artifact_key = parse_path(t.artifact_file)[-2]
        """)


def _columns(row_type: type | None) -> dict[str, str]:
    """SQL type of every field of a row type, by name; empty if the row type is None."""
    return {} if row_type is None else {name: _sql_type(hint) for name, hint in get_type_hints(row_type).items()}


def _sql_type(hint: Any) -> str:
    if get_origin(hint) is Sequence:
        return "integer[]" if get_args(hint) == (int,) else "float[]"
    if get_origin(hint) is list:
        return f"{_sql_type(get_args(hint)[0])}[]"
    inner = [kind for kind in get_args(hint) if kind is not NoneType] or [hint]
    return _SCALARS[inner[0]]


def _parquet(paths: Sequence[Path], *options: str) -> str:
    listed = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
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
        sealed.canonical(record.config),
        to_json(record.summary),
        sum(record.rows.values()),
        record.num_bytes,
        record.seconds,
        record.created,
    )


def _links(catalogue: Catalogue, run: str, shelf: str) -> list[tuple[Any, ...]]:
    """Rows of the table `run_artifacts`: one per artifact of the run or evaluation."""
    return [
        (run, e.iteration, e.phase, e.key, e.digest, e.rows, e.seconds, e.state, e.attempt)
        for file in _JOURNALS
        for e in catalogue.journal_entries(run, file=file, shelf=shelf)
    ]
