"""Evaluation of any model: ask it, save the answers, score them again (`infuser eval`, `rescore`, `passk`)."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infuser_core import settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Options of `infuser eval`."""

    model: str
    """Model, in any of the forms of `infuser_core/evaluation/models.py`."""
    benchmarks: str
    """Names, comma-joined; `all`; or empty for those of the configuration."""
    data: Path | None = None
    """Folder with the benchmarks' files."""
    out: Path | None = None
    """Folder of the examination; by default one in the store that follows from everything else."""
    samples: int | None = None
    """Responses per question; the benchmark's own number when None."""
    limit: int | None = None
    """Questions per benchmark; all when None."""
    config: Path | None = None
    """Settings of engine, sampling and prompts."""
    judge: str = ""
    """Model that breaks ties, in any of the forms; nobody when empty."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings given as options; None leaves one as it is."""
    batch_tokens: int = 262_144
    """Tokens that one batch may come to."""
    concurrency: int = 16
    """Requests under way at an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """An examination with its results."""

    folder: Path
    """Where everything lies."""
    results: dict[str, Any]
    """What `results.json` holds."""


def examine(order: Order, *, warn: Callable[[str], None]) -> Examined:
    """Ask what is not answered yet, then score. Repeating it costs no question twice."""
    from infuser_core.evaluation.folder import ExamFolder
    from infuser_core.evaluation.models import find_model
    from infuser_core.evaluation.plan import identity_of
    from infuser_core.terminal import Console
    from tasks import examine as task

    examinee = find_model(settings.store_root(), order.model)
    judge = find_model(settings.store_root(), order.judge) if order.judge else None
    chosen = task.settings_for(examinee, order.config, order.overrides)
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        warn(line)

    plan = task.make_plan(
        examinee, chosen, order.benchmarks, data=order.data, samples=order.samples, limit=order.limit, warn=note
    )
    engine = task.engine_name(examinee, chosen)
    identity = identity_of(examinee.digest, chosen, plan, engine=engine, limit=order.limit)
    out = order.out or task.default_folder(settings.writable_store_root(), examinee, plan, identity)
    folder = ExamFolder(out)
    console = Console(enabled=sys.stderr.isatty())
    with folder.holding():
        folder.begin(identity, task.facts_of(examinee, notes), plan)
        try:
            task.ask(
                examinee,
                chosen,
                folder,
                batch_tokens=order.batch_tokens,
                concurrency=order.concurrency,
                console=console,
            )
            results = task.write_results(folder, chosen, judge=judge, console=console)
        finally:
            console.clear()
    return Examined(folder=out, results=results)


def rescore(
    source: str, *, presets: Sequence[str], questions: Path | None, out: Path | None, too_long: str, as_json: bool
) -> dict[str, Any] | str:
    """Score saved answers under the presets; verdicts are written, the comparison is returned."""
    from infuser_core.evaluation import agreement
    from infuser_core.terminal import Console
    from tasks import examine_saved as task

    answers = task.find_answers(settings.store_root(), source, questions=questions, out=out)
    console = Console(enabled=sys.stderr.isatty())
    try:
        found = task.rescore(answers, presets, too_long=too_long, console=console)
    finally:
        console.clear()
    if as_json:
        return agreement.as_json(answers.name, found)
    return f"{agreement.terminal(answers.name, found)}\nverdicts: {answers.out}"


def passk(
    source: str,
    *,
    ks: Sequence[int] | None,
    preset: str,
    benchmarks: Sequence[str],
    questions: Path | None,
    as_json: bool,
) -> dict[str, Any] | str:
    """pass@k curves of saved answers."""
    from infuser_core.evaluation import curves
    from infuser_core.terminal import Console
    from tasks import examine_saved as task

    answers = task.find_answers(settings.store_root(), source, questions=questions)
    console = Console(enabled=sys.stderr.isatty())
    try:
        found = task.pass_curves(answers, preset=preset, ks=ks, benchmarks=benchmarks, console=console)
    finally:
        console.clear()
    return curves.as_json(answers.name, preset, found) if as_json else curves.terminal(answers.name, preset, found)
