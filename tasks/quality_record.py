"""What a look at generated questions came to: tables, per-question rows and a page beside the run's record."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.evaluation.folder import write_json, write_rows
from infuser_core.evaluation.models import find_model
from infuser_core.report import page
from infuser_core.report.content import Report
from infuser_core.report.quality import quality as section
from infuser_core.statistics.question_quality import CheckedQuestion, iteration_quality, side_by_side
from infuser_core.statistics.tally import Tally, accuracy, shares
from infuser_core.store.runs import runs_folder
from tasks import quality
from tasks.examine import settings_for
from tasks.question_checks import Judged, checked, judge
from tasks.rewriting import rewritten

Folders = Mapping[int, Mapping[str, Path]]
"""Iteration and solver to the folder of its examination."""


def folder_of(root: Path, run: str) -> Path:
    """Where it lies."""
    return runs_folder(root) / run / "quality"


def strongest(folders: Folders) -> str:
    """The solver that agrees with the keys most often, over all iterations; empty without solvers."""
    sums: dict[str, float] = {}
    for solvers in folders.values():
        for name, folder in solvers.items():
            sums[name] = sums.get(name, 0.0) + accuracy(quality.tally_of(folder))
    return max(sums, key=lambda name: sums[name], default="")


def judge_all(root: Path, run: str, questions: Sequence[Mapping[str, Any]], model: str) -> dict[str, Judged]:
    """What the judge says of the questions; nothing without a judge."""
    if not model:
        return {}
    examinee = find_model(root, model)
    return judge(questions, examinee, settings_for(examinee, None, {}), folder_of(root, run))


def check(
    questions: Sequence[Mapping[str, Any]], folders: Folders, *, judged: Mapping[str, Judged], strong: str
) -> list[CheckedQuestion]:
    """Every question with every check, iteration by iteration."""
    rows: list[CheckedQuestion] = []
    for iteration, mine in groupby(questions, key=lambda row: int(row["iteration"])):
        held = list(mine)
        solvers = folders.get(iteration, {})
        verdicts = quality.verdicts_of(solvers[strong]) if strong else {}
        tallies = [quality.tally_of(folder) for folder in solvers.values()]
        rows += checked(held, judged=judged, verdicts=verdicts, agreement=_agreement(tallies))
    return rows


def _agreement(tallies: Sequence[Tally]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for place, tally in enumerate(tallies):
        for name, share in zip(tally.question_ids, shares(tally), strict=True):
            found.setdefault(name, [-1.0] * len(tallies))[place] = float(share)
    return found


def summary(rows: Sequence[CheckedQuestion], folders: Folders) -> dict[str, Any]:
    """Numbers per iteration and solver."""
    solvers: list[dict[str, Any]] = []
    for iteration, held in folders.items():
        tallies = {name: quality.tally_of(folder) for name, folder in held.items()}
        solvers += quality.agreements(tallies, next(iter(tallies)), iteration) if tallies else []
    per = [asdict(iteration_quality(list(mine))) for _, mine in groupby(rows, key=lambda row: row.iteration)]
    return {"iterations": per, "solvers": solvers}


def examples(
    root: Path, run: str, questions: Sequence[Mapping[str, Any]], rows: Sequence[CheckedQuestion], *, count: int
) -> dict[str, Any]:
    """Questions of the same documents at two iterations, written again by the generators where the run has none."""
    pairs = side_by_side(rows, count=count)
    again = [] if pairs else rewritten(root, run, questions, folder_of(root, run), count=count)
    found = pairs or side_by_side(check(again, {}, judged={}, strong=""), count=count)
    return {"examples": [asdict(pair) for pair in found], "rewritten": bool(again)}


def keep(root: Path, run: str, found: dict[str, Any], rows: Sequence[CheckedQuestion], *, html: Path | None) -> Path:
    """Write it for the run's report, and its page; returns where the page lies."""
    folder = folder_of(root, run)
    write_rows(folder / "questions.parquet", rows, CheckedQuestion)
    write_json(folder / "quality.json", found)
    shown = html or folder / "quality.html"
    durable.write(shown, page.render(Report(title=f"Generated questions of {run}", sections=[section(found)])))
    return shown


def read(root: Path, run: str) -> dict[str, Any] | None:
    """What was found the last time that somebody asked; None when nobody has."""
    path = folder_of(root, run) / "quality.json"
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return found
