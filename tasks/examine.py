"""An examination of one model: what is asked, the asking, and the results."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from infuser_core import plugins
from infuser_core.benchmarks.parts.files import SUFFIXES
from infuser_core.benchmarks.parts.spec import Benchmark, DataWarning
from infuser_core.benchmarks.parts.validation import draw
from infuser_core.config.overlays import load as load_config
from infuser_core.config.run import BenchmarkSettings
from infuser_core.engines.configured import SAMPLERS
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.protocols import ChatModel
from infuser_core.errors import ConfigError, UsageError
from infuser_core.evaluation import results as tables
from infuser_core.evaluation.folder import ExamFolder, write_json, write_rows, write_text
from infuser_core.evaluation.models import Examinee, is_nano
from infuser_core.evaluation.plan import ExamQuestion, ExamSettings, Plan, Sheet, changed, exam_question, of_run
from infuser_core.evaluation.plan import read_settings as settings_in
from infuser_core.evaluation.saved import of_folder, save_verdicts, score
from infuser_core.evaluation.scores import scores_of
from infuser_core.phases.answering import solver_templates
from infuser_core.phases.respond import RespondSettings, respond
from infuser_core.schemas import BenchmarkResponse, BenchmarkScore, Question, QuestionScore
from infuser_core.store.recipe import digest_of
from infuser_core.terminal import Console

BATCH_TOKENS = 262_144
"""Prompt and response tokens of one batch, where nobody says."""
CONFIGS = Path(__file__).parent.parent / "configs"
_NANO = {"hard": "nano-hard.yaml", "wide": "nano-wide.yaml"}


def settings_for(examinee: Examinee, config: Path | None, overrides: dict[str, Any]) -> ExamSettings:
    """The model's own settings (its run's, the nano lab's, else the paper's), then the file's, then the options'."""
    if examinee.config is not None:
        base = of_run(examinee.config)
    elif is_nano(examinee):
        base = of_run(load_config([CONFIGS / _NANO.get(examinee.world, "nano.yaml")]))
    else:
        base = ExamSettings()
    base = settings_in(config, base) if config is not None else base
    return changed(base, {name: value for name, value in overrides.items() if value is not None}, where="options")


def make_plan(
    examinee: Examinee,
    settings: ExamSettings,
    wanted: str,
    *,
    data: Path | None,
    samples: int | None,
    limit: int | None,
    warn: Callable[[str], None],
) -> Plan:
    """The benchmarks with their questions. Raises ConfigError for an unknown one, or where its data is missing."""
    sheets: list[Sheet] = []
    questions: list[ExamQuestion] = []
    for benchmark in _benchmarks(wanted, settings, nano=is_nano(examinee)):
        label = benchmark.label or benchmark.name
        known = plugins.describe(benchmark.name)
        found = _questions(_located(benchmark, known, data), known, warn)
        chosen = _limited(found, limit, seed=settings.seed, label=label)
        sheets.append(
            Sheet(
                label=label,
                name=benchmark.name,
                title=known.title if known and not benchmark.label else label,
                category=known.category if known else "",
                samples=samples or benchmark.samples or (known.samples if known else 1),
                max_tokens=benchmark.max_tokens or (known.max_tokens if known else None) or settings.max_tokens,
                num_available=len(found),
                expected=known.rows if known else None,
            )
        )
        questions += [exam_question(label, question) for question in chosen]
    return Plan(sheets=sheets, questions=questions)


def _limited(found: Sequence[Question], limit: int | None, *, seed: int, label: str) -> list[Question]:
    """`limit` of the questions in their order, every domain with its share; all without one."""
    if limit is None or limit >= len(found):
        return list(found)
    drawn = draw(found, limit, seed=seed, scope=("limit", label), by=lambda question: question.domain)
    names = {question.question_id for question in drawn}
    return [question for question in found if question.question_id in names]


def _benchmarks(wanted: str, settings: ExamSettings, *, nano: bool) -> list[BenchmarkSettings]:
    """The named benchmarks: configured labels first, then modules, `NAME=FILE`, `module:load=FILE`, or `all`."""
    configured = {benchmark.label or benchmark.name: benchmark for benchmark in settings.benchmarks}
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if names == ["all"]:
        names = [name for name in plugins.BENCHMARKS.names() if _belongs(plugins.describe(name), settings, nano=nano)]
    if not names:
        names = list(configured)
    if not names:
        hint = f"--benchmarks all, or some of {', '.join(plugins.BENCHMARKS.names())}"
        raise UsageError("no benchmarks named, and the settings name none", hint=hint)
    found = [configured[name] if name in configured else _named(name) for name in names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--benchmarks names {twice[0]} twice", hint="once is enough; --samples asks more often")
    return found


def _belongs(benchmark: Benchmark | None, settings: ExamSettings, *, nano: bool) -> bool:
    """Whether `all` means it: the micro-world's for its own models, those with a data set for others.

    A nano model is asked for numbers only where its prompts know how.
    """
    if benchmark is None or not nano:
        return benchmark is not None and bool(benchmark.repos)
    answerable = benchmark.verifier == "choice" or len(solver_templates(settings.prompts)) > 1
    return benchmark.category == "nano" and answerable


def _named(text: str) -> BenchmarkSettings:
    name, mark, path = text.partition("=")
    if not mark:
        plugins.benchmark(name)
        return BenchmarkSettings(name=name)
    module, own, _ = name.partition(":")
    if own:
        return BenchmarkSettings(name=name, label=module.rpartition(".")[2], path=path)
    return BenchmarkSettings(name=name if name in plugins.BENCHMARKS.names() else "released", label=name, path=path)


def _located(benchmark: BenchmarkSettings, known: Benchmark | None, data: Path | None) -> BenchmarkSettings:
    """The benchmark with its place in the data folder, where one is named and it has data at all."""
    if data is None or benchmark.path or known is None or not known.repos:
        return benchmark
    stems = [benchmark.name, *known.repos, *(repo.split("/")[-1] for repo in known.repos)]
    for stem in stems:
        for place in (data / stem, *(data / f"{stem}{suffix}" for suffix in SUFFIXES)):
            if place.exists():
                # A benchmark in several data sets lies beside itself: the loader tells its files apart.
                beside = data if len(known.repos) > 1 and stem != benchmark.name else place
                return benchmark.model_copy(update={"path": str(beside)})
    raise ConfigError(f"--data {data}: nothing there for {benchmark.name}", hint=f"looked for {', '.join(stems)}")


def _questions(benchmark: BenchmarkSettings, known: Benchmark | None, warn: Callable[[str], None]) -> list[Any]:
    """Its questions; what the loader warns of, and another number than expected, is said at once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = plugins.benchmark(benchmark.name)(benchmark)
    lines = [str(warning.message) for warning in caught if issubclass(warning.category, DataWarning)]
    for line in lines:
        warn(line)
    expected = known.rows if known else None
    if expected is not None and len(found) != expected and not lines:
        warn(f"{benchmark.name}: {len(found):,} questions, expected {expected:,}")
    return list(found)


def default_folder(root: Path, examinee: Examinee, plan: Plan, identity: dict[str, Any]) -> Path:
    """Where an examination lies: the same model, benchmarks and settings always give the same place."""
    model = re.sub(r"[^A-Za-z0-9._]+", "-", examinee.name).strip("-.")[-40:]
    labels = [re.sub(r"[^A-Za-z0-9._]+", "-", sheet.label) for sheet in plan.sheets]
    what = "+".join(labels) if len(labels) <= 3 else f"{len(labels)}-benchmarks"
    return root / "evaluations" / f"{model}-{what}-{digest_of(identity)[:12]}"


def engine_name(examinee: Examinee, settings: ExamSettings) -> str:
    """The part of the machinery that changes responses."""
    return "endpoint" if examinee.folder is None else f"{settings.engine.sampler} {settings.engine.dtype}"


def ask(
    examinee: Examinee,
    settings: ExamSettings,
    folder: ExamFolder,
    *,
    batch_tokens: int,
    concurrency: int,
    console: Console,
) -> None:
    """Ask what is not answered yet; each batch is saved as it comes. Loads no model when nothing is missing."""
    asks = folder.plan().asks()
    finished = folder.finished()
    missing = sum(ask.key not in finished for ask in asks)
    folder.note_start(finished=len(asks) - missing, asked=missing)
    if not missing:
        return
    how = RespondSettings(
        prompts=settings.prompts,
        sampling=settings.sampling,
        prompt_tokens=settings.prompt_tokens,
        seed=settings.seed,
        batch_tokens=batch_tokens,
    )
    console.say(f"{examinee.name}: {missing:,} of {len(asks):,} questions to ask; answers go to {folder.path}")
    console.start("loading", -1)
    batches: Iterator[list[BenchmarkResponse]]
    if examinee.folder is None:
        from infuser_core.engines.endpoint import Endpoint, parse_address
        from infuser_core.evaluation.remote import respond as respond_remotely

        endpoint = Endpoint(parse_address(examinee.digest), concurrency=concurrency)
        batches = respond_remotely(asks, finished, endpoint, how, progress=console.progress)
    else:
        sampler = pool_of(settings, batch_tokens).sampler(examinee.checkpoint())
        batches = respond(asks, finished, sampler, how, progress=console.progress)
    # From here on time is asking time: the estimate must not count the loading of the model.
    console.start("asking", -1)
    for rows in batches:
        folder.add(rows)


def chat_of(judge: Examinee, settings: ExamSettings) -> ChatModel:
    """The model, to be asked for single replies."""
    if judge.folder is not None:
        return pool_of(settings, BATCH_TOKENS).chat(judge.checkpoint())
    from infuser_core.engines.endpoint import Endpoint, parse_address

    return Endpoint(parse_address(judge.digest))


def pool_of(settings: ExamSettings, batch_tokens: int = BATCH_TOKENS) -> EnginePool:
    """The sampler of an examination, not started yet."""
    engine = settings.engine
    cache = {"cache_tokens": batch_tokens} if engine.sampler == "hf" else {}
    return EnginePool(sampler=engine.sampler, sampler_options=SAMPLERS[engine.sampler](engine) | cache)


def write_results(
    folder: ExamFolder, settings: ExamSettings, *, judge: Examinee | None, console: Console
) -> dict[str, Any]:
    """Score the saved answers and write every table; returns the JSON object."""
    answers, record = of_folder(folder.path), folder.record()
    console.start("scoring", -1)
    model = None if judge is None else chat_of(judge, settings)
    scored = score(answers, [settings.preset], too_long=settings.too_long, judge=model, progress=console.progress)
    save_verdicts(answers.out, scored, judged=judge is not None)
    counts = Counter(row.benchmark for row in scored[0].verdicts if row.decided_by == "judge")
    judged = tables.Judged(name=judge.name if judge else "", counts=counts)
    questions = scored[0].questions
    scores = scores_of(answers.plan, questions, checkpoint_id=record["identity"]["model"])
    found = tables.results_of(record, scores, preset=settings.preset, too_long=settings.too_long, judged=judged)
    write_rows(folder.path / "results.parquet", [row.score for row in scores], BenchmarkScore)
    write_rows(folder.path / "question_scores.parquet", questions, QuestionScore)
    write_json(folder.path / "leaderboard.json", tables.leaderboard(found, answers.plan, questions))
    write_text(folder.path / "results.csv", tables.as_csv(found))
    write_text(folder.path / "results.md", tables.markdown(found))
    # Last: whoever sees it may take the other files for complete.
    write_json(folder.path / "results.json", found)
    return found


def facts_of(examinee: Examinee, notes: Sequence[str]) -> dict[str, Any]:
    """What the record says beside the identity."""
    return {"model": examinee.name, "notes": list(notes)}
