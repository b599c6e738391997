"""Command that ranks questions by their influence on a model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import AsJson, show
from infuser_core.errors import quantity
from infuser_core.system.hub import fetch_address


def score(
    model: Annotated[str, typer.Option(help="Model folder, nano, RUN@iteration, RUN@selected or owner/name.")],
    dev: Annotated[
        Path,
        typer.Option(
            parser=fetch_address, metavar="FILE", help="Questions of the target: JSON, JSONL, CSV or parquet."
        ),
    ],
    questions: Annotated[
        list[Path],
        typer.Option(parser=fetch_address, metavar="FILE", help="Questions to rank; may be given several times."),
    ],
    out: Annotated[Path, typer.Option(help="Parquet file for the ranking.")],
    more: Annotated[list[Path] | None, typer.Argument(help="Further questions.", metavar="[FILE]...")] = None,
    samples: Annotated[int, typer.Option(min=2, max=10_000, help="Answers per question.")] = 8,
    adapter: Annotated[str, typer.Option(help="lora: score by new adapters' gradients, in little memory.")] = "",
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=COLUMN", help="Other names in the files, e.g. question_text=problem; repeatable."),
    ] = None,
    keep: Annotated[str, typer.Option(help="top:0.25 or top:500 also writes the best, in their file's format.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, max=1_000_000, help="Response limit.")] = None,
    config: Annotated[list[Path] | None, typer.Option(help="YAML: engines, prompts, sampling, limits.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the answers.")] = 42,
    held_out: Annotated[
        Path | None,
        typer.Option(parser=fetch_address, metavar="FILE", help="Measure real steps on these questions, too."),
    ] = None,
    reply: Annotated[
        str, typer.Option(help="Form of their right replies, with {answer}, no end marker: measured exactly.")
    ] = "",
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="Optimizer steps on each selection.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Rank questions by their influence on a model.

    That is, by how far an AdamW step on each moves the model along the gradient of a target's questions.

    The model answers every question several times; one backward pass per question compares its preconditioned gradient
    with that of the dev questions. After a crash, the same command continues. With held-out questions it also reports
    how well this score and others predict the effects of steps on single questions and on the best quarter.
    """
    from flows.scoring import measure_effects, save_ranking, score_questions
    from infuser_core.evaluation.benchmarks.parts.question_sets import parse_columns
    from infuser_core.evaluation.statistics.ranking import parse_keep

    share = parse_keep(keep)
    arguments: dict[str, Any] = {
        "model": model, "questions": [*questions, *(more or [])], "dev": dev, "samples": samples, "seed": seed,
        "max_tokens": max_tokens, "adapter": adapter, "configs": config or [],
        "columns": parse_columns(columns or []),
    }  # fmt: skip
    summary = save_ranking(score_questions(**arguments), out, share=share)
    effects = measure_effects(held_out, reply=reply, steps=steps, **arguments) if held_out else {}
    ranking = {"model": model, **summary, **effects}
    show(ranking, lambda: _text(ranking), as_json=as_json)


def _text(ranking: dict[str, Any]) -> str:
    from infuser_core.terminal import format_rows

    statuses = ", ".join(f"{count} {name}" for name, count in sorted(ranking["statuses"].items()))
    head = f"{quantity(ranking['questions'], 'question')} ({statuses}), mean accuracy {ranking['accuracy']:.2f}"
    best = [
        f"  {row['rank']}. {row['question_id']}: score {row['score']:.4f}, accuracy {row['accuracy']:.2f} "
        f"[{row['accuracy_low']:.2f}, {row['accuracy_high']:.2f}]"
        for row in ranking["best"]
    ]
    effects = []
    if "arms" in ranking:
        effects = [
            "Spearman's rho with the change of held-out questions by a step on one question:",
            format_rows(ranking["correlations"]),
            "training on the best quarter:",
            format_rows(ranking["arms"]),
        ]
    files = [f"kept: {path}" for path in ranking["kept"]]
    return "\n".join([head, *best, *effects, f"ranking: {ranking['out']}", *files])
