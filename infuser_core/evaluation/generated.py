"""Evaluate any solver on the questions that a run generated, and check the questions and their keys (answers)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from infuser_core.errors import NUMBER, UsageError
from infuser_core.evaluation.benchmarks.parts.question_sets import question_of
from infuser_core.evaluation.plan import ExamPlan, single_plan
from infuser_core.evaluation.statistics.bootstrap import difference, estimate
from infuser_core.evaluation.statistics.question_quality import CheckedQuestion, check_key, count_copies, find_pointer
from infuser_core.evaluation.statistics.tally import Tally, accuracy, from_scores, shares
from infuser_core.prompts.templates import LETTERS, render_question
from infuser_core.schemas import BenchmarkVerdict, QuestionScore
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.system.sealed import digest_of

Row = Mapping[str, Any]
_GENERATED = "rollout_id <> '' and verifier <> 'code'"
"""Questions that a generator wrote; code is left out: its keys are checked by tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSet:
    """Generated questions of one iteration, as an evaluation for any solver."""

    iteration: int
    label: str
    """Label of the evaluation."""
    ref: ArtifactRef
    """The questions' artifact."""
    rows: Sequence[Row]
    """The questions as the store has them, with the labeller's verdict on their key as `oracle`."""

    def plan(self, *, samples: int, max_tokens: int) -> ExamPlan:
        """The questions as an evaluation, with the generator's own keys."""
        questions = []
        for row in self.rows:
            key = row["choices"][LETTERS.index(row["answer"])] if row["choices"] else row["answer"]
            copied = {name: row[name] for name in ("question_id", "choices", "domain", "subdomain")}
            questions.append(question_of({"question_text": row["text"], "ground_truth": key, **copied}, self.label))
        return single_plan(self.label, questions, samples=samples, max_tokens=max_tokens, name="released")


def iterations_of(root: Path, run: str, text: str) -> list[int]:
    """Parse iterations: numbers, `first`, `last` or `all`, with commas. Raises UsageError for one without questions."""
    rows = _query(root, run, f"select distinct iteration from questions where {_GENERATED} order by iteration")
    iterations = [int(row["iteration"]) for row in rows]
    if not iterations:
        raise UsageError(f"run {run} has no generated questions", hint="see `infuser status --stages`")
    by_name = {"first": iterations[:1], "last": iterations[-1:], "all": iterations}
    selection: set[int] = set()
    for part in (part.strip() for part in text.split(",") if part.strip()):
        is_number = re.fullmatch(NUMBER, part) and int(part) in iterations
        numbers = by_name.get(part) or ([int(part)] if is_number else [])
        if not numbers:
            hint = f"iterations: {', '.join(map(str, iterations))}; or first, last, all"
            raise UsageError(f"--iterations {part}: run {run} has no generated questions there", hint=hint)
        selection.update(numbers)
    return sorted(selection)


def generated_set(root: Path, run: str, iteration: int, *, limit: int | None = None) -> GeneratedSet:
    """Generated questions of an iteration, or `limit` of them, drawn by a hash of their id.

    Raises UsageError if the iteration has none.
    """
    rows = _query(
        root,
        run,
        "select q.artifact_key, q.iteration, q.question_id, q.document_id, q.text, q.choices, q.answer, q.domain, "
        "q.subdomain, coalesce(l.key, '') as oracle from questions q left join question_labels l "
        "on l.run = q.run and l.iteration = q.iteration and l.question_id = q.question_id "
        f"where {_GENERATED} and q.iteration = {iteration} order by q.question_id",
    )
    if not rows:
        raise UsageError(
            f"run {run} has no generated questions in iteration {iteration}", hint="see `infuser status --stages`"
        )
    label = f"{run}-questions-{iteration}"
    if limit is not None and limit < len(rows):
        rows = sorted(rows, key=lambda row: digest_of(row["question_id"]))[:limit]
        rows.sort(key=lambda row: str(row["question_id"]))
        label = f"{label}-{limit}"
    (ref,) = Store(root).refs(str(rows[0]["artifact_key"]))
    return GeneratedSet(iteration=iteration, label=label, ref=ref, rows=rows)


def _query(root: Path, run: str, sql: str) -> list[dict[str, Any]]:
    with closing(Lens(Store(root), runs=[run])) as lens:
        return lens.query(sql)


def tally_of(store: Store, scores: ArtifactRef) -> Tally:
    """Read the counts of correct answers of an evaluation, question by question."""
    return from_scores(store.rows(scores, "question_scores", QuestionScore))


def agreements(solvers: Mapping[str, Tally], iteration: int) -> list[dict[str, Any]]:
    """Agreement of each solver with the generator's keys, and its gap to the first solver; with 95% intervals."""
    base = next(iter(solvers.values()), None)
    rows = []
    for solver, tally in solvers.items():
        own = estimate(shares(tally))
        gap = difference(base, tally) if base is not None and tally is not base else None
        rows.append(
            {
                "iteration": iteration,
                "solver": solver,
                "agreement": accuracy(tally),
                "agreement_low": own.low,
                "agreement_high": own.high,
                "gap": gap and gap.value,
                "low": gap and gap.low,
                "high": gap and gap.high,
                "questions": (gap or own).questions,
            }
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A judge's verdict on one question."""

    question_id: str
    usable: bool
    """Whether any of the judge's replies could be read."""
    self_contained: bool
    """Whether the question can be understood alone; meaningless without a usable reply."""
    missing: str
    """Missing context, in the judge's words."""
    reply: str
    """Last reply."""


def verdicts_of(store: Store, scores: Sequence[ArtifactRef]) -> dict[str, list[BenchmarkVerdict]]:
    """Read the verdicts (results of checking answers) of evaluations, by question id."""
    by_question: dict[str, list[BenchmarkVerdict]] = {}
    for ref in scores:
        for row in store.rows(ref, "verdicts", BenchmarkVerdict):
            by_question.setdefault(row.question_id, []).append(row)
    return by_question


def strongest_solver(tallies: Iterable[Mapping[str, Tally]]) -> str:
    """The solver that agrees with the keys most often, over all iterations; empty without solvers."""
    sums: dict[str, float] = {}
    for solvers in tallies:
        for name, tally in solvers.items():
            sums[name] = sums.get(name, 0.0) + accuracy(tally)
    return max(sums, key=lambda name: sums[name], default="")


def check_questions(
    questions: Sequence[Row],
    tallies: Mapping[int, Mapping[str, Tally]],
    verdicts: Mapping[str, Sequence[BenchmarkVerdict]],
    *,
    judged: Mapping[str, Judged],
) -> list[CheckedQuestion]:
    """Run every check on every question, iteration by iteration.

    `tallies` are the counts of every solver by iteration, `verdicts` the strongest solver's verdicts by question id.
    """
    rows: list[CheckedQuestion] = []
    for iteration, mine in groupby(questions, key=lambda row: int(row["iteration"])):
        rows += _check_iteration(list(mine), list(tallies[iteration].values()), verdicts, judged)
    return rows


def _check_iteration(
    questions: Sequence[Row],
    tallies: Sequence[Tally],
    verdicts: Mapping[str, Sequence[BenchmarkVerdict]],
    judged: Mapping[str, Judged],
) -> Iterator[CheckedQuestion]:
    copies = count_copies({row["question_id"]: render_question(row["text"], list(row["choices"])) for row in questions})
    agreement: dict[str, list[float]] = {}
    for place, tally in enumerate(tallies):
        for name, share in zip(tally.question_ids, shares(tally), strict=True):
            agreement.setdefault(name, [-1.0] * len(tallies))[place] = float(share)
    for row in questions:
        name = str(row["question_id"])
        pointer = find_pointer(" ".join([row["text"], *row["choices"]]))
        verdict = judged.get(name)
        verdict = verdict if verdict is not None and verdict.usable else None
        key, majority = check_key(verdicts[name]) if verdicts.get(name) else ("", "")
        yield CheckedQuestion(
            iteration=row["iteration"],
            question_id=name,
            document_id=row["document_id"],
            text=row["text"],
            choices=list(row["choices"]),
            answer=row["answer"],
            copies=copies[name],
            points_at=pointer,
            self_contained=verdict.self_contained if verdict else not pointer,
            decided_by="judge" if verdict else "rules",
            missing=verdict.missing if verdict else "",
            key=key,
            majority=majority,
            oracle=row["oracle"],
            agreement=agreement.get(name, []),
        )
