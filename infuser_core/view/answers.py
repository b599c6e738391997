"""Pages of `infuser view` on evaluations of any model: their list, and every response beside its verdicts by preset."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse

from infuser_core import sealed
from infuser_core.errors import UsageError
from infuser_core.store.catalogue import evaluation, evaluations
from infuser_core.store.runs import EVALUATION, EVALUATIONS
from infuser_core.store.views import Lens, Rows
from infuser_core.view.site import Listing, Site, listing

RESCORED = "-rescored"
"""End of the name of the record that holds further presets."""
VERDICTS = {
    "all": "true",
    "always right": "least = 1",
    "sometimes wrong": "least = 0",
    "never right": "most = 0",
    "presets disagree": "apart",
}
"""Filter in words, to its condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a benchmark's questions with their responses."""

    listing: Listing
    """Per question that the filter lets through its id, text, choices, answer and share of right verdicts."""
    responses: dict[str, Rows]
    """Per question its responses in order, each with `verdicts`: preset, verdict, extracted answer, reason."""


def add_answers(app: FastAPI, site: Site) -> None:
    """Add these pages."""

    @app.get("/evaluations")
    def evaluated() -> HTMLResponse:
        return site.page("models.html", title="Evaluations of models", rows=listed(site.root))

    @app.get("/evaluations/{name}")
    def answered(
        name: str,
        benchmark: str = "",
        search: str = "",
        verdict: str = "all",
        number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    ) -> HTMLResponse:
        holder = evaluation(site.root, name)
        if holder is None or holder.broken:
            problem = holder.broken if holder else f"{name}: there is no such evaluation"
            raise UsageError(problem, hint="`infuser eval` makes one")
        record = sealed.read(site.root / EVALUATIONS / name / EVALUATION)
        labels = [sheet["label"] for sheet in record["sheets"]]
        chosen = benchmark if benchmark in labels else labels[0]
        rescored = [name + RESCORED] if (site.root / EVALUATIONS / (name + RESCORED)).is_dir() else []
        with site.lens([name, *rescored], shelf=EVALUATIONS) as lens:
            found = page_of(lens, benchmark=chosen, search=search, verdict=verdict, page=number)
        wanted = {"benchmark": chosen, "search": search, "verdict": verdict}
        return site.page(
            "answers.html", title=f"{record['model']} on {chosen}", labels=labels, wanted=wanted, found=found,
            verdicts=list(VERDICTS),
        )  # fmt: skip


def listed(root: Path) -> list[dict[str, Any]]:
    """Evaluations of the store: name, model, preset and accuracy by benchmark; a reason where one is damaged."""
    rows = []
    for holder in evaluations(root):
        found, problem = _results(root / EVALUATIONS / holder.name / "results.json")
        if holder.name.endswith(RESCORED) and not found:
            continue
        rows.append(
            {
                "name": holder.name,
                "problem": holder.broken or problem,
                "model": found.get("model", ""),
                "preset": found.get("preset", ""),
                "benchmarks": found.get("benchmarks", {}),
            }
        )
    return rows


def _results(path: Path) -> tuple[dict[str, Any], str]:
    """Accuracies of an evaluation; without them, the reason."""
    try:
        return json.loads(path.read_text(encoding="utf-8")), ""
    except FileNotFoundError:
        return {}, "not complete"
    except (OSError, ValueError) as error:
        return {}, f"{path.name}: {error}"


def page_of(lens: Lens, *, benchmark: str, search: str, verdict: str, page: int) -> Page:
    """Questions of one benchmark with their responses; pages count from 1."""
    found = listing(
        lens,
        f"""with samples as (
            select question_id, sample_index, min((verdict = 'correct')::int) as low,
                max((verdict = 'correct')::int) as high, avg((verdict = 'correct')::int) as share
            from verdicts where benchmark = ? group by question_id, sample_index),
        found as (
            select question_id, min(low) as least, max(high) as most, bool_or(low <> high) as apart, avg(share) as share
            from samples group by question_id),
        texts as (
            select question_id, any_value(text) as text, any_value(choices) as choices, any_value(answer) as answer
            from asked_questions group by question_id)
        select f.question_id, t.text, t.choices, t.answer, f.share
        from found f left join texts t on t.question_id = f.question_id
        where {VERDICTS.get(verdict, "true")} and (contains(lower(coalesce(t.text, '')), lower(?)) or
            contains(f.question_id, ?))""",
        [benchmark, search, search],
        order="question_id",
        page=page,
    )
    responses: dict[str, Rows] = {row["question_id"]: [] for row in found.rows}
    rows = lens.query(
        """select r.question_id, r.sample_index, any_value(r.response) as response,
            list_sort(list(distinct {'preset': v.preset, 'verdict': v.verdict, 'extracted': v.extracted,
                'reason': v.reason})) as verdicts
        from responses r left join verdicts v on v.benchmark = r.benchmark and v.question_id = r.question_id
            and v.sample_index = r.sample_index
        where r.benchmark = ? and list_contains(?, r.question_id)
        group by r.question_id, r.sample_index order by r.question_id, r.sample_index""",
        [benchmark, list(responses)],
    )
    for row in rows:
        responses[row["question_id"]].append(row)
    return Page(listing=found, responses=responses)
