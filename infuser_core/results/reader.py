"""Rows of a store's runs with their texts, as arrow tables for scripts and notebooks."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from infuser_core import settings
from infuser_core.config.overlays import validate
from infuser_core.config.run import RunConfig
from infuser_core.errors import UsageError
from infuser_core.results.lineage import attempts, outcome, progress
from infuser_core.store import runs
from infuser_core.store.store import Store
from infuser_core.store.tables import ArrowTable, as_arrow
from infuser_core.store.views import Lens

_QUESTIONS = "select * exclude (run) from question_history order by iteration, question_id"
_ANSWERS = """
    select a.* exclude (run), q.text as question, q.choices, q.answer as reference_answer
    from solver_answers a
    left join questions q on q.run = a.run and q.question_id = a.question_id
    order by a.iteration, a.question_id, a.sample_index
"""
_SCORES = """
    select s.* exclude (run), q.text as question, q.choices, q.answer as reference_answer, q.document_id
    from scores s
    left join questions q on q.run = s.run and q.question_id = s.question_id
    order by s.iteration, s.question_id
"""
_UPDATES = "select * exclude (run) from updates order by iteration, role, step"
_ACCURACIES = "select * exclude (run) from benchmark_scores order by phase desc, benchmark, iteration"


class StoreReader:
    """Reads the runs of one store; each call sees what has been written by then, by runs that still go, too."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"StoreReader({str(self.root)!r}): {', '.join(runs.list_runs(self.root)) or 'no runs'}"

    def runs(self) -> ArrowTable:
        """One row per run, the latest last: state, iterations, validation accuracy, size, origin.

        The state of a run that cannot be read says why.
        """
        rows, _ = progress.summaries(self.root)
        return as_arrow(rows, progress.Summary)

    def run(self, name: str | None = None) -> "RunReader":
        """A run by its name or the beginning of it; without a name, the latest one that is no control of another.

        Raises UsageError if no run or more than one matches.
        """
        return RunReader(self.root, runs.find_method(self.root, name))

    def query(self, sql: str) -> ArrowTable:
        """Answer a DuckDB statement over the views of all runs (docs/sql.md). Raises UsageError if it fails."""
        with closing(Lens(Store(self.root))) as lens:
            return lens.query_as_arrow(sql)


class RunReader:
    """Reads the rows of one run. Rows of iteration t come from checkpoints that have seen t iterations."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}): {self.state}"

    @property
    def state(self) -> str:
        """running, done, stopped or failed with the stage, or interrupted."""
        return attempts.state_of(self.root, self.name)

    @property
    def config(self) -> RunConfig:
        """The settings with which the run was started."""
        return validate(runs.read_config(self.root, self.name))

    def questions(self) -> ArrowTable:
        """Generated questions with their keys, scores and rewards, and the passages from which they were written.

        One row per question and iteration that scored it.
        """
        return self.query(_QUESTIONS)

    def answers(self) -> ArrowTable:
        """The solver's answers to generated questions, with verdicts, rewards, and the questions' texts and keys."""
        return self.query(_ANSWERS)

    def scores(self) -> ArrowTable:
        """Influence scores with their norms, and the questions' texts and keys."""
        return self.query(_SCORES)

    def updates(self) -> ArrowTable:
        """One row per optimizer step of either role: loss, gradient norm, KL, clipped share, entropy."""
        return self.query(_UPDATES)

    def accuracies(self) -> ArrowTable:
        """Validation and benchmark accuracy by iteration, with 95% intervals; `phase` tells the two apart."""
        return self.query(_ACCURACIES)

    def result(self) -> dict[str, Any]:
        """Accuracies of anchor and selected checkpoint, stages, time and warnings, as `infuser result --json`."""
        return outcome.result(self.root, self.name)

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> ArrowTable:
        """Answer a DuckDB statement over this run's rows. Raises UsageError if it fails."""
        with closing(Lens(Store(self.root), runs=[self.name])) as lens:
            return lens.query_as_arrow(sql, parameters)


def open_store(folder: str | Path | None = None) -> StoreReader:
    """Open a store to read it; without a folder, `INFUSER_STORE`, or `.infuser` in the working folder.

    Raises UsageError if there is no such folder.
    """
    root = settings.store_root(folder)
    if not root.is_dir():
        raise UsageError(f"no store at {root}", hint="name its folder, or set INFUSER_STORE; a run creates it")
    return StoreReader(root)
