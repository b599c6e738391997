"""Pages of `infuser view` about runs: list of runs, comparison of two, one run, its iterations, its artifact graph."""

from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from infuser_core.errors import UsageError
from infuser_core.results.lineage import progress
from infuser_core.results.lineage.attempts import state_of
from infuser_core.results.lineage.graph import graph_of
from infuser_core.results.lineage.pages import folds
from infuser_core.results.view.charts import charts
from infuser_core.results.view.run import curves, live_parts, run_page
from infuser_core.results.view.site import ViewSite
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
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
    "where phase = 'generate_questions' and malformed_reason <> '' group by 1 order by 2 desc limit 12",
    "Answers to the questions": "select verdict, count(*) as answers, avg(reward) as reward, "
    "avg(len(token_ids)) as tokens, avg((finish_reason = 'length')::int) as cut_off from rollouts "
    "where phase = 'rollout_questions' group by 1 order by 2 desc limit 12",
    "Influence": "select status, count(*) as questions, avg(score) as mean, min(score) as lowest, "
    "max(score) as highest, avg(solver_accuracy) as accuracy from scores group by 1 order by 2 desc limit 12",
    "Optimizer steps": "select role, step, num_groups as groups, num_responses as responses, loss, gradient_norm, "
    "entropy, clip_fraction, skipped from updates order by role, step limit 60",
    "Validation and benchmarks of the solver that enters it": "select benchmark, accuracy, low, high, num_questions as "
    "questions from benchmark_scores order by 1",
    "Stages": "select phase, state, rows, seconds, artifact_key from run_artifacts limit 60",
}
"""Tables of an iteration's page: heading and SQL statement; empty tables are not shown."""


def add_runs(app: FastAPI, site: ViewSite) -> None:
    """Add the pages about runs to the server."""

    @app.get("/")
    def list_runs() -> HTMLResponse:
        summaries, damage = progress.summaries(site.root)
        return site.page("runs.html", title="Runs", runs=summaries[::-1], damage=damage, store=str(site.root))

    @app.get("/compare")
    def compare(run: Annotated[list[str], Query()] = []) -> HTMLResponse:  # noqa: B006
        if len(run) != 2:
            raise UsageError(f"{len(run)} runs are selected", hint="select two runs to compare")
        names = [runs.find_run(site.root, name) for name in run]
        with site.lens(names) as lens:
            return site.page(
                "compare.html", title=" compared with ".join(names), names=names, charts=curves(lens, names)
            )

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
        run = live_parts(site.root, name, state, runs.read_config(site.root, name))
        with site.lens([name]) as lens:
            drawn = [chart.to_json(since) for chart in charts(lens, {name: name})]
        parts = {part: site.html(f"run_{part}.html", run=run) for part in ("status", "parts")}
        return {"state": state, "parts": parts, "charts": null_nonfinite(drawn)}

    @app.get("/runs/{name}/lineage")
    def lineage(name: str) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        graph = graph_of(Catalogue(site.root), name)
        return site.page("lineage.html", title=f"Lineage of {name}", name=name, graph=graph, folds=folds(graph))

    _add_iterations(app, site)


def _add_iterations(app: FastAPI, site: ViewSite) -> None:
    """Add the page of an iteration, with counts from documents to updates, and a slider to other iterations."""

    @app.get("/runs/{name}/iterations")
    def slide(name: str, number: int = 0) -> RedirectResponse:
        return RedirectResponse(f"/runs/{runs.find_run(site.root, name)}/iterations/{number}", status_code=303)

    @app.get("/runs/{name}/iterations/{number}")
    def iteration(name: str, number: int) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        iterations = sorted({entry.iteration for entry in Journal(site.root, name).latest() if entry.iteration >= 0})
        if number not in iterations:
            hint = f"it has {iterations[0]} to {iterations[-1]}" if iterations else "it has not started one"
            raise UsageError(f"run {name} has no iteration {number}", hint=hint)
        with site.lens([name], iterations=[number]) as lens:
            counts = {step: int(next(iter(lens.query(f"select {sql}")[0].values()))) for step, sql in _FUNNEL.items()}
            tables = {title: rows for title, sql in _TABLES.items() if (rows := lens.query(sql))}
        return site.page(
            "iteration.html", title=f"Iteration {number} of {name}", name=name, number=number, iterations=iterations,
            funnel=counts, tables=tables,
        )  # fmt: skip
