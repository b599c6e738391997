"""Commands that study a run's influence score: prediction, selection, subsets, gradients, a frozen solver."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import AsJson, RunName, show
from infuser_core.errors import UsageError

Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN]...", help="Runs, or a sweep file for all of its runs; the latest run if omitted."),
]
Iteration = Annotated[int, typer.Option(min=0, help="Iteration whose scored questions are studied.")]
Share = Annotated[float, typer.Option(min=0.01, max=1.0, help="Share of them that every arm trains on.")]
Steps = Annotated[int, typer.Option(min=1, max=10_000, help="Optimizer steps of an arm.")]
Samples = Annotated[
    int | None,
    typer.Option(
        min=1, max=10_000, help="Answers per held-out question; without: the right reply's probability, or 8 answers."
    ),
]
Answers = Annotated[int, typer.Option(min=2, max=10_000, help="New answers that each step is taken on.")]
Figure = Annotated[Path | None, typer.Option(help="Write the figure (SVG) to this file.")]

_ARMS = "; low and high: 95% over held-out questions, or the lowest and the highest of several arms"
_POOLED = "means over runs; behind: by how much below the paper's score, paired by run; intervals: 95% t over runs"


def prediction(
    runs: Runs = None,
    iteration: Iteration = 0,
    questions: Annotated[int, typer.Option(min=1, max=1_000_000, help="Scored questions to take a step on.")] = 64,
    answers: Answers = 32,
    rollouts: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Answers per held-out question where no exact measure exists.")
    ] = 64,
    check: Annotated[
        bool, typer.Option("--check", help="Step on the scored answers themselves: a check of the implementation.")
    ] = False,
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Test whether scores predict the effect of a step.

    Takes a step on new answers to single questions and measures held-out questions.
    """
    from flows.studies import of_each, predict_effects

    if figure is not None and len(runs or []) > 1:
        raise UsageError("--figure shows one run", hint="name one run")
    results = of_each(
        predict_effects,
        runs or [],
        iteration=iteration,
        questions=questions,
        answers=0 if check else answers,
        rollouts=rollouts,
        figure=figure,
    )
    head = "Spearman's rho with the change by one question's step"
    show(results, lambda: _text(results, "correlations", head), as_json=as_json)


def selection(
    runs: Runs = None,
    iteration: Iteration = 0,
    share: Share = 0.25,
    steps: Steps = 10,
    draws: Annotated[int, typer.Option(min=1, max=100, help="Random arms.")] = 5,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Train every arm on all questions except its own.")
    ] = False,
    samples: Samples = None,
    as_json: AsJson = False,
) -> None:
    """Test whether selecting questions by score helps.

    Trains equally on each score's best questions and on random ones; measures held-out accuracy.
    """
    from flows.studies import of_each, select_questions

    size = {"share": share, "steps": steps, "draws": draws, "samples": samples, "leave_out": leave_out}
    results = of_each(select_questions, runs or [], iteration=iteration, **size)
    note = "" if "pooled" in results else _ARMS
    part = "all questions except every arm's" if leave_out else "every arm's questions"
    head = f"held-out accuracy after {steps} steps on {part}{note}"
    show(results, lambda: _text(results, "arms", head), as_json=as_json)


def lds(
    runs: Runs = None,
    iteration: Iteration = 0,
    share: Share = 0.25,
    steps: Steps = 10,
    subsets: Annotated[int, typer.Option(min=5, max=10_000, help="Random subsets.")] = 40,
    samples: Samples = None,
    as_json: AsJson = False,
) -> None:
    """Test whether scores add up: linear datamodelling score.

    Do summed scores of random subsets rank what training on them reaches?
    """
    from flows.studies import datamodelling_score, of_each

    size = {"share": share, "steps": steps, "subsets": subsets, "samples": samples}
    results = of_each(datamodelling_score, runs or [], iteration=iteration, **size)
    head = f"Spearman's rho of summed scores with held-out accuracy after {steps} steps, {subsets} subsets"
    show(results, lambda: _text(results, "correlations", head), as_json=as_json)


def _text(results: dict[str, Any], rows: str, head: str) -> str:
    """Format a study as text: the table of one run, or means over several runs."""
    from infuser_core.terminal import format_rows

    if "pooled" not in results:
        return f"run {results['run']}, iteration {results['iteration']}: {head}\n{format_rows(results[rows])}"
    lines = [f"iteration {results['iteration']}: {head}", format_rows(results["pooled"]), _POOLED]
    return "\n".join(lines)


def gradient_quality(
    run: RunName = None,
    iteration: Iteration = 0,
    documents: Annotated[int, typer.Option(min=1, max=10_000, help="Documents of a batch.")] = 6,
    batches: Annotated[int, typer.Option(min=10, max=1_000_000, help="Batches drawn.")] = 2000,
    answers: Answers = 32,
    as_json: AsJson = False,
) -> None:
    """Compare rewards and advantages of the generator.

    Does its gradient follow the real effects of its questions?
    """
    from flows.studies import gradient_quality as study
    from flows.studies import of_each
    from infuser_core.terminal import format_rows

    size = {"documents": documents, "batches": batches, "answers": answers}
    results = of_each(study, [run] if run else [], iteration=iteration, **size)
    head = f"run {results['run']}, iteration {results['iteration']}: cosine with the gradient of real effects"
    show(results, f"{head}\n{format_rows(results['rows'])}", as_json=as_json)


def frozen(
    run: RunName = None,
    updates: Annotated[int, typer.Option(min=1, max=10_000, help="Generator updates.")] = 30,
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Run the paper's control: does the score rise?

    With a run's settings, a frozen solver and one batch of documents.
    """
    from flows.studies import frozen_solver
    from infuser_core.terminal import format_rows

    results = frozen_solver(run, updates=updates, figure=figure)
    head = f"mean score of the first five updates {results['first']:.4f}, of the last five {results['last']:.4f}"
    show(results, f"run {results['run']}: {head}\n{format_rows(results['curve'])}", as_json=as_json)
