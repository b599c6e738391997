"""Build and write reports: a page for one run, a page for several runs, and curves over iterations."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.config.run import RunConfig
from infuser_core.results.report import charts, front, outline, page
from infuser_core.results.report.charts import ChartSeries
from infuser_core.results.report.content import Report
from infuser_core.results.report.queries import report_run, report_runs
from infuser_core.results.view.questions import MEASURED, SCORED
from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.system import durable
from infuser_core.terminal import format_rows

MOST_QUESTIONS = 2000
"""Most questions in the table of a run's page, which keeps it below 5 MB."""
_QUESTIONS = f"""
    select left(q.text, 300) as question, left(q.answer, 60) as answer, q.iteration, {MEASURED}, d.source_id as textbook
    from {SCORED} order by abs(s.score) desc nulls last, q.iteration, q.question_id limit ?"""


def write_report(
    root: Path, name: str, *, compare_with: str | None = None, html: Path | None = None, figures: Path | None = None
) -> Path:
    """Write a run's report, next to `compare_with` or else to its control, if the store has one.

    Optionally also write a copy at `html` and the charts into the folder `figures`.
    """
    control = compare_with or runs.control_of(root, name)
    checks = newest_checks(root, [name])
    names = [name, *([control] if control else [])]
    configs = {each: runs.read_config(root, each) for each in names}
    members = [report_run(each, config) for each, config in configs.items()]
    with closing(Lens(Store(root), runs=names)) as lens, closing(Lens(Store(root), runs=[name])) as run_lens:
        quality_facts = json.loads(checks[name].read_text(encoding="utf-8")) if checks else None
        document = front.report(
            lens,
            run_lens,
            members,
            config=RunConfig.model_validate(configs[name]),
            details=outline.details(lens.query, members[0], compare_with=control, quality_facts=quality_facts),
        )
        questions = run_lens.query(_QUESTIONS, [MOST_QUESTIONS])
        total = run_lens.query("select count(*) as n from questions")[0]["n"]
    folder = runs.report_folder(root, name)
    path = folder / "report.html"
    durable.write(folder / "report.md", page.markdown(document))
    durable.write(path, page.render(document, questions=questions, total=total))
    if figures is not None:
        save_figures(document, figures)
    if html is not None:
        durable.write(html, path.read_bytes())
    return path


def save_figures(report: Report, folder: Path) -> list[Path]:
    """Write every chart of a report as SVG and PNG on a white background, named after its content; return the paths."""
    saved = []
    for figure in (one for section in report.all_sections for one in section.figures):
        for ending, content in (("svg", charts.svg(figure, themed=False)), ("png", charts.png(figure))):
            saved.append(folder / f"{figure.name}.{ending}")
            durable.write(saved[-1], content)
    return saved


def write_several(root: Path, names: Sequence[str], *, html: Path, figures: Path | None = None) -> list[Path]:
    """Write one page for several runs, and its charts into the folder `figures`; return the paths."""
    with closing(Lens(Store(root), runs=names)) as lens:
        configs = {name: runs.read_config(root, name) for name in names}
        document = outline.runs_report(lens.query, report_runs(configs), checks=newest_checks(root, names))
    durable.write(html, page.render(document))
    return [html, *(save_figures(document, figures) if figures is not None else [])]


def comparison_page(root: Path, name: str, other: str) -> Path:
    """Write the run's report with another run's curve, only if one of them has new artifacts; return its path."""
    path = runs.report_folder(root, name) / "report.html"
    has_new = any(entry.state == "ran" for run in (name, other) for entry in Journal(root, run).last_attempt())
    return write_report(root, name, compare_with=other) if has_new or not path.exists() else path


def newest_checks(root: Path, names: Sequence[str]) -> dict[str, Path]:
    """Files of the newest checks by `infuser report quality`, by run; runs without checks are absent."""
    store, refs = Store(root), {}
    checks = [store.manifest(ref) for ref in store.refs("quality-")]
    checks.sort(key=lambda record: (record.created, record.key))
    for name in names:
        keys = {entry.key for entry in Journal(root, name).latest() if entry.phase == Phase.GENERATE_QUESTIONS}
        for record in checks:
            if keys & {source.split("@")[0] for source in record.inputs.values()}:
                refs[name] = record.ref
    return {name: store.path(ref, "quality.json") for name, ref in refs.items()}


def curves(root: Path, names: Mapping[str, str]) -> str:
    """Table of the validation accuracy of several runs per iteration; `names` maps a column's heading to a run."""
    with closing(Lens(Store(root), runs=list(names.values()))) as lens:
        rows = lens.query(
            "select iteration, run, accuracy from benchmark_scores where phase = 'validate' order by iteration"
        )
    places = {(row["iteration"], row["run"]): f"{row['accuracy']:.3f}" for row in rows}
    return format_rows(
        [
            {"iteration": number} | {label: places.get((number, run), "") for label, run in names.items()}
            for number in sorted({row["iteration"] for row in rows})
        ]
    )


def influence_curve(root: Path, name: str, *, figure: Path | None = None) -> dict[str, Any]:
    """Mean influence score per iteration over all questions; `first` and `last` are means over five iterations."""
    with closing(Lens(Store(root), runs=[name])) as lens:
        curve = lens.query("select iteration, avg(score) as score from scores group by iteration order by iteration")
    means = [row["score"] for row in curve]
    if figure is not None:
        line = ChartSeries(label=name, x=[row["iteration"] for row in curve], y=means)
        caption = "Mean influence score per iteration"
        chart = charts.lines(caption, [line], name="curve", label="mean influence score", xlabel="generator updates")
        durable.write(figure, charts.svg(chart, themed=False))
    return {"run": name, "first": mean(means[:5]), "last": mean(means[-5:]), "curve": curve}
