"""Commands that study a run: does the score predict, and does a generator climb it against a frozen solver?"""

from pathlib import Path
from typing import Any

from infuser_core import runs, settings
from infuser_core.overlays import load, validate
from infuser_core.preflight import preflight

FROZEN = Path(__file__).parent.parent / "configs" / "ablation" / "frozen_solver.yaml"


def validate_influence(
    run: str | None, *, iteration: int, questions: int, rollouts: int, retest: list[int], figure: Path | None
) -> dict[str, Any]:
    """Run the prediction study on one iteration of a run; returns its JSON object."""
    from tasks.context import opened
    from tasks.studies import influence_study, study_result

    name = runs.find_run(settings.store_root(), run)
    config = validate(runs.read_config(settings.store_root(), name))
    with opened(name, config, journal="studies.jsonl", published=False) as opened_run:
        done = influence_study(
            opened_run, iteration=iteration, questions=questions, rollouts=rollouts, retest_sizes=retest
        )
        return study_result(opened_run, done.ref, figure=figure)


def frozen_solver(
    configs: list[Path], overrides: list[str], *, seed: int | None, updates: int, figure: Path | None
) -> dict[str, Any]:
    """Run the frozen-solver control: one batch of documents, a solver that never moves, `updates` generator steps."""
    from flows.execute import execute

    config = load([*configs, FROZEN], [f"cotrain.iterations={updates}", *overrides], seed=seed)
    preflight(config)
    name = config.run_name()
    execute(config, name)
    from tasks.inspection import influence_curve

    return influence_curve(settings.store_root(), name, figure=figure)
