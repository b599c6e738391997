"""What a configuration, or none, brings to a corpus build: tokenizer, models, catalogues, references, rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import cast

from corpus.build import BuildConfig
from corpus.build_audit import OverlapPlan
from corpus.chunk.judge import Judge, ModelJudge, RuleJudge
from corpus.chunk.split import DESCRIPTION
from corpus.find import configured
from corpus.find.topics import Librarian, Taxonomy, extract
from corpus.harvest import Wish
from corpus.model_reply import KeptChat, as_they_come, in_batches
from corpus.settings import choice_of, overlap_of
from corpus.source_steps import HeadingReader, SourceConfig
from infuser_core import plugins, settings
from infuser_core.anchors import anchor_digest, anchor_folder
from infuser_core.benchmarks.parts.question_sets import load_questions
from infuser_core.config import corpus as config_pool
from infuser_core.config.corpus import CatalogueSettings, CorpusSettings, EndpointModel, JudgeSource
from infuser_core.config.run import EngineSettings, RunConfig
from infuser_core.config.sources import FolderAnchor
from infuser_core.engines.configured import SAMPLERS
from infuser_core.engines.endpoint import Endpoint, parse_address
from infuser_core.engines.models import Source, chat_model_of, prompt_of
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.protocols import Progress
from infuser_core.errors import InfuserError, UsageError
from infuser_core.phases.answering import template_digest
from infuser_core.schemas import Question, Topic
from infuser_core.store.recipe import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a pool is built, and for what."""

    build: BuildConfig
    """Conversion, chunks, judge, audit."""
    tokenizer: str
    """What counts tokens, in words."""
    catalogue: CatalogueSettings
    """Catalogues and their rules."""
    config: RunConfig | None
    """The configuration; None for the defaults."""
    models: "Models"
    """Models by their settings."""

    @property
    def judge(self) -> str:
        """Name of the judge, or `none`."""
        return self.build.judge.name if self.build.judge else "none"


class Models:
    """Chat models of a build, each with its replies kept in the work folder."""

    def __init__(self, engine: EngineSettings, folder: Path) -> None:
        self._engine, self._folder = engine, folder
        self._pool = EnginePool(sampler=engine.sampler, sampler_options=SAMPLERS[engine.sampler](engine))

    def identity(self, source: Source) -> str:
        """Digest of what the model's replies depend on beside the prompt."""
        return digest_of(chat_model_of(source, self._engine, self._pool, label="judge").identity)

    def chat(self, source: Source, *, label: str) -> KeptChat:
        """The model; it is loaded, or connected to, when a prompt needs it."""
        speaker = chat_model_of(source, self._engine, self._pool, label=label)
        if isinstance(source, EndpointModel):
            ask = as_they_come(lambda: cast(Endpoint, speaker.open()))
        else:
            ask = in_batches(speaker.open)
        return KeptChat(name=speaker.name, identity=self.identity(source), ask=ask, folder=self._folder / label)


def plan_of(config: RunConfig | None, work: Path, *, judge: str = "", catalogue: str = "", workers: int = 1) -> Plan:
    """The plan of a configuration, or of the defaults, which need no model.

    `judge` and `catalogue` win over the configuration. Raises ConfigError when a model cannot be had, UsageError for
    a judge that is none.
    """
    corpus = config.corpus if config else CorpusSettings()
    models = Models(config.engine if config else EngineSettings(), work / "replies")
    source = judge_source(judge) if judge else _judge_of(config)
    sizes = corpus.chunk
    steps = SourceConfig(
        choice=choice_of(corpus.convert, work),
        structure=corpus.structure,
        reader=_reader(corpus, config, source, models),
        splitter=sizes.mode,
        chunk=sizes,
    )
    tokenizer = DESCRIPTION
    if config is not None:
        folder = anchor_folder(config.anchor)
        steps = replace(steps, count=_counter(folder), tokenizer=anchor_digest(folder))
        tokenizer = f"the tokenizer of {folder.name}"
    build = BuildConfig(
        source=steps,
        judge=_judge(source, config, models),
        overlap=_overlap(config) if config else None,
        workers=workers,
    )
    own = CatalogueSettings(type="local", url=catalogue, licences=corpus.catalogue.licences) if catalogue else None
    if own and config:
        own = corpus.catalogue.model_copy(update={"type": "local", "url": catalogue})
    return Plan(build=build, tokenizer=tokenizer, catalogue=own or corpus.catalogue, config=config, models=models)


def judge_source(text: str) -> JudgeSource:
    """A judge as a command names it: none, rules, openai:MODEL@URL, or a model's folder."""
    if text == "none":
        return config_pool.NoJudge(type="none")
    if text == "rules":
        return config_pool.RuleJudge(type="rules")
    if text.startswith("openai:"):
        address = parse_address(text)
        return EndpointModel(type="endpoint", model=address.model, url=address.url)
    if (Path(text) / "config.json").is_file():
        return FolderAnchor(type="folder", path=text)
    raise UsageError(
        f"--judge {text}: unknown", hint="none, rules, openai:MODEL@http://host:port/v1, or a model folder"
    )


def _judge_of(config: RunConfig | None) -> JudgeSource:
    if config is None:
        return config_pool.NoJudge(type="none")
    return config.corpus.judge or config.anchor


def _judge(source: JudgeSource, config: RunConfig | None, models: Models) -> Judge | None:
    if isinstance(source, config_pool.NoJudge):
        return None
    if isinstance(source, config_pool.RuleJudge):
        return RuleJudge()
    template = prompt_of("judge_chunk", config.prompts if config else "paper")
    tokens = (config.corpus if config else CorpusSettings()).judge_tokens
    return ModelJudge(model=models.chat(source, label="judge"), template=template, max_tokens=tokens)


def _reader(
    corpus: CorpusSettings, config: RunConfig | None, judge: JudgeSource, models: Models
) -> HeadingReader | None:
    """The model that reads headings: the judge's, or the anchor where the judge is none."""
    if corpus.structure != "model" or config is None:
        return None
    source = config.anchor if isinstance(judge, config_pool.RuleJudge | config_pool.NoJudge) else judge
    template = prompt_of("find_boundaries", config.prompts)
    identity = digest_of([models.identity(source), template_digest(template)])
    return HeadingReader(model=models.chat(source, label="structure"), template=template, identity=identity)


def _counter(folder: Path) -> Callable[[str], int]:
    """Tokens by the model's tokenizer, which is loaded when the first text is counted."""

    @cache
    def encode() -> Callable[[str], list[int]]:
        from infuser_core.engines.hf.renderer import Renderer

        return Renderer(folder).encode

    return lambda text: len(encode()(text))


def _overlap(config: RunConfig) -> OverlapPlan:
    """Dev, validation and benchmark questions, and the references. What cannot be had is named and not compared."""
    rules = config.corpus.overlap
    loaders: dict[str, Callable[[], Sequence[Question]]] = {
        "dev": lambda: dev_set(config),
        "validation": lambda: load_questions(
            config.data.validation, seed=config.seed, evaluated=config.evaluate.benchmarks
        ),
    }
    for benchmark in config.evaluate.benchmarks:
        label = f"benchmark {benchmark.label or benchmark.name}"
        loaders[label] = lambda benchmark=benchmark: plugins.benchmark(benchmark.name)(benchmark)  # type: ignore[misc]
    questions: dict[str, Sequence[Question]] = {}
    absent: dict[str, str] = {}
    for name, load in loaders.items():
        try:
            questions[name] = load()
        except InfuserError as error:
            absent[name] = error.message
    return OverlapPlan(
        config=overlap_of(rules),
        questions=questions,
        references=[Path(path) for path in rules.references],
        matched=rules.matched,
        reference_matched=rules.reference_matched,
        absent=absent,
    )


def dev_set(config: RunConfig) -> list[Question]:
    """The development questions."""
    return load_questions(config.data.dev, seed=config.seed, evaluated=config.evaluate.benchmarks)


def taxonomy_of(plan: Plan, progress: Progress) -> Taxonomy:
    """The dev set's pairs: its own labels, or the catalogue model's. Replies are kept apart from all others.

    Without a configuration there is no dev set: no pair, and everything that a catalogue offers is wanted.
    """
    if plan.config is None:
        return Taxonomy(topics=[], assignments=[], merges=[], calls=[])
    librarian: Librarian | None = None
    if plan.catalogue.model is not None:
        model = plan.models.chat(plan.catalogue.model, label="taxonomy")
        librarian = configured.librarian_of(model, plan.config.prompts)
    return extract(dev_set(plan.config), librarian, progress=progress)


def wish_of(plan: Plan, topics: Sequence[Topic]) -> Wish:
    """What is looked for in the catalogues. Of the dev set it holds the pairs alone."""
    agent = None
    if plan.catalogue.model is not None and plan.config is not None:
        agent = configured.agent_of(plan.models.chat(plan.catalogue.model, label="search"), plan.config.prompts)
    return Wish(
        topics=topics,
        settings=plan.catalogue,
        agent=agent,
        web_search=settings.web_search_command(),
        contact=settings.contact(),
    )
