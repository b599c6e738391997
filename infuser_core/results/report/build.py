"""Reports of the runs in a store: pages for one run or several, curves."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.config.run import RunConfig
from infuser_core.evaluation.anchors import anchor_notes
from infuser_core.results.report import charts, outline, page
from infuser_core.results.report.charts import Series
from infuser_core.results.report.content import Report
from infuser_core.results.report.queries import choose
from infuser_core.results.view.questions import MEASURED, SCORED
from infuser_core.results.view.run import curves as drawn
from infuser_core.results.view.run import run_page
from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.system import durable
from infuser_core.terminal import table

MOST_LINES = 12
"""Runs with a line of their own in the first charts of a page on several."""
MOST_QUESTIONS = 2000
"""Questions of a run in the table of its page, which stays below 5 MB by that."""
_QUESTIONS = f"""
    select left(q.text, 300) as question, left(q.answer, 60) as answer, q.iteration, {MEASURED}, d.source_id as textbook
    from {SCORED} order by abs(s.score) desc nulls last, q.iteration, q.question_id limit ?"""


def report(
    root: Path, name: str, *, compare_with: str | None = None, html: Path | None = None, figures: Path | None = None
) -> Path:
    """Write a run's report, optionally beside another's curve, as a copy too and with its charts as files."""
    raw = runs.read_config(root, name)
    beside = [compare_with] if compare_with else []
    store, found = Store(root), newest_checks(root, [name])
    checked = json.loads(found[name].read_text(encoding="utf-8")) if found else None
    with closing(Lens(store, runs=[name, *beside])) as lens, closing(Lens(store, runs=[name])) as own:
        made = outline.of_run(
            lens.query,
            choose({name: raw})[0],
            compare_with=compare_with,
            notes=_notes(RunConfig.model_validate(raw), lens, name),
            checked=checked,
        )
        shown = {**run_page(root, name, own), "charts": drawn(lens, [name, *beside])}
        asked = own.query(_QUESTIONS, [MOST_QUESTIONS])
        total = own.query("select count(*) as n from questions")[0]["n"]
    folder = runs.report_folder(root, name)
    shown_at = folder / "report.html"
    durable.write(folder / "report.md", page.markdown(made))
    durable.write(shown_at, page.render(made, run=shown, questions=asked, total=total))
    if figures is not None:
        save_figures(made, figures)
    if html is not None:
        durable.write(html, shown_at.read_bytes())
    return shown_at


def save_figures(made: Report, folder: Path) -> list[Path]:
    """Every chart as an SVG and a PNG file on white, named by what it shows; returns the paths."""
    saved = []
    for figure in (one for section in made.sections for one in section.figures):
        for ending, content in (("svg", charts.svg(figure, themed=False)), ("png", charts.png(figure))):
            saved.append(folder / f"{figure.name}.{ending}")
            durable.write(saved[-1], content)
    return saved


def report_several(root: Path, names: Sequence[str], *, html: Path, figures: Path | None = None) -> list[Path]:
    """One page for several runs, and its charts as files in the folder `figures`; returns what was written."""
    with closing(Lens(Store(root), runs=names)) as lens:
        chosen = choose({name: runs.read_config(root, name) for name in names})
        made = outline.of_runs(lens.query, chosen, checks=newest_checks(root, names))
        lines = drawn(lens, names[:MOST_LINES])
    durable.write(html, page.render(made, charts=lines))
    return [html, *(save_figures(made, figures) if figures is not None else [])]


def comparison_page(root: Path, name: str, other: str) -> Path:
    """The run's report beside another run's curve, written again only if one of them moved."""
    shown = runs.report_folder(root, name) / "report.html"
    moved = any(entry.state == "ran" for run in (name, other) for entry in Journal(root, run).last_attempt())
    return report(root, name, compare_with=other) if moved or not shown.exists() else shown


def _notes(config: RunConfig, lens: Lens, name: str) -> list[str]:
    notes = list(anchor_notes(config.anchor))
    silent = lens.query("select iteration from gradients where run = ? and norm = 0 order by iteration", [name])
    if silent:
        first = silent[0]["iteration"]
        notes.append(
            f"Dev signal exhausted in {len(silent)} iterations, first in iteration {first}: every dev group had zero "
            "variance, so scores are 0 and the generator's update was skipped there."
        )
    return notes


def newest_checks(root: Path, names: Sequence[str]) -> dict[str, Path]:
    """By run the file of the newest checks of its questions by `infuser report quality`; none where there are none."""
    store, found = Store(root), {}
    made = store.refs("quality-")
    for name in names:
        keys = {entry.key for entry in Journal(root, name).latest() if entry.phase == Phase.GENERATE_QUESTIONS}
        for record in sorted(map(store.manifest, made), key=lambda record: (record.created, record.key)):
            if keys & {source.split("@")[0] for source in record.inputs.values()}:
                found[name] = record.ref
    return {name: store.path(ref, "quality.json") for name, ref in found.items()}


def curves(root: Path, names: Mapping[str, str]) -> str:
    """Validation curves of several runs side by side; `names` maps a heading to a run."""
    with closing(Lens(Store(root), runs=list(names.values()))) as lens:
        rows = lens.query(
            "select iteration, run, accuracy from benchmark_scores where phase = 'validate' order by iteration"
        )
    places = {(row["iteration"], row["run"]): f"{row['accuracy']:.3f}" for row in rows}
    return table(
        [
            {"iteration": number} | {label: places.get((number, run), "") for label, run in names.items()}
            for number in sorted({row["iteration"] for row in rows})
        ]
    )


def influence_curve(root: Path, name: str, *, figure: Path | None = None) -> dict[str, Any]:
    """Mean influence score per iteration over all questions, with the means of the first and the last five."""
    with closing(Lens(Store(root), runs=[name])) as lens:
        curve = lens.query("select iteration, avg(score) as score from scores group by iteration order by iteration")
    means = [row["score"] for row in curve]
    if figure is not None:
        line = Series(label=name, x=[row["iteration"] for row in curve], y=means)
        caption = "Mean influence score per iteration"
        drawn = charts.lines(caption, [line], name="curve", label="mean influence score", xlabel="generator updates")
        durable.write(figure, charts.svg(drawn, themed=False))
    return {"run": name, "first": mean(means[:5]), "last": mean(means[-5:]), "curve": curve}
