"""Studies of a run: quality of generated questions, solver gaps, prediction of the score, a frozen solver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.examine import Order, examine
from infuser_core import settings
from infuser_core.config.overlays import load, validate
from infuser_core.errors import UsageError
from infuser_core.planning.preflight import preflight
from infuser_core.store import runs

if TYPE_CHECKING:
    from tasks.quality import Sheet

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityOrder:
    """Options of `infuser report quality`."""

    run: str | None
    """Run; the latest when None."""
    iterations: str
    """Numbers, `first`, `last` or `all`, comma-joined."""
    solvers: Sequence[str]
    """Models in any of the forms of `infuser_core/evaluation/models.py`; the first is the base."""
    judge: str = ""
    """Model that decides whether a question stands alone; rules do when empty."""
    strong: str = ""
    """Solver that keys are compared with; the one that agrees most often when empty."""
    samples: int = 4
    """Answers per question and solver."""
    limit: int | None = None
    """Questions per iteration; all when None."""
    examples: int = 3
    """Documents whose questions are shown side by side."""
    html: Path | None = None
    """Where the page goes; beside the run's record when None."""


def swg(run: str | None, *, iteration: int, solvers: Sequence[str], samples: int, warn: Warn) -> dict[str, Any]:
    """Every solver answers the iteration's questions; the first is the base. Repeating it asks nothing twice."""
    from tasks import quality

    if len({*solvers}) < 2:
        raise UsageError("a gap needs two solvers", hint="e.g. --solver RUN@0 --solver RUN@selected")
    root = settings.store_root()
    name = runs.find_run(root, run)
    sheet = quality.write_questions(root, name, iteration)
    folders = _answered(sheet, solvers, samples=samples, warn=warn)
    tallies = {solver: quality.tally_of(folder) for solver, folder in folders.items()}
    return {"run": name, "iteration": iteration, "base": solvers[0], "solvers": quality.gaps(tallies, solvers[0])}


def study(order: QualityOrder, *, warn: Warn) -> dict[str, Any]:
    """Chosen iterations' questions, answered and checked. Repeating it asks nobody twice."""
    from tasks import quality, quality_record

    root = settings.store_root()
    name = runs.find_run(root, order.run)
    _refuse_unclear(order)
    chosen = quality.iterations_of(root, name, order.iterations)
    sheets = [quality.write_questions(root, name, iteration, limit=order.limit) for iteration in chosen]
    folders = {sheet.iteration: _answered(sheet, order.solvers, samples=order.samples, warn=warn) for sheet in sheets}
    asked = [row for sheet in sheets for row in sheet.rows]
    strong = order.strong or quality_record.strongest(folders)
    judged = quality_record.judge_all(root, name, asked, order.judge)
    rows = quality_record.check(asked, folders, judged=judged, strong=strong)
    facts = {
        "run": name,
        "base": next(iter(order.solvers), ""),
        "strongest": strong,
        "judge": order.judge,
        "samples": order.samples,
        "limit": order.limit,
    }
    pairs = quality_record.examples(root, name, asked, rows, count=order.examples)
    found = facts | quality_record.summary(rows, folders) | pairs
    return found | {"page": str(quality_record.keep(root, name, found, rows, html=order.html))}


def _refuse_unclear(order: QualityOrder) -> None:
    if len({*order.solvers}) < len(order.solvers):
        raise UsageError("a solver is named twice", hint="once is enough; --samples asks more often")
    if order.strong and order.strong not in order.solvers:
        raise UsageError(f"--strong {order.strong}: not among the solvers", hint="name it with --solver as well")


def _answered(sheet: "Sheet", solvers: Sequence[str], *, samples: int, warn: Warn) -> dict[str, Path]:
    """Every solver's examination on the questions of one iteration."""
    return {
        solver: examine(Order(model=solver, benchmarks=sheet.benchmark, samples=samples), warn=warn).folder
        for solver in solvers
    }


FROZEN = Path(__file__).parent.parent / "configs" / "ablation" / "frozen_solver.yaml"


def validate_influence(
    run: str | None, *, iteration: int, questions: int, rollouts: int, retest: list[int], figure: Path | None
) -> dict[str, Any]:
    """Run the prediction study on one iteration of a run; returns its JSON object."""
    from tasks.run import opened
    from tasks.studies import influence_study, study_result
    from tasks.work import execute

    name = runs.find_run(settings.store_root(), run)
    config = validate(runs.read_config(settings.store_root(), name))
    with opened(name, config, journal="studies.jsonl", published=False) as opened_run:
        work = influence_study(
            opened_run, iteration=iteration, questions=questions, rollouts=rollouts, retest_sizes=retest
        )
        return study_result(opened_run, execute(opened_run, work).ref, figure=figure)


def frozen_solver(
    configs: list[Path], overrides: list[str], *, seed: int | None, updates: int, figure: Path | None
) -> dict[str, Any]:
    """Run the frozen-solver control: one batch of documents, a solver that never moves, `updates` generator steps."""
    from flows.execute import execute

    config = load([*configs, FROZEN], [f"cotrain.iterations={updates}", *overrides], seed=seed)
    preflight(config)
    name = config.run_name()
    execute(config, name)
    from infuser_core.report.build import influence_curve

    return influence_curve(settings.store_root(), name, figure=figure)
