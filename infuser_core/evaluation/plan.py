"""Plan of an evaluation: its benchmarks with their questions, and the identity that saved answers belong to."""

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from infuser_core import plugins
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, UsageError
from infuser_core.evaluation.answering import OWN, AskSettings, solver_templates, template_digest
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
from infuser_core.evaluation.benchmarks.parts.validation import draw_stratified, question_identity
from infuser_core.evaluation.evaluate import Ask, Key
from infuser_core.evaluation.models import NamedModel, is_nano
from infuser_core.evaluation.settings import EvaluationSettings, phrasing_of
from infuser_core.plugins import prompt_name
from infuser_core.prompts.load import load
from infuser_core.schemas import BenchmarkResponse, Question
from infuser_core.system.hub import find_data
from infuser_core.system.sealed import digest_of

FORMAT = 1
"""Raised when responses are made differently, so that old and new ones never mix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion(Question):
    """A question as it is saved with an evaluation."""

    benchmark: str
    """Benchmark label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One benchmark of an evaluation."""

    label: str
    """Name in tables and files."""
    name: str
    """Benchmark module."""
    title: str
    """Name for people."""
    category: str
    """math, general, medical, coding, nano, or empty."""
    samples: int
    """Responses per question."""
    max_tokens: int
    """Response limit, tokens."""
    num_available: int
    """Questions of the benchmark before a limit."""
    expected: int | None
    """Questions that the benchmark should have; None where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Benchmarks of an evaluation and their questions."""

    sheets: list[Sheet]
    """Benchmarks in the order asked for."""
    questions: Mapping[str, Sequence[Question]]
    """Questions by benchmark label, in the order of the benchmarks."""

    def asks(self) -> list[Ask]:
        """The questions with how often they are asked."""
        return [
            Ask(benchmark=sheet.label, question=question, samples=sheet.samples, max_tokens=sheet.max_tokens)
            for sheet in self.sheets
            for question in self.questions[sheet.label]
        ]

    def of(self, labels: Collection[str]) -> "Plan":
        """Some benchmarks of it."""
        sheets = [sheet for sheet in self.sheets if sheet.label in labels]
        return Plan(sheets=sheets, questions={sheet.label: self.questions[sheet.label] for sheet in sheets})

    def by_key(self) -> dict[Key, Question]:
        """Questions by (benchmark, question id)."""
        return {(label, each.question_id): each for label, found in self.questions.items() for each in found}

    def labelled(self) -> list[AskedQuestion]:
        """The questions as they are saved with an evaluation."""
        names = [part.name for part in fields(Question)]
        return [
            AskedQuestion(benchmark=label, **{name: getattr(each, name) for name in names})
            for label, found in self.questions.items()
            for each in found
        ]


def single(label: str, questions: Sequence[Question], *, samples: int, max_tokens: int = 0, **known: Any) -> Plan:
    """The plan of one set of questions; `known` are further facts of its sheet."""
    facts = {"name": label, "title": label, "category": "", "num_available": len(questions), "expected": None, **known}
    sheet = Sheet(label=label, samples=samples, max_tokens=max_tokens, **facts)
    return Plan(sheets=[sheet], questions={label: questions})


def of_answers(label: str, questions: Sequence[Question], responses: Sequence[BenchmarkResponse]) -> Plan:
    """The plan of one set of questions that has been answered: as many samples as there are."""
    return single(label, questions, samples=max((row.sample_index for row in responses), default=0) + 1)


def make_plan(
    model: NamedModel,
    settings: EvaluationSettings,
    wanted: str,
    *,
    data: Path | None,
    samples: int | None,
    limit: int | None,
    warn: Callable[[str], None],
) -> Plan:
    """The benchmarks with their questions; of `all`, those whose data and prompts are here, and why not the others.

    Raises ConfigError for an unknown one, or where its data or the prompt for its questions is missing.
    """
    if model.folder is None and settings.chat != OWN:
        raise UsageError(
            f"chat = {settings.chat}: {model.name} is behind an address", hint="its server renders prompts"
        )
    sheets: list[Sheet] = []
    questions: dict[str, list[Question]] = {}
    missing: ConfigError | None = None
    for benchmark in _benchmarks(wanted, settings, nano=is_nano(model), warn=warn):
        known = plugins.describe(benchmark.name)
        try:
            found = _questions(_located(benchmark, known, data), known, warn)
            _refuse_unaskable(found, settings, benchmark.label or benchmark.name)
        except ConfigError as error:
            if wanted.strip() != "all":
                raise
            warn(f"all: {benchmark.name} is left out: {error.message}")
            missing = error
            continue
        sheet = _sheet(benchmark, known, settings, samples=samples, available=len(found))
        sheets.append(sheet)
        questions[sheet.label] = _limited(found, limit, seed=settings.seed, label=sheet.label)
    if missing is not None and not sheets:
        raise missing
    return Plan(sheets=sheets, questions=questions)


def _sheet(
    benchmark: BenchmarkSettings,
    known: Benchmark | None,
    settings: EvaluationSettings,
    *,
    samples: int | None,
    available: int,
) -> Sheet:
    label = benchmark.label or benchmark.name
    return Sheet(
        label=label,
        name=benchmark.name,
        title=known.title if known and not benchmark.label else label,
        category=known.category if known else "",
        samples=samples or benchmark.samples or (known.samples if known else 1),
        max_tokens=benchmark.max_tokens or (known.max_tokens if known else None) or settings.max_tokens,
        num_available=available,
        expected=known.rows if known and not benchmark.only else None,
    )


def _refuse_unaskable(questions: Sequence[Question], settings: EvaluationSettings, label: str) -> None:
    """A missing template, or an example that gives a question away, is found before a model is loaded."""
    examples = [example.question for example in phrasing_of(settings, label).examples]
    for name in dict.fromkeys(map(prompt_name, [*questions, *examples])):
        load(name, profile=settings.prompts)
    known = {question_identity(question): question.question_id for question in questions} if examples else {}
    for number, example in enumerate(examples, 1):
        if twin := known.get(question_identity(example)):
            raise ConfigError(f"example {number} is question {twin} of {label}", hint="examples are other questions")


def _limited(found: Sequence[Question], limit: int | None, *, seed: int, label: str) -> list[Question]:
    """`limit` of the questions in their order, every domain with its share; all without one."""
    if limit is None or limit >= len(found):
        return list(found)
    drawn = draw_stratified(found, limit, seed=seed, scope=("limit", label), by=lambda question: question.domain)
    names = {question.question_id for question in drawn}
    return [question for question in found if question.question_id in names]


def _benchmarks(
    wanted: str, settings: EvaluationSettings, *, nano: bool, warn: Callable[[str], None]
) -> list[BenchmarkSettings]:
    """The named benchmarks: configured labels first, then modules, `NAME=FILE`, `module:load=FILE`, or `all`.

    `NAME:PART+PART` are the questions of these domains or subdomains alone.
    """
    configured = {benchmark.label or benchmark.name: benchmark for benchmark in settings.benchmarks}
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if names == ["all"]:
        known = plugins.BENCHMARKS.names()
        names = [name for name in known if _belongs(plugins.describe(name), settings, nano=nano)]
        if nano:
            others = f"the other {len(known) - len(names)} benchmarks have no prompt in profile {settings.prompts}"
            warn(f"all: a nano model is asked {' and '.join(names)}; {others}")
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


def _belongs(benchmark: Benchmark | None, settings: EvaluationSettings, *, nano: bool) -> bool:
    """Whether `all` means it: the micro-world's for its own models (numbers where they can), data sets for others."""
    if benchmark is None or not nano:
        return benchmark is not None and bool(benchmark.repos)
    answerable = benchmark.verifier == "choice" or len(solver_templates(settings.prompts)) > 1
    return benchmark.category == "nano" and answerable


def _named(text: str) -> BenchmarkSettings:
    name, mark, path = text.partition("=")
    module, own, part = name.partition(":")
    if own and module in plugins.BENCHMARKS.names():
        parts = [each.strip() for each in part.split("+")]
        return BenchmarkSettings(name=module, path=path, only=parts, label="-".join([module, *parts]))
    if not mark:
        plugins.benchmark(name)
        return BenchmarkSettings(name=name)
    if own:
        return BenchmarkSettings(name=name, label=module.rpartition(".")[2], path=path)
    return BenchmarkSettings(name=name if name in plugins.BENCHMARKS.names() else "released", label=name, path=path)


def _located(benchmark: BenchmarkSettings, known: Benchmark | None, data: Path | None) -> BenchmarkSettings:
    """The benchmark with its place in the data folder, where one is named and it has data at all."""
    if data is None or benchmark.path or known is None or not known.repos:
        return benchmark
    stems = [benchmark.name, *known.repos, *(repo.split("/")[-1] for repo in known.repos)]
    for stem in stems:
        if place := find_data(data, stem):
            # Of several data sets all folders are needed: the loader tells their files apart.
            folder = data if len(known.repos) > 1 and stem != benchmark.name else place
            return benchmark.model_copy(update={"path": str(folder)})
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
    if expected is not None and len(found) != expected and not (lines or benchmark.only):
        warn(f"{benchmark.name}: {len(found):,} questions, expected {expected:,}")
    return list(found)


def identity_of(
    model: str, settings: EvaluationSettings, plan: Plan, *, engine: str, limit: int | None
) -> dict[str, Any]:
    """All that the responses are a function of, as JSON values; `model` is a digest of the model."""
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
    """Everything but the questions and the model that the answers to one benchmark are a function of."""
    templates = solver_templates(settings.prompts, map(prompt_name, questions))
    return AskSettings(
        prompts=settings.prompts,
        prompt_digest=template_digest(*templates, phrasing=phrasing_of(settings, sheet.label)),
        sampling=settings.sampling,
        samples=sheet.samples,
        prompt_tokens=settings.prompt_tokens,
        max_tokens=sheet.max_tokens,
    )


def name_of(model: str, plan: Plan, identity: dict[str, Any]) -> str:
    """Name of an evaluation's record: the same model, benchmarks and settings always give the same one."""
    shown = re.sub(r"[^A-Za-z0-9._]+", "-", model).strip("-.")[-40:]
    labels = [re.sub(r"[^A-Za-z0-9._]+", "-", sheet.label) for sheet in plan.sheets]
    what = "+".join(labels)[:80] if len(labels) <= 3 else f"{len(labels)}-benchmarks"
    return f"{shown}-{what}-{digest_of(identity)[:12]}"
