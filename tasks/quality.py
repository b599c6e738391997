"""Generated questions as an examination for any set of solvers, and how far apart these are on them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.evaluation.folder import write_text
from infuser_core.schemas import BenchmarkVerdict, QuestionScore
from infuser_core.statistics.bootstrap import accuracy_interval
from infuser_core.statistics.question_quality import SolverGap, strong_weak_gaps
from infuser_core.statistics.tally import Tally, accuracy, from_scores
from infuser_core.store.recipe import digest_of
from infuser_core.store.runs import runs_folder
from infuser_core.store.store import Store
from infuser_core.store.tables import read_rows
from infuser_core.store.views import Lens

LETTERS = "ABCDEFGHIJ"
_GENERATED = "rollout_id <> '' and verifier <> 'code'"
"""Questions that a generator wrote; code is left out: what a key is worth there, its own tests say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The questions of an iteration as a file that anybody can be asked."""

    iteration: int
    """Iteration of the questions."""
    label: str
    """Name of the examination."""
    path: Path
    """File in the published layout."""
    rows: list[dict[str, Any]]
    """The questions as the store has them."""

    @property
    def benchmark(self) -> str:
        """What an examination takes as its benchmark."""
        return f"{self.label}={self.path}"


def iterations_of(root: Path, run: str, wanted: str) -> list[int]:
    """Iterations by number, `first`, `last` or `all`, comma-joined. Raises UsageError for one without questions."""
    lens = Lens(Store(root), runs=[run])
    try:
        rows = lens.query(f"select distinct iteration from questions where {_GENERATED} order by iteration")
    finally:
        lens.close()
    known = [int(row["iteration"]) for row in rows]
    if not known:
        raise UsageError(f"run {run} has no generated questions", hint="see `infuser status`")
    named = {"first": known[:1], "last": known[-1:], "all": known}
    chosen: list[int] = []
    for part in (part.strip() for part in wanted.split(",") if part.strip()):
        numbers = named.get(part) or ([int(part)] if part.isdecimal() and int(part) in known else [])
        if not numbers:
            hint = f"iterations: {', '.join(map(str, known))}; or first, last, all"
            raise UsageError(f"--iterations {part}: run {run} has no generated questions there", hint=hint)
        chosen += numbers
    return sorted({*chosen})


def questions_of(root: Path, run: str) -> list[dict[str, Any]]:
    """A run's generated questions with the labeller's word on their key, by iteration and id."""
    lens = Lens(Store(root), runs=[run])
    try:
        return lens.query(
            "select q.iteration, q.question_id, q.document_id, q.text, q.choices, q.answer, q.domain, q.subdomain, "
            "coalesce(l.key, '') as oracle from questions q left join question_labels l "
            "on l.run = q.run and l.iteration = q.iteration and l.question_id = q.question_id "
            f"where {_GENERATED} order by q.iteration, q.question_id"
        )
    finally:
        lens.close()


def write_questions(root: Path, run: str, iteration: int, *, limit: int | None = None) -> Sheet:
    """The iteration's questions with the generator's own keys, or `limit` of them, drawn by a hash of their id.

    Raises UsageError when the run has none there.
    """
    rows = [row for row in questions_of(root, run) if row["iteration"] == iteration]
    if not rows:
        raise UsageError(f"run {run} has no generated questions in iteration {iteration}", hint="see `infuser status`")
    label, name = f"{run}-questions-{iteration}", f"iteration-{iteration}"
    if limit is not None and limit < len(rows):
        rows = sorted(sorted(rows, key=_by_chance)[:limit], key=lambda row: str(row["question_id"]))
        label, name = f"{label}-{limit}", f"{name}-{limit}"
    path = runs_folder(root) / run / "questions" / f"{name}.json"
    write_text(path, json.dumps([_published(row) for row in rows], indent=1, ensure_ascii=False) + "\n")
    return Sheet(iteration=iteration, label=label, path=path, rows=rows)


def _by_chance(row: Mapping[str, Any]) -> str:
    return digest_of(row["question_id"])


def _published(row: Mapping[str, Any]) -> dict[str, Any]:
    key = row["choices"][LETTERS.index(row["answer"])] if row["choices"] else row["answer"]
    names = ("question_id", "choices", "domain", "subdomain")
    return {"question_text": row["text"], "ground_truth": key, **{name: row[name] for name in names}}


def tally_of(folder: Path) -> Tally:
    """What an examination came to, question by question."""
    return from_scores(read_rows(folder / "question_scores.parquet", QuestionScore))


def verdicts_of(folder: Path) -> dict[str, list[BenchmarkVerdict]]:
    """An examination's verdicts by question, under the preset that it was scored with."""
    preset = json.loads((folder / "results.json").read_text(encoding="utf-8"))["preset"]
    found: dict[str, list[BenchmarkVerdict]] = {}
    for row in read_rows(folder / "verdicts" / f"{preset}.parquet", BenchmarkVerdict):
        found.setdefault(row.question_id, []).append(row)
    return found


def gaps(solvers: Mapping[str, Tally], base: str) -> list[dict[str, Any]]:
    """One row per solver: agreement with the key, and its distance to `base` with a paired 95% interval."""
    first = {"solver": base, "agreement": accuracy(solvers[base]), "questions": len(solvers[base].question_ids)}
    return [first, *(_row(found) for found in strong_weak_gaps(solvers, base))]


def agreements(solvers: Mapping[str, Tally], base: str, iteration: int) -> list[dict[str, Any]]:
    """The rows of `gaps` with the iteration, and agreement with a 95% interval over questions."""
    empty = {"gap": None, "low": None, "high": None}
    rows = []
    for row in gaps(solvers, base):
        own = accuracy_interval(solvers[row["solver"]])
        ends = {"agreement_low": own.low, "agreement_high": own.high}
        rows.append({"iteration": iteration, **empty, **row, **ends})
    return rows


def _row(found: SolverGap) -> dict[str, Any]:
    return {
        "solver": found.solver,
        "agreement": found.accuracy,
        "questions": found.gap.questions,
        "gap": found.gap.value,
        "low": found.gap.low,
        "high": found.gap.high,
    }
