"""Pages of `infuser view` about evaluations: answers of a run's checkpoints and of any model, by question."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from infuser_core.errors import UsageError
from infuser_core.results.view.site import Listing, Number, ViewSite, listing
from infuser_core.store import runs
from infuser_core.store.catalogue import list_evaluations
from infuser_core.store.runs import EVALUATION, EVALUATIONS
from infuser_core.store.views import Lens, Rows
from infuser_core.system import sealed

CHANGES = {
    "all": "true",
    "won: more right at the end": "last > first",
    "lost: less right at the end": "last < first",
    "never right": "most = 0",
    "always right": "least = 1",
}
"""Filters of questions by the change between first and last checkpoint, with their SQL conditions."""
VERDICTS = {
    "all": "true",
    "always right": "least = 1",
    "sometimes wrong": "least = 0",
    "never right": "most = 0",
    "presets disagree": "apart",
}
"""Filters of a model's answers, with their SQL conditions."""
MOST_COLUMNS = 24
"""Most checkpoints with a column; of more, the first, the last and evenly spaced ones are shown."""
RESCORED = "-rescored"
"""Suffix of the evaluation that holds the verdicts of further grading presets."""
_HELPERS = (RESCORED, "-quality", "-probe")
"""Suffixes of folders that hold no evaluation of a model: further verdicts, checks of questions, completed questions.
"""
# Restrict by benchmark: two benchmarks may use the same id for different questions.
_ASKED = """artifact_key in (select i.input_key from artifact_inputs i join question_scores q
                on q.artifact_key = i.artifact_key where i.input = 'responses' and q.benchmark = $benchmark)"""
_SHARES = f"""with shares as (
        select question_id, iteration, any_value(domain) as domain,
            sum(num_correct) / nullif(sum(num_samples), 0) as share
        from question_scores where benchmark = $benchmark group by question_id, iteration),
    moved as (
        select question_id, any_value(domain) as domain, arg_min(share, iteration) as first,
            arg_max(share, iteration) as last, max(share) as most, min(share) as least,
            map_from_entries(list((iteration, share))) as cells
        from shares group by question_id),
    texts as (
        select question_id, any_value(text) as text from (
            select question_id, text from asked_questions where {_ASKED} union all
            select question_id, text from reference_questions) group by question_id)
    select f.question_id, t.text, f.domain, f.cells from moved f"""
_TOTALS = """with shares as (
        select question_id, iteration, sum(num_correct) / nullif(sum(num_samples), 0) as share
        from question_scores where benchmark = $benchmark group by question_id, iteration),
    moved as (select arg_min(share, iteration) as first, arg_max(share, iteration) as last from shares
        group by question_id)
    select map_from_entries(list((iteration, accuracy))) as accuracies,
        (select count(*) from moved where last > first) as won, (select count(*) from moved where last < first) as lost
    from (select iteration, avg(share) as accuracy from shares group by iteration)"""
_VERDICTS = f"""with samples as (
        select question_id, sample_index, min((verdict = 'correct')::int) as low,
            max((verdict = 'correct')::int) as high, avg((verdict = 'correct')::int) as share
        from verdicts where benchmark = $benchmark group by question_id, sample_index),
    found as (
        select question_id, min(low) as least, max(high) as most, bool_or(low <> high) as apart, avg(share) as share
        from samples group by question_id),
    texts as (
        select question_id, any_value(text) as text, any_value(choices) as choices, any_value(answer) as answer
        from asked_questions where {_ASKED} group by question_id)
    select f.question_id, t.text, t.choices, t.answer, f.share from found f"""
_RESPONSES = """select r.question_id, r.sample_index, any_value(r.response) as response,
        list_sort(list(distinct {'preset': v.preset, 'verdict': v.verdict, 'extracted': v.extracted,
            'reason': v.reason})) as verdicts
    from responses r left join verdicts v on v.benchmark = r.benchmark and v.question_id = r.question_id
        and v.sample_index = r.sample_index
    where r.benchmark = ? and list_contains(?, r.question_id)
    group by r.question_id, r.sample_index order by r.question_id, r.sample_index"""


def add_evaluations(app: FastAPI, site: ViewSite) -> None:
    """Add the pages about evaluations to the server."""

    @app.get("/runs/{name}/evaluations")
    def evaluated(
        name: str, benchmark: str = "", search: str = "", change: str = "all", number: Number = 1
    ) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        with site.lens([name]) as lens:
            table = sheet(lens, benchmark=benchmark, search=search, change=change, page=number)
        filters = {"benchmark": table["benchmark"], "search": search, "change": change}
        return site.page(
            "evaluations.html", title=f"Evaluations of {name}", name=name, sheet=table, filters=filters,
            changes=list(CHANGES),
        )  # fmt: skip

    @app.get("/evaluations")
    def models() -> HTMLResponse:
        return site.page("models.html", title="Evaluations of models", rows=listed(site.root))

    @app.get("/evaluations/{name}")
    def answered(
        name: str, benchmark: str = "", search: str = "", verdict: str = "all", number: Number = 1
    ) -> HTMLResponse:
        holder = next((each for each in list_evaluations(site.root) if each.name == name), None)
        if holder is None or holder.broken:
            problem = holder.broken if holder else f"{name}: there is no such evaluation"
            raise UsageError(problem, hint="`infuser eval` creates one")
        record = sealed.read(site.root / EVALUATIONS / name / EVALUATION)
        labels = [each["label"] for each in record["sheets"]]
        label = benchmark if benchmark in labels else labels[0]
        rescored = [name + RESCORED] if (site.root / EVALUATIONS / (name + RESCORED)).is_dir() else []
        with site.lens([name, *rescored], shelf=EVALUATIONS) as lens:
            questions = _matching(lens, _VERDICTS, VERDICTS.get(verdict, "true"), label, search, number)
            responses = _responses(lens, label, [row["question_id"] for row in questions.rows])
        filters = {"benchmark": label, "search": search, "verdict": verdict}
        return site.page(
            "answers.html", title=f"{record['model']} on {label}", labels=labels, filters=filters, listing=questions,
            responses=responses, verdicts=list(VERDICTS),
        )  # fmt: skip


def _matching(lens: Lens, statement: str, condition: str, benchmark: str, search: str, page: int) -> Listing:
    """One page of a benchmark's questions that match a filter, with their texts."""
    filtered = f"""{statement} left join texts t on t.question_id = f.question_id
        where ({condition}) and (contains(lower(coalesce(t.text, '')), lower($search)) or
            contains(f.question_id, $search))"""
    return listing(lens, filtered, {"benchmark": benchmark, "search": search}, order="question_id", page=page)


def sheet(lens: Lens, *, benchmark: str, search: str, change: str, page: int) -> dict[str, Any]:
    """One page of a benchmark's questions, with every checkpoint's share of right answers; pages count from 1.

    An empty or unknown `benchmark` means the first one; `cells` of a question are the shares of right answers by
    `checkpoints`, numbers of iterations.
    """
    names = [row["name"] for row in lens.query("select distinct benchmark as name from question_scores order by 1")]
    label = benchmark if benchmark in names else (names[0] if names else "")
    if not label:
        nothing = Listing(rows=[], total=0, page=1)
        return {"benchmarks": [], "benchmark": "", "checkpoints": [], "listing": nothing, "totals": {}}
    iterations = lens.query(
        "select distinct iteration as n from question_scores where benchmark = ? order by 1", [label]
    )
    checkpoints = _spread([row["n"] for row in iterations])
    questions = _matching(lens, _SHARES, CHANGES.get(change, "true"), label, search, page)
    rows = [{**row, "cells": [row["cells"].get(each) for each in checkpoints]} for row in questions.rows]
    (totals,) = lens.query(_TOTALS, {"benchmark": label})
    return {
        "benchmarks": names,
        "benchmark": label,
        "totals": {**totals, "accuracies": [totals["accuracies"].get(each) for each in checkpoints]},
        "checkpoints": checkpoints,
        "listing": replace(questions, rows=rows),
    }


def _spread(iterations: list[Any]) -> list[Any]:
    """Choose at most MOST_COLUMNS iterations, evenly spaced, with both ends."""
    if len(iterations) <= MOST_COLUMNS:
        return iterations
    step = (len(iterations) - 1) / (MOST_COLUMNS - 1)
    return [iterations[round(place * step)] for place in range(MOST_COLUMNS)]


def _responses(lens: Lens, benchmark: str, questions: list[str]) -> dict[str, Rows]:
    """Responses by question, each with `verdicts`: preset, verdict, extracted answer, reason."""
    responses: dict[str, Rows] = {name: [] for name in questions}
    for row in lens.query(_RESPONSES, [benchmark, questions]):
        responses[row["question_id"]].append(row)
    return responses


def listed(root: Path) -> list[dict[str, Any]]:
    """List the store's evaluations: name, model, preset and accuracy by benchmark, and the problem of a damaged one."""
    rows = []
    for holder in list_evaluations(root):
        outcome, problem = _results(root / EVALUATIONS / holder.name / "results.json")
        if outcome or not holder.name.endswith(_HELPERS):
            facts = {name: outcome.get(name, nothing) for name, nothing in _FACTS.items()}
            rows.append({"name": holder.name, "problem": holder.broken or problem, **facts})
    return rows


_FACTS: dict[str, Any] = {"model": "", "preset": "", "benchmarks": {}}
"""Facts of an evaluation in the list, with their defaults."""


def _results(path: Path) -> tuple[dict[str, Any], str]:
    """Results of an evaluation, or {} and the reason why there are none."""
    try:
        return json.loads(path.read_text(encoding="utf-8")), ""
    except FileNotFoundError:
        return {}, "not complete"
    except (OSError, ValueError) as error:
        return {}, f"{path.name}: {error}"
