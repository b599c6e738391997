"""Stages of evaluation: answers of models, their scores, checkpoint selection, leakage, and the report."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core.config.recorded import recorded
from infuser_core.cotrain.phases import select as select_phase
from infuser_core.cotrain.phases.parts.health import leak_warning
from infuser_core.errors import quantity
from infuser_core.evaluation import contamination
from infuser_core.evaluation import evaluate as evaluate_phase
from infuser_core.evaluation.answers import collect_responses, responses_outcome, scores_outcome
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.evaluation.benchmarks.parts.validation import content_digest, count_leaks
from infuser_core.evaluation.contamination import ProbeTexts
from infuser_core.evaluation.evaluate import Ask, Key, RespondSettings, ScoreSettings
from infuser_core.evaluation.evaluate import respond as ask
from infuser_core.evaluation.models import EvaluatedModel
from infuser_core.evaluation.plan import ExamPlan, ask_settings, single_plan
from infuser_core.evaluation.settings import EvaluationSettings, engine_name, phrasing_of, settings_of_run
from infuser_core.protocols import ChatModel, Progress
from infuser_core.schemas import (
    BenchmarkResponse,
    BenchmarkScore,
    Candidate,
    Continuation,
    Leak,
    Question,
    QuestionScore,
    Role,
    Selection,
)
from infuser_core.store import gc, runs
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Table, is_repairing
from infuser_core.store.verify import format_size
from infuser_core.system.sealed import digest_of
from tasks.display import show_run
from tasks.run import Execution, Run, current_run, peak_memory_mb
from tasks.stage import read_fact, stage
from tasks.work import Work

LEAKAGE_VERSION = 1
VALIDATION = "validation"


@stage("respond")
def respond(run: Run, iteration: int, label: str, solver: ArtifactRef, validation: ArtifactRef | None) -> Work:
    """Let a checkpoint answer a benchmark or the validation set. A restart continues with the unanswered questions."""
    benchmarks = {b.label or b.name: b for b in run.config.evaluate.benchmarks}
    benchmark = None if validation else benchmarks[label]
    settings = evaluate_phase.ask_settings(run.config, benchmark)
    values: dict[str, Any] = {"answers": settings, "label": label}
    inputs = {"solver": solver, "validation": validation}
    loaded = find_benchmark(benchmark.name)(benchmark) if benchmark else []
    if benchmark:
        # Questions enter the key by content: the path of their file does not matter.
        values |= {"benchmark": benchmark.name, "content": content_digest(loaded)}
    version = evaluate_phase.VERSION
    recipe = run.recipe("respond", version, values, inputs, iteration=iteration, seed=run.config.seed)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        questions = run.store.rows(validation, "reference_questions", Question) if validation else loaded
        options = RespondSettings(
            prompts=settings.prompts,
            sampling=settings.sampling,
            prompt_tokens=settings.prompt_tokens,
            seed=run.config.seed,
            batch_tokens=settings_of_run(run.config).batch_tokens,
        )
        plan = single_plan(label, questions, samples=settings.samples, max_tokens=settings.max_tokens)
        sampler = run.pool.sampler(run.checkpoint(solver, Role.SOLVER))
        pieces = Pieces(run.store.partial(recipe), BenchmarkResponse)
        responses = collect_responses(
            plan, pieces, lambda asks, finished: ask(asks, finished, sampler, options, progress=progress)
        )
        return responses_outcome(label, questions, responses)

    return Work(recipe=recipe, produce=produce)


def answer(
    run: Execution,
    plan: ExamPlan,
    model: EvaluatedModel,
    settings: EvaluationSettings,
    *,
    source: ArtifactRef | None = None,
) -> Work:
    """Let any model answer one benchmark; `source` is the artifact of its questions, if they are generated ones.

    The answers depend neither on the size of a batch nor on the number of concurrent requests.
    """
    (sheet,) = plan.sheets
    questions = plan.questions[sheet.label]
    values = {
        "answers": ask_settings(settings, sheet, questions),
        "label": sheet.label,
        "benchmark": sheet.name,
        "content": content_digest(questions),
        "engine": engine_name(model, settings),
        **({} if model.ref else {"model": model.digest}),
    }
    inputs = {"solver": model.ref, "questions": source}
    recipe = run.recipe("respond", evaluate_phase.VERSION, values, inputs, seed=settings.seed)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        options = RespondSettings(
            prompts=settings.prompts,
            sampling=settings.sampling,
            prompt_tokens=settings.prompt_tokens,
            seed=settings.seed,
            batch_tokens=settings.batch_tokens,
            phrasing=phrasing_of(settings, sheet.label),
        )

        def batches(asks: Sequence[Ask], finished: Collection[Key]) -> Iterator[list[BenchmarkResponse]]:
            missing = sum(each.key not in finished for each in asks)
            run.console.say(f"{model.name}: {missing:,} of {len(asks):,} questions of {sheet.label} to ask")
            if model.folder is not None:
                return ask(asks, finished, run.pool.sampler(model.checkpoint()), options, progress=progress)
            # Imported here: only models at an address need it.
            from infuser_core.engines.endpoint import Endpoint, parse_address
            from infuser_core.evaluation.remote import respond as ask_at_address

            endpoint = Endpoint(parse_address(model.digest), concurrency=settings.concurrency)
            return ask_at_address(asks, finished, endpoint, options, progress=progress)

        responses = collect_responses(plan, Pieces(run.store.partial(recipe), BenchmarkResponse), batches)
        return responses_outcome(sheet.label, questions, responses, model=model.name)

    return Work(recipe=recipe, produce=produce)


def probe(run: Execution, label: str, texts: ProbeTexts, model: EvaluatedModel, settings: EvaluationSettings) -> Work:
    """Let a model complete questions of a benchmark and their controls."""
    values = {
        "label": label,
        "content": digest_of(asdict(texts)),
        "shares": contamination.SHARES,
        "prompt_tokens": settings.prompt_tokens,
        "engine": engine_name(model, settings),
        "model": model.digest,
    }
    recipe = run.recipe("contamination", contamination.VERSION, values, {"solver": model.ref})

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rows = contamination.continue_texts(
            texts.pairs, run.pool.sampler(model.checkpoint()), prompt_tokens=settings.prompt_tokens, progress=progress
        )
        shares = contamination.summarise(rows)
        sentence = contamination.sentence_of(label, model.name, texts.control, shares)
        return Outcome(
            tables={"continuations": Table(row_type=Continuation, rows=rows)},
            summary={"label": label, "said": sentence, "shares": shares},
        )

    return Work(recipe=recipe, produce=produce)


def import_answers(
    label: str, questions: Sequence[Question], responses: Sequence[BenchmarkResponse], digest: str
) -> Work:
    """Import answers from a file with this digest, in the form of a model's answers."""
    values = {"label": label, "content": content_digest(questions), "file": digest}
    recipe = Recipe(phase="respond", version=evaluate_phase.VERSION, config=values, seed=0)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        return responses_outcome(label, questions, responses)

    return Work(recipe=recipe, produce=produce)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A model that decides where the verification rules are uncertain."""

    digest: str
    """Digest of the model's weights, or its address."""
    load: Callable[[], ChatModel]
    """Loads the model; called only if there is something to judge."""


def score(run: Execution, answers: ArtifactRef, settings: ScoreSettings, *, judge: Judge | None = None) -> Work:
    """Score saved answers under a grading preset; answers of a run under its own preset are scored already."""
    manifest = run.store.manifest(answers)
    label, iteration = str(manifest.summary["label"]), int(manifest.recipe["iteration"])
    return _score_work(run, "evaluate", label, iteration, answers, settings, judge=judge)


def retain(run_name: str, completed: int, validations: Mapping[int, ArtifactRef | None]) -> None:
    """Remove stored files that the run no longer needs after `completed` iterations, if `store.keep` is set.

    `validations` are by number of completed iterations; None for one that is not finished.
    """
    run = current_run(run_name)
    keep = run.config.store.keep
    if keep is None or not run.control.executes or is_repairing():
        return
    candidates = set(validations)
    # With `within_noise` selection, a checkpoint with a lower accuracy may still be selected.
    if run.config.evaluate.selection == "best":
        scored = {number: ref for number, ref in validations.items() if ref is not None}
        accuracies = [run.store.rows(ref, "benchmark_scores", BenchmarkScore)[0].accuracy for ref in scored.values()]
        best = {list(scored)[select_phase.best_index(accuracies)]} if scored else set()
        candidates = best | (candidates - scored.keys())
    pruning = gc.prune_run(run.store.root, run.name, keep, passed=completed, candidates=candidates)
    notes = (
        [f"{quantity(len(pruning.items), 'artifact')} thinned out, {format_size(pruning.bytes)}"]
        if pruning.items
        else []
    )
    for note in [*notes, *pruning.notes]:
        run.log.note(f"retention after iteration {completed}: {note}")


@stage("validate")
def validate(run: Run, iteration: int, responses: ArtifactRef) -> Work:
    """Score a checkpoint's answers to the validation set."""
    return _score_work(run, "validate", VALIDATION, iteration, responses, evaluate_phase.score_settings(run.config))


@stage("evaluate")
def evaluate(run: Run, iteration: int, label: str, responses: ArtifactRef) -> Work:
    """Score a checkpoint's answers to one benchmark."""
    return _score_work(run, "evaluate", label, iteration, responses, evaluate_phase.score_settings(run.config))


def _score_work(
    run: Execution,
    phase: str,
    label: str,
    iteration: int,
    responses: ArtifactRef,
    settings: ScoreSettings,
    *,
    judge: Judge | None = None,
) -> Work:
    values = recorded(settings) | ({"judge": judge.digest} if judge else {})
    version = evaluate_phase.VERSION
    recipe = run.recipe(phase, version, values, {"responses": responses}, iteration=iteration)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        model = judge.load() if judge else None
        return scores_outcome(run.store, label, responses, settings, judge=model, progress=progress)

    return Work(recipe=recipe, produce=produce)


@stage("select")
def select_checkpoint(run: Run, iterations: Sequence[int], validations: Sequence[ArtifactRef]) -> Work:
    """Select a validated checkpoint by accuracy and the configured rule, and store how all candidates compare."""
    rule = run.config.evaluate.selection

    def produce(workspace: Path, progress: Progress) -> Outcome:
        scores = [run.store.rows(ref, "benchmark_scores", BenchmarkScore)[0] for ref in validations]
        questions = [run.store.rows(ref, "question_scores", QuestionScore) for ref in validations]
        candidates = select_phase.select(iterations, scores, questions, rule=rule)
        best = next(candidate for candidate in candidates if candidate.selected)
        selection = Selection(
            selected_iteration=best.at_iteration, checkpoint_id=best.checkpoint_id, accuracy=best.accuracy
        )
        return Outcome(
            tables={
                "candidates": Table(row_type=Candidate, rows=candidates),
                "selections": Table(row_type=Selection, rows=[selection]),
            },
            summary={"selected_iteration": best.at_iteration, "accuracy": best.accuracy},
        )

    inputs = {f"validation-{number:04d}": ref for number, ref in zip(iterations, validations, strict=True)}
    return Work(recipe=run.recipe("select", select_phase.VERSION, {"rule": rule}, inputs), produce=produce)


def selected_iteration(run: str, selection: ArtifactRef, last: int) -> int:
    """Completed iterations of the selected checkpoint; a plan that cannot know it uses `last`."""
    return read_fact(
        run,
        lambda opened: opened.store.rows(selection, "selections", Selection)[0].selected_iteration,
        otherwise=last,
        note="which checkpoint is selected depends on the validations: the plan takes the last one",
    )


@stage("leakage")
def leakage(run: Run, validation: ArtifactRef) -> Work:
    """Measure how many of each benchmark's questions are in the validation set, which selects the checkpoint."""
    loaded = {b.label or b.name: find_benchmark(b.name)(b) for b in run.config.evaluate.benchmarks}

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rows = count_leaks(run.store.rows(validation, "reference_questions", Question), loaded)
        return Outcome(
            tables={"leaks": Table(row_type=Leak, rows=rows)},
            summary={"said": leak_warning(rows) or "no benchmark question is in the validation set"},
        )

    content = {label: content_digest(questions) for label, questions in loaded.items()}
    recipe = run.recipe("leakage", LEAKAGE_VERSION, {"benchmarks": content}, {"validation": validation})
    return Work(recipe=recipe, produce=produce)


def write_report(run: Run, *, page: bool) -> None:
    """Record the attempt's time and memory; write the report's page if requested, unless it exists and nothing ran."""
    from infuser_core.results.lineage.outcome import count_phases

    root = run.store.root
    attempt = run.journal.last_attempt()
    report_page = runs.report_folder(root, run.name) / "report.html"
    if page and (not report_page.exists() or any(entry.state == "ran" for entry in attempt)):
        # Imported here, because it is slow.
        from infuser_core.results.report import build

        run.console.start("report")
        build.write_report(root, run.name)
    record = {
        "run": run.name,
        "seconds": round(time.monotonic() - run.started, 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "phases": count_phases(run.journal.last_attempt()),
    }
    runs.write_record(root, run.name, runs.ATTEMPT, record)
    if run.published:
        show_run(run)
    run.journal.finish()
