"""Pages of `infuser view` about runs: their list, one run, its iterations and its artifact graph."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from infuser_core.config.phase_table import GRADINGS, Phase
from infuser_core.errors import InfuserError, UsageError
from infuser_core.results.lineage import progress
from infuser_core.results.lineage.attempts import state_of
from infuser_core.results.lineage.graph import graph_of, stale_reasons
from infuser_core.results.lineage.pages import folds
from infuser_core.results.lineage.run_warnings import run_warnings
from infuser_core.results.report.queries import differing, report_run
from infuser_core.results.view.charts import charts
from infuser_core.results.view.compare import compared, setting_label
from infuser_core.results.view.run import examples, live_parts, run_page, verdict_parts
from infuser_core.results.view.site import ViewSite
from infuser_core.schemas import MEANINGS
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.views import Rows
from infuser_core.terminal import null_nonfinite

_FUNNEL = {
    "documents drawn": "count(distinct group_id) from rollouts where phase = 'generate_questions'",
    "texts written by the generator": "count(*) from rollouts where phase = 'generate_questions'",
    "questions": "count(*) from questions",
    "questions answered by the solver": "count(distinct group_id) from rollouts where phase = 'rollout_questions'",
    "questions with an influence score": "count(*) from scores where status = 'scored'",
    "questions in the solver's steps": "coalesce(sum(num_groups), 0) from updates where role = 'solver'",
    "documents in the generator's steps": "coalesce(sum(num_groups), 0) from updates where role = 'generator'",
}
"""Steps of an iteration from documents to updates, with the SQL of their counts."""
_TABLES = {
    "Texts that became no question": "select malformed_reason as reason, count(*) as texts from rollouts "
    "where phase = 'generate_questions' and malformed_reason <> '' group by 1 order by 2 desc, 1 limit 12",
    "Answers to the questions": "select verdict, count(*) as answers, avg(reward) as reward, "
    "avg(len(token_ids)) as tokens, avg((finish_reason = 'length')::int) as cut_off from rollouts "
    "where phase = 'rollout_questions' group by 1 order by 2 desc, 1 limit 12",
    "Influence": "select status, count(*) as questions, avg(score) as mean, min(score) as lowest, "
    "max(score) as highest, avg(solver_accuracy) as solver_accuracy from scores group by 1 order by 2 desc, 1 limit 12",
    "Optimizer steps": "select role, step, num_groups as groups, num_responses as responses, loss, gradient_norm, "
    "entropy, clip_fraction, skipped from updates order by role, step limit 60",
    "Validation and benchmarks of the solver that enters it": "select benchmark, accuracy, low, high, num_questions as "
    "questions from benchmark_scores order by 1",
    "Stages": "select phase, state, rows, seconds, artifact_key from run_artifacts order by rowid limit 60",
}
"""Tables of an iteration's page: heading and SQL statement; empty tables are not shown."""
_SCORES = "select score from scores where status = 'scored' order by score"
_BINS = 24
"""Bars of the histogram of influence scores, an even number: 0 is between two of them."""
_MOST_LEAVES = 3
"""Most settings that the list of runs shows for a run."""


def add_runs(app: FastAPI, site: ViewSite) -> None:
    """Add the pages about runs to the server."""

    @app.get("/")
    def list_runs() -> HTMLResponse:
        lines, damage = list_lines(site.root)
        return site.page("runs.html", title="Runs", runs=lines, damage=damage, store=str(site.root))

    @app.get("/compare")
    def compare(run: Annotated[list[str], Query()] = []) -> HTMLResponse:  # noqa: B006
        names = list(dict.fromkeys(runs.find_run(site.root, name) for name in run))
        if len(run) < 2:
            raise UsageError(f"{len(run)} runs are selected", hint="select two runs or more to compare them")
        with site.lens(names) as lens:
            return site.page("compare.html", title=f"{len(run)} runs compared", **compared(site.root, lens, names))

    @app.get("/runs/{name}")
    def one_run(name: str) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        with site.lens([name]) as lens:
            return site.page("run.html", title=name, name=name, run=run_page(site.root, name, lens))

    @app.get("/runs/{name}/live")
    def live(name: str, since: int = -1) -> dict[str, Any]:
        """New points of the charts from the iteration `since` on, and the parts of the page that change."""
        name = runs.find_run(site.root, name)
        state = state_of(site.root, name)
        config = runs.read_config(site.root, name)
        run = live_parts(site.root, name, state, config)
        with site.lens([name]) as lens:
            points = [chart.to_json(since) for chart in charts(lens, {name: name})]
            run |= verdict_parts(site.root, name, lens)
        parts = {part: site.html(f"run_{part}.html", run=run) for part in ("status", "verdict", "parts")}
        return {"state": state, "parts": parts, "charts": null_nonfinite(points)}

    @app.get("/runs/{name}/warnings")
    def warnings(name: str) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        with site.lens([name]) as lens:
            return site.page("run_warnings.html", warnings=run_warnings(lens, name))

    @app.get("/runs/{name}/lineage")
    def lineage(name: str) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        graph = graph_of(Catalogue(site.root), name)
        return site.page(
            "lineage.html", title=f"Lineage of {name}", name=name, graph=graph, folds=folds(graph),
            stale=stale_reasons(graph),
        )  # fmt: skip

    _add_iterations(app, site)


def list_lines(root: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    """Lines of the list of runs, the latest first, and the errors of damaged runs."""
    summaries, damage = progress.summaries(root)
    catalogue = Catalogue(root)
    configs = {each.run: runs.read_config(root, each.run) for each in summaries if each.created}
    settings = {name: report_run(name, config) for name, config in configs.items()}
    lines = []
    for each in summaries[::-1]:
        peers = (
            [settings[other] for other in settings if configs[other]["name"] == configs[each.run]["name"]]
            if (each.run in configs)
            else []
        )
        leaves = [setting_label(settings[each.run], leaf) for leaf in differing(peers)]
        more = [f"and {len(leaves) - _MOST_LEAVES} more"] if len(leaves) > _MOST_LEAVES else []
        lines.append({"run": each, "differs": [*leaves[:_MOST_LEAVES], *more], **_accuracies(catalogue, each.run)})
    return lines, damage


def _accuracies(catalogue: Catalogue, name: str) -> dict[str, Any]:
    """Validation accuracies of a run by iteration, its best and its selected iteration, and benchmark accuracies."""
    try:
        entries = [
            (entry.iteration, catalogue.record(entry.key))
            for entry in Journal(catalogue.root, name).latest()
            if entry.phase in (*GRADINGS, Phase.SELECT)
        ]
    except InfuserError:
        # The list of runs names the damage.
        entries = []
    curve = {i: each.summary["accuracy"] for i, each in entries if each.phase == Phase.VALIDATE}
    selected = next((each.summary.get("selected_iteration") for _, each in entries if each.phase == Phase.SELECT), None)
    last = selected if selected is not None else max(curve, default=None)
    benchmarks = {
        each.summary.get("benchmark", each.label): each.summary.get("accuracy")
        for i, each in entries
        if each.phase == Phase.EVALUATE and i == selected
    }
    return {
        "curve": dict(sorted(curve.items())),
        "best": max(curve, key=lambda i: curve[i]) if curve else None,
        "selected": last,
        "benchmarks": benchmarks,
    }


def histogram(scores: Rows) -> dict[str, Any]:
    """Counts of influence scores in bins of equal width around 0, and the largest absolute score; empty for none."""
    if not scores:
        return {}
    most = max(abs(row["score"]) for row in scores) or 1.0
    counts = [0] * _BINS
    for row in scores:
        counts[min(_BINS - 1, int((row["score"] / most + 1) / 2 * _BINS))] += 1
    return {"most": most, "counts": counts}


def _add_iterations(app: FastAPI, site: ViewSite) -> None:
    """Add the page of an iteration, with counts from documents to updates, and a slider to other iterations."""

    @app.get("/runs/{name}/iterations")
    def slide(name: str, number: int = 0) -> RedirectResponse:
        return RedirectResponse(f"/runs/{runs.find_run(site.root, name)}/iterations/{number}", status_code=303)

    @app.get("/runs/{name}/iterations/{number}")
    def iteration(name: str, number: int) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        executed = {entry.iteration for entry in Journal(site.root, name).latest() if entry.iteration >= 0}
        total = runs.read_config(site.root, name).get("cotrain", {}).get("iterations", 0)
        iterations = sorted({*executed, *range(total)})
        if number not in iterations:
            hint = f"it has {iterations[0]} to {iterations[-1]}" if iterations else "its settings ask for none"
            raise UsageError(f"run {name} has no iteration {number}", hint=hint)
        facts: dict[str, Any] = {"name": name, "number": number, "iterations": iterations}
        if number not in executed:
            run = live_parts(site.root, name, state_of(site.root, name), runs.read_config(site.root, name))
            return site.page("not_yet.html", title=f"Iteration {number} has not run yet", run=run, **facts)
        with site.lens([name], iterations=[number]) as lens:
            counts = {step: int(next(iter(lens.query(f"select {sql}")[0].values()))) for step, sql in _FUNNEL.items()}
            tables = {title: rows for title, sql in _TABLES.items() if (rows := lens.query(sql))}
            scores = histogram(lens.query(_SCORES))
            sample = examples(lens, name, number)
        terms = [str(value) for rows in tables.values() for row in rows for value in row.values() if value in MEANINGS]
        return site.page(
            "iteration.html", title=f"Iteration {number} of {name}", funnel=counts, tables=tables, scores=scores,
            examples=sample, terms=sorted({*terms}), **facts,
        )  # fmt: skip
