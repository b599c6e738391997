"""Commands that evaluate models and verify answers."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from infuser_core.errors import UsageError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Source = Annotated[str, typer.Argument(help="Folder or name of an evaluation, a run, or a file of responses.")]
Questions = Annotated[Path | None, typer.Option(help="For a file: the questions it answers (parquet or JSON).")]
_READ = 1_048_576
"""Bytes read at a time."""
_TOGETHER = 256
"""Lines verified together: the first answers do not wait for the last."""


def register(app: typer.Typer) -> None:
    """Add the commands to the `infuser` command."""
    app.command("eval")(evaluate)
    app.command()(rescore)
    app.command()(passk)
    app.command()(verify)


def evaluate(
    model: Annotated[
        str,
        typer.Option(
            help="Model folder, nano, RUN@iteration, RUN@selected, a checkpoint's key, owner/name[@revision], "
            "or openai:MODEL@http://host:port/v1."
        ),
    ],
    benchmarks: Annotated[str, typer.Option(help="all, or names joined by commas; NAME=FILE for a file.")] = "",
    data: Annotated[Path | None, typer.Option(help="Folder with the benchmarks' files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for answers and results; by default in the store.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Responses per question.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Questions per benchmark, stratified by domain.")] = None,
    preset: Annotated[str | None, typer.Option(help="Which answer counts: paper, official or strict-last.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the responses and of --limit.")] = None,
    prompts: Annotated[str | None, typer.Option(help="Prompt profile: a shipped one, or a folder.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML: engine, sampling, or a run's configuration.")] = None,
    too_long: Annotated[str | None, typer.Option(help="Questions beyond the prompt limit: wrong or drop.")] = None,
    judge: Annotated[str, typer.Option(help="Model that breaks ties of fallible rules, in any form of --model.")] = "",
    max_tokens: Annotated[int | None, typer.Option(help="Response limit of benchmarks that name none.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Prompt limit.")] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Prompt and response tokens of one batch.")] = 262_144,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at an endpoint.")] = 16,
    as_json: AsJson = False,
) -> None:
    """Ask a model the benchmarks' questions and score its answers; after a crash, the same command goes on."""
    from flows.examine import Order, examine
    from infuser_core.evaluation import results

    overrides = {
        "preset": preset,
        "seed": seed,
        "prompts": prompts,
        "too_long": too_long,
        "max_tokens": max_tokens,
        "prompt_tokens": prompt_tokens,
    }
    order = Order(
        model=model,
        benchmarks=benchmarks,
        data=data,
        out=out,
        samples=samples,
        limit=limit,
        config=config,
        judge=judge,
        overrides=overrides,
        batch_tokens=batch_tokens,
        concurrency=concurrency,
    )
    done = examine(order, warn=lambda line: typer.echo(f"warning: {line}", err=True))
    if as_json:
        _print_json(done.results)
        return
    typer.echo(results.terminal(done.results))
    typer.echo(f"results: {done.folder}")


def rescore(
    source: Source,
    preset: Annotated[str, typer.Option(help="all, or presets joined by commas; the first is the reference.")] = "all",
    questions: Questions = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the verdicts; by default beside the answers.")] = None,
    too_long: Annotated[str, typer.Option(help="Questions beyond the prompt limit: wrong or drop.")] = "wrong",
    as_json: AsJson = False,
) -> None:
    """Score saved answers under several presets, without a model, and show where they differ."""
    from flows.examine import rescore as go

    if too_long not in ("wrong", "drop"):
        raise UsageError(f"--too-long {too_long}: unknown", hint="wrong or drop")
    found = go(source, presets=_presets(preset), questions=questions, out=out, too_long=too_long, as_json=as_json)
    _show(found)


def passk(
    source: Source,
    k: Annotated[str, typer.Option(help="Values of k joined by commas; by default powers of two.")] = "",
    preset: Annotated[str, typer.Option(help="paper, official or strict-last.")] = "paper",
    benchmarks: Annotated[str, typer.Option(help="Only these, joined by commas.")] = "",
    questions: Questions = None,
    as_json: AsJson = False,
) -> None:
    """pass@k of saved answers: unbiased, with intervals over questions."""
    from flows.examine import passk as go

    (chosen,) = _presets(preset) if preset != "all" else ["all"]
    if chosen == "all":
        raise UsageError("--preset all: a curve has one preset", hint="paper, official or strict-last")
    labels = [name.strip() for name in benchmarks.split(",") if name.strip()]
    _show(go(source, ks=_ks(k), preset=chosen, benchmarks=labels, questions=questions, as_json=as_json))


def verify() -> None:
    """Read JSON lines with answers on standard input, write one JSON verdict line each, in order."""
    from infuser_core.evaluation.verify_lines import answer_lines

    left = b""
    try:
        # What is there is answered at once: somebody who waits for an answer gets it, and a file goes in large pieces.
        while piece := os.read(0, _READ):
            *lines, left = b"".join([left, piece]).split(b"\n")
            for start in range(0, len(lines), _TOGETHER):
                _write(answer_lines(lines[start:][:_TOGETHER]))
        _write(answer_lines([left] if left else []))
    except BrokenPipeError:
        # The reader has seen enough; Python's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _write(answers: Iterable[str]) -> None:
    for answer in answers:
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _show(found: dict[str, Any] | str) -> None:
    if isinstance(found, str):
        typer.echo(found)
    else:
        _print_json(found)


def _print_json(found: dict[str, Any]) -> None:
    typer.echo(json.dumps(found, ensure_ascii=False))


def _presets(text: str) -> list[str]:
    from infuser_core.verifiers.parts.extract import PRESETS

    names = list(PRESETS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PRESETS]
    if unknown or not names or len({*names}) < len(names):
        raise UsageError(f"--preset {text}: unknown, empty or repeated", hint=f"all, or some of {', '.join(PRESETS)}")
    return names


def _ks(text: str) -> list[int] | None:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() and part.isascii() and int(part) > 0 for part in parts):
        raise UsageError(f"--k {text}: expected whole numbers from 1", hint="e.g. --k 1,2,4,8")
    return sorted({int(part) for part in parts}) or None
