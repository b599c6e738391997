"""Commands that evaluate models, rescore saved answers and verify answers."""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import AsJson, show, warn
from infuser_core.errors import NUMBER, UsageError

Source = Annotated[str, typer.Argument(help="An evaluation, its exported folder, a run, or a file of responses.")]
Questions = Annotated[Path | None, typer.Option(help="For a file: the questions it answers (parquet or JSON).")]
HarnessBenchmark = Annotated[
    str,
    typer.Option(
        help="For a file of another harness (lm-eval, lighteval, math-evaluation-harness, MMLU-Pro, LiveCodeBench, "
        "Inspect): its benchmark."
    ),
]
Model = Annotated[
    str,
    typer.Option(
        help="Model folder, nano, RUN@iteration, RUN@selected, a checkpoint's key, owner/name@revision, "
        "or openai:MODEL@http://host:port/v1."
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, max=1_000_000, help="Questions per benchmark, stratified by domain.")]
Preset = Annotated[str | None, typer.Option(help="Which answer counts: paper, official, strict-last or phrase.")]
TooLong = Annotated[str | None, typer.Option(help="Questions beyond the prompt limit: wrong or drop.")]
Examples = Annotated[
    Path | None, typer.Option(help="Worked examples (few-shot): JSON lines, or a folder with NAME.jsonl.")
]
_READ_SIZE = 1_048_576
"""Bytes read at a time from standard input."""
_BATCH = 256
"""Lines verified together, so that the first answers are printed early."""


def evaluate(
    model: Model,
    benchmarks: Annotated[str, typer.Option(help="all, or names joined by commas; NAME=FILE for a file.")] = "",
    data: Annotated[Path | None, typer.Option(help="Folder with the benchmarks' files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Export answers and tables to this folder as well.")] = None,
    inspect: Annotated[bool, typer.Option(help="Export Inspect's logs, too, for `inspect view`.")] = False,
    samples: Annotated[int | None, typer.Option(min=1, max=1_000_000, help="Responses per question.")] = None,
    limit: Limit = None,
    preset: Preset = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the responses and of --limit.")] = None,
    prompts: Annotated[str | None, typer.Option(help="Prompt profile: a shipped one, or a folder.")] = None,
    system: Annotated[str | None, typer.Option(help="System turn in place of the profile's; '' for none.")] = None,
    chat: Annotated[str | None, typer.Option(help="Chat template: own, off (plain text), or a file in Jinja.")] = None,
    examples: Examples = None,
    shots: Annotated[int | None, typer.Option(min=0, help="Number of worked examples in a prompt.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML: engine, sampling, or a run's configuration.")] = None,
    too_long: TooLong = None,
    judge: Annotated[str, typer.Option(help="Model that breaks ties of fallible rules, named like --model.")] = "",
    max_tokens: Annotated[int | None, typer.Option(help="Response limit of benchmarks that set none.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Prompt limit.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Prompt and response tokens of one batch.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Concurrent requests to an endpoint.")] = None,
    as_json: AsJson = False,
) -> None:
    """Answer benchmark questions with a model and score the answers.

    After a crash, the same command continues.
    """
    if inspect and out is None:
        raise UsageError("--inspect: nothing is exported", hint="add --out DIR for the logs")
    from flows.evaluate import EvaluationRequest
    from flows.evaluate import evaluate as go
    from infuser_core.results.report.results import results_text

    overrides = {
        "preset": preset,
        "seed": seed,
        "prompts": prompts,
        "too_long": too_long,
        "max_tokens": max_tokens,
        "prompt_tokens": prompt_tokens,
        "system": system,
        "chat": chat,
        "examples": str(examples) if examples else None,
        "shots": shots,
        "batch_tokens": batch_tokens,
        "concurrency": concurrency,
    }
    request = EvaluationRequest(
        model=model,
        benchmarks=benchmarks,
        data=data,
        out=out,
        inspect=inspect,
        samples=samples,
        limit=limit,
        config=config,
        judge=judge,
        overrides=overrides,
    )
    result = go(request, warn=warn)
    show(result.results, lambda: f"{results_text(result.results)}\nresults: {result.folder}", as_json=as_json)


def probe(
    model: Model,
    benchmarks: Annotated[str, typer.Option(help="all, or names joined by commas; NAME=FILE for a file.")] = "",
    control: Annotated[
        Path | None, typer.Option(help="Questions that the model cannot have seen, in place of the built-in control.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the benchmarks' files.")] = None,
    limit: Limit = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the control and of --limit.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML: engine, or a run's configuration.")] = None,
    as_json: AsJson = False,
) -> None:
    """Test whether a model has seen a benchmark's questions.

    It completes them from the first 40, 60 and 80%, against a control that it cannot have seen: fresh questions,
    or the same ones with other numbers.
    """
    from flows.evaluate import EvaluationRequest
    from flows.evaluate import probe as go
    from infuser_core.results.report.results import probe_text

    overrides = {"seed": seed}
    request = EvaluationRequest(
        model=model, benchmarks=benchmarks, data=data, limit=limit, config=config, overrides=overrides
    )
    results = go(request, control=control, warn=warn)
    show(results, lambda: probe_text(results), as_json=as_json)


def rescore(
    source: Source,
    preset: Annotated[str, typer.Option(help="all, or presets joined by commas; the first is the reference.")] = "all",
    questions: Questions = None,
    benchmark: HarnessBenchmark = "",
    out: Annotated[Path | None, typer.Option(help="Export the verdicts to this folder.")] = None,
    too_long: TooLong = None,
    as_json: AsJson = False,
) -> None:
    """Score saved answers again under several presets.

    Needs no model, and shows where the presets differ.
    """
    from flows.evaluate import rescore as go

    result = go(
        source,
        presets=_parse_presets(preset),
        questions=questions,
        benchmark=benchmark,
        out=out,
        overrides={"too_long": too_long},
    )
    show(*result, as_json=as_json)


def passk(
    source: Source,
    k: Annotated[str, typer.Option(help="Values of k joined by commas; by default powers of two.")] = "",
    preset: Preset = None,
    benchmarks: Annotated[str, typer.Option(help="Only these, joined by commas.")] = "",
    questions: Questions = None,
    benchmark: HarnessBenchmark = "",
    as_json: AsJson = False,
) -> None:
    """Estimate pass@k from saved answers.

    The estimate is unbiased, with intervals over questions.
    """
    from flows.evaluate import passk as go

    result = go(
        source,
        ks=_parse_ks(k),
        overrides={"preset": preset},
        benchmarks=[name.strip() for name in benchmarks.split(",") if name.strip()],
        questions=questions,
        benchmark=benchmark,
    )
    show(*result, as_json=as_json)


def check(
    benchmarks: Annotated[str, typer.Option(help="all, or names joined by commas.")] = "all",
    as_json: AsJson = False,
) -> None:
    """Check the benchmarks on this machine.

    Loads them, and verifies their reference answers and wrong answers.
    Looks under INFUSER_DATA and in the hub's cache; downloads nothing. The exit code is 1 when a wrong answer is
    accepted or a data set does not load.
    """
    from dataclasses import asdict

    from infuser_core.evaluation.check import benchmark_names, check_benchmark, checks_text

    checks = [check_benchmark(name) for name in benchmark_names(benchmarks)]
    show([asdict(each) for each in checks], lambda: checks_text(checks), as_json=as_json)
    if any(each.wrong_accepted or each.status.startswith("does not load") for each in checks):
        raise typer.Exit(1)


def verify() -> None:
    """Verify answers: JSON lines in, one JSON verdict for each out.

    \b
    {"kind": "choice", "gold": "B", "choices": 4, "response": "\\\\boxed{B}"}
    {"kind": "math", "gold": "1/2", "response": "it is \\\\boxed{0.5}"}
    {"kind": "code", "tests": [{"stdin": "1", "stdout": "2"}], "response": ".."}

    \b
    kind      choice, integer, math, exact, bbeh or code
    gold      the reference answer, a string or a number; none for code
    response  text with its answer in a box; for code, with a program
    tests     for code: {"stdin", "stdout"} or {"call", "args", "expected"}
    and also  preset (paper, official, strict-last, phrase), choices (a number
              or texts), multiple, answer_type, tolerance, unit, route; for code:
              solution in place of response, seconds (6, at most 600), setup
              (source that runs before it), scientific (true: may import numpy)

    A verdict is correct, wrong, no_answer or unverified. Other lines are unverified, are counted at the end,
    and make the exit code 1.
    """
    from infuser_core.evaluation.verify_lines import Refusals, answer_lines

    rest, refusals = b"", Refusals()
    try:
        # Each line is answered as soon as it arrives; a file is read in large pieces.
        while piece := os.read(0, _READ_SIZE):
            *lines, rest = b"".join([rest, piece]).split(b"\n")
            for start in range(0, len(lines), _BATCH):
                _write(answer_lines(lines[start:][:_BATCH], refusals))
        _write(answer_lines([rest] if rest else [], refusals))
    except BrokenPipeError:
        # The reader has closed the pipe; Python's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return
    refusals.check()


def _write(answers: Iterable[str]) -> None:
    for answer in answers:
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _parse_presets(text: str) -> list[str]:
    from infuser_core.verifiers.parts.extract import PRESETS

    names = list(PRESETS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PRESETS]
    if unknown or not names or len({*names}) < len(names):
        raise UsageError(f"--preset {text}: unknown, empty or repeated", hint=f"all, or some of {', '.join(PRESETS)}")
    return names


def _parse_ks(text: str) -> list[int] | None:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(re.fullmatch(NUMBER, part) and int(part) > 0 for part in parts):
        raise UsageError(f"--k {text}: expected whole numbers from 1", hint="e.g. --k 1,2,4,8")
    return sorted({int(part) for part in parts}) or None
