"""Plan of an evaluation: its benchmarks with their questions, and the identity, all that determines its answers."""

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, UsageError
from infuser_core.evaluation.answering import OWN, AskSettings, solver_templates, template_digest
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark, find_benchmark
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.evaluation.benchmarks.parts.validation import draw_stratified, question_identity
from infuser_core.evaluation.evaluate import Ask, Key
from infuser_core.evaluation.models import EvaluatedModel, is_nano
from infuser_core.evaluation.settings import EvaluationSettings, phrasing_of
from infuser_core.plugins import BENCHMARKS
from infuser_core.prompts.templates import load_template
from infuser_core.schemas import BenchmarkResponse, Question
from infuser_core.system.hub import find_data
from infuser_core.system.sealed import digest_of
from infuser_core.verifiers.parts.batch import prompt_name

FORMAT = 1
"""Raised if responses are generated differently, so that old and new ones never mix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion(Question):
    """A question, in the form that is saved with an evaluation."""

    benchmark: str
    """Benchmark label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One benchmark of an evaluation: names, samples, limits and numbers of questions."""

    label: str
    """Name in tables and files."""
    name: str
    """Benchmark module."""
    title: str
    category: str
    """math, general, medical, coding, nano, or empty."""
    samples: int
    """Responses per question."""
    max_tokens: int
    """Response limit, tokens."""
    num_available: int
    """Questions of the benchmark before a limit."""
    expected: int | None
    """Questions that the benchmark should have; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamPlan:
    """Benchmarks of an evaluation and their questions."""

    sheets: list[Sheet]
    """Benchmarks in the order requested."""
    questions: Mapping[str, Sequence[Question]]
    """Questions by benchmark label, in the order of the benchmarks."""

    def asks(self) -> list[Ask]:
        """The questions with their numbers of samples."""
        return [
            Ask(benchmark=sheet.label, question=question, samples=sheet.samples, max_tokens=sheet.max_tokens)
            for sheet in self.sheets
            for question in self.questions[sheet.label]
        ]

    def subset(self, labels: Collection[str]) -> "ExamPlan":
        """The plan reduced to the benchmarks with these labels."""
        sheets = [sheet for sheet in self.sheets if sheet.label in labels]
        return ExamPlan(sheets=sheets, questions={sheet.label: self.questions[sheet.label] for sheet in sheets})

    def by_key(self) -> dict[Key, Question]:
        """Questions by (benchmark, question id)."""
        return {(label, each.question_id): each for label, questions in self.questions.items() for each in questions}

    def question_rows(self) -> list[AskedQuestion]:
        """The questions as an evaluation saves them."""
        names = [part.name for part in fields(Question)]
        return [
            AskedQuestion(benchmark=label, **{name: getattr(each, name) for name in names})
            for label, questions in self.questions.items()
            for each in questions
        ]


def single_plan(
    label: str,
    questions: Sequence[Question],
    *,
    samples: int,
    max_tokens: int = 0,
    name: str = "",
    title: str = "",
    category: str = "",
) -> ExamPlan:
    """Make the plan of one set of questions; `label` is the default of name and title."""
    sheet = Sheet(
        label=label,
        name=name or label,
        title=title or label,
        category=category,
        samples=samples,
        max_tokens=max_tokens,
        num_available=len(questions),
        expected=None,
    )
    return ExamPlan(sheets=[sheet], questions={label: questions})


def plan_of_answers(label: str, questions: Sequence[Question], responses: Sequence[BenchmarkResponse]) -> ExamPlan:
    """Make the plan of one set of answered questions, with the largest number of samples among its responses."""
    return single_plan(label, questions, samples=max((row.sample_index for row in responses), default=0) + 1)


def make_plan(
    model: EvaluatedModel,
    settings: EvaluationSettings,
    names: str,
    *,
    data: Path | None,
    samples: int | None,
    limit: int | None,
    warn: Callable[[str], None],
) -> ExamPlan:
    """Load the named benchmarks with their questions; for `all`, those with data and prompts on this machine.

    Raises ConfigError for an unknown one, or if its data or the prompt for its questions is missing.
    """
    if model.folder is None and settings.chat != OWN:
        raise UsageError(
            f"chat = {settings.chat}: {model.name} is behind an address", hint="its server renders prompts"
        )
    sheets: list[Sheet] = []
    questions: dict[str, list[Question]] = {}
    missing: ConfigError | None = None
    for benchmark in select_benchmarks(names, settings, nano=is_nano(model), warn=warn):
        spec = describe_benchmark(benchmark.name)
        label = benchmark.label or benchmark.name
        try:
            available = _load_questions(_locate_data(benchmark, spec, data), spec, warn)
            _check_prompts(available, settings, label)
        except ConfigError as error:
            if names.strip() != "all":
                raise
            warn(f"all: {benchmark.name} is left out: {error.message}")
            missing = error
            continue
        sheet = Sheet(
            label=label,
            name=benchmark.name,
            title=spec.title if spec and not benchmark.label else label,
            category=spec.category if spec else "",
            samples=samples or benchmark.samples or (spec.samples if spec else 1),
            max_tokens=benchmark.max_tokens or (spec.max_tokens if spec else None) or settings.max_tokens,
            num_available=len(available),
            expected=spec.rows if spec and not benchmark.only else None,
        )
        sheets.append(sheet)
        questions[label] = available
        if limit is not None and limit < len(available):
            # In the original order, with every domain in proportion.
            draw = draw_stratified(
                available, limit, seed=settings.seed, scope=("limit", label), by=lambda question: question.domain
            )
            ids = {question.question_id for question in draw}
            questions[label] = [question for question in available if question.question_id in ids]
    if missing is not None and not sheets:
        raise missing
    return ExamPlan(sheets=sheets, questions=questions)


def _check_prompts(questions: Sequence[Question], settings: EvaluationSettings, label: str) -> None:
    """Refuse a missing template, or an example that gives a question away, before a model is loaded."""
    examples = [example.question for example in phrasing_of(settings, label).examples]
    for name in dict.fromkeys(map(prompt_name, [*questions, *examples])):
        load_template(name, profile=settings.prompts)
    ids = {question_identity(question): question.question_id for question in questions} if examples else {}
    for number, example in enumerate(examples, 1):
        if twin := ids.get(question_identity(example)):
            raise ConfigError(f"example {number} is question {twin} of {label}", hint="examples are other questions")


def select_benchmarks(
    text: str, settings: EvaluationSettings, *, nano: bool, warn: Callable[[str], None]
) -> list[BenchmarkSettings]:
    """The benchmarks of `text`: configured labels first, then modules, `NAME=FILE`, `module:load=FILE`, or `all`.

    `NAME:PART+PART` are the questions of these domains or subdomains alone.
    """
    configured = {benchmark.label or benchmark.name: benchmark for benchmark in settings.benchmarks}
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["all"]:
        shipped = {name: described for name in BENCHMARKS.names() if (described := describe_benchmark(name))}
        names = [name for name, described in shipped.items() if described.repos]
        if nano:
            of_nano = {name: described for name, described in shipped.items() if described.category == "nano"}
            # The prompts of most profiles ask for a letter.
            has_free_form = len(solver_templates(settings.prompts)) > 1
            names = [name for name, each in of_nano.items() if has_free_form or each.verifier == "choice"]
            others = f"the other {len(shipped) - len(names)} benchmarks have no prompt in profile {settings.prompts}"
            warn(f"all: a nano model is asked {' and '.join(names)}; {others}")
    if not names:
        names = list(configured)
    if not names:
        hint = f"--benchmarks all, or some of {', '.join(BENCHMARKS.names())}"
        raise UsageError("no benchmarks named, and the settings name none", hint=hint)
    benchmarks = [configured[name] if name in configured else _parse_benchmark(name) for name in names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--benchmarks names {twice[0]} twice", hint="once is enough; --samples asks more often")
    return benchmarks


def _parse_benchmark(text: str) -> BenchmarkSettings:
    name, mark, path = text.partition("=")
    module, colon, part = name.partition(":")
    if colon and module in BENCHMARKS.names():
        parts = [each.strip() for each in part.split("+")]
        return BenchmarkSettings(name=module, path=path, only=parts, label="-".join([module, *parts]))
    if not mark:
        find_benchmark(name)
        return BenchmarkSettings(name=name)
    if colon:
        return BenchmarkSettings(name=name, label=module.rpartition(".")[2], path=path)
    return BenchmarkSettings(name=name if name in BENCHMARKS.names() else "released", label=name, path=path)


def _locate_data(benchmark: BenchmarkSettings, spec: Benchmark | None, data: Path | None) -> BenchmarkSettings:
    """The benchmark with its path in the data folder, if that is set and the benchmark has a data set."""
    if data is None or benchmark.path or spec is None or not spec.repos:
        return benchmark
    stems = [benchmark.name, *spec.repos, *(repo.split("/")[-1] for repo in spec.repos)]
    for stem in stems:
        if place := find_data(data, stem):
            # Of several data sets all folders are needed: the loader tells their files apart.
            folder = data if len(spec.repos) > 1 and stem != benchmark.name else place
            return benchmark.model_copy(update={"path": str(folder)})
    raise ConfigError(f"--data {data}: nothing there for {benchmark.name}", hint=f"looked for {', '.join(stems)}")


def _load_questions(
    benchmark: BenchmarkSettings, spec: Benchmark | None, warn: Callable[[str], None]
) -> list[Question]:
    """Load a benchmark's questions; report warnings of the loader, and an unexpected number, at once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        questions = find_benchmark(benchmark.name)(benchmark)
    lines = [str(warning.message) for warning in caught if issubclass(warning.category, DataWarning)]
    for line in lines:
        warn(line)
    expected = spec.rows if spec else None
    if expected is not None and len(questions) != expected and not (lines or benchmark.only):
        warn(f"{benchmark.name}: {len(questions):,} questions, expected {expected:,}")
    return list(questions)


def identity_of(
    model: str, settings: EvaluationSettings, plan: ExamPlan, *, engine: str, limit: int | None
) -> dict[str, Any]:
    """Identity of an evaluation: all that determines its responses, as JSON values; `model` is the model's digest."""
    benchmarks: dict[str, dict[str, Any]] = {}
    for sheet in plan.sheets:
        rows = [{**asdict(question), "benchmark": sheet.label} for question in plan.questions[sheet.label]]
        benchmarks[sheet.label] = {
            "name": sheet.name,
            "samples": sheet.samples,
            "max_tokens": sheet.max_tokens,
            "questions": len(rows),
            "content": digest_of(rows),
        }
    identity = {
        "format": FORMAT,
        "model": model,
        "engine": engine,
        "seed": settings.seed,
        "prompts": template_digest(*solver_templates(settings.prompts, map(prompt_name, plan.by_key().values()))),
        "sampling": settings.sampling.model_dump(mode="json"),
        "prompt_tokens": settings.prompt_tokens,
        "limit": limit,
        "benchmarks": benchmarks,
    }
    phrasings = {sheet.label: phrasing_of(settings, sheet.label) for sheet in plan.sheets}
    # One condition for all four, which no mark of a single field can say: with examples in one benchmark, the others'
    # zero shots and the profile's own system turn are part of the identity as well.
    if any(phrasing.digest for phrasing in phrasings.values()):
        for label, phrasing in phrasings.items():
            benchmarks[label]["shots"] = len(phrasing.examples)
        phrased = {label: phrasing.digest for label, phrasing in phrasings.items()}
        identity |= {"phrasing": phrased, "system": settings.system, "chat": settings.chat}
    return identity


def ask_settings(settings: EvaluationSettings, sheet: Sheet, questions: Sequence[Question]) -> AskSettings:
    """Settings that determine the answers to one benchmark, besides the questions and the model."""
    templates = solver_templates(settings.prompts, map(prompt_name, questions))
    return AskSettings(
        prompts=settings.prompts,
        prompt_digest=template_digest(*templates, phrasing=phrasing_of(settings, sheet.label)),
        sampling=settings.sampling,
        samples=sheet.samples,
        prompt_tokens=settings.prompt_tokens,
        max_tokens=sheet.max_tokens,
    )


def name_of(model: str, plan: ExamPlan, identity: dict[str, Any]) -> str:
    """Name of an evaluation's record: equal models, benchmarks and settings give the same name."""
    short = re.sub(r"[^A-Za-z0-9._]+", "-", model).strip("-.")[-40:]
    labels = [re.sub(r"[^A-Za-z0-9._]+", "-", sheet.label) for sheet in plan.sheets]
    what = "+".join(labels)[:80] if len(labels) <= 3 else f"{len(labels)}-benchmarks"
    return f"{short}-{what}-{digest_of(identity)[:12]}"
