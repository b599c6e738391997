"""Phase 2a: the generator writes questions with answers from a batch of documents (Algorithm 2, phase 2)."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from infuser_core.config.recorded import Mark
from infuser_core.config.run import QuestionSettings, RunConfig, SamplingSettings
from infuser_core.cotrain.phases.allocate import Budget, draw_batch
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.phases.parts.few_shot import (
    ExamplePool,
    aim_facts,
    draw_program,
    example_facts,
    render_examples,
    render_prompt,
)
from infuser_core.cotrain.route import Route, blank_routes, find_route
from infuser_core.errors import DocumentError
from infuser_core.evaluation.answering import TOO_LONG, template_digest
from infuser_core.evaluation.resumable_sampling import Drawn, SavedRows, sample_resumably
from infuser_core.plugins import MAIN_ROUTE, find_object
from infuser_core.prompts.reasoning import reply_text
from infuser_core.prompts.templates import load_template
from infuser_core.protocols import Completion, Progress, PromptGroup, Sampler, SamplingParams, no_progress
from infuser_core.schemas import Document, Question, QuestionLabel, Role, Rollout
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.grading import as_text, grading_of

VERSION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateSettings:
    """Settings that generated questions depend on."""

    prompts: str
    """Prompt profile."""
    prompt_digest: str
    """Digest of the template of the run's main route."""
    sampling: SamplingSettings
    """Temperature, top-p, top-k."""
    vllm: Annotated[Mapping[str, Any], Mark.NEUTRAL] = field(default_factory=dict)
    """`engine.vllm`, which may change the distribution."""
    documents: int
    """B: documents of a batch."""
    frozen_batch: bool
    """Whether every iteration draws the first one's documents."""
    group_size: int
    """n: texts per document."""
    prompt_tokens: int
    """Prompt limit, tokens."""
    max_tokens: int
    """Response limit, tokens."""
    question: QuestionSettings
    """Rules for a valid question."""
    route: str
    """Route of every document; empty for each document's own."""
    other_prompts: Mapping[str, str]
    """Digests of the templates of other routes that rows of the pool follow."""
    examples: Mapping[str, Any]
    """Number, source and content of the examples in the prompts; empty without any."""
    aims: Mapping[str, Any]
    """Accuracies that the documents aim at in turn; empty without any."""
    shares: Mapping[str, Any]
    """Constant shares of the batch by arm, and the field that names a document's arm; empty unless the budget's mode
    is `shares`."""
    writer: Mapping[str, str]
    """Identity of a writer that is not a checkpoint; empty for the generator's checkpoint."""
    batch: Sequence[str]
    """Documents of the batch if exclusions change it, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedQuestions:
    """Rollouts of the generator, valid or not, and the valid questions Q_phi."""

    rollouts: list[Rollout]
    """n per document with a generator's route, in document order."""
    questions: list[Question]
    """Valid questions in rollout order, then those that rows of the batch carry, which have no rollout."""
    labels: list[QuestionLabel]
    """Labels by the configured oracle, if any, for the report alone."""
    earlier: list[Question]
    """The newest questions of all iterations so far, which later prompts draw from; empty if none do."""


def settings_of(config: RunConfig, *, writer: Mapping[str, str] | None = None, iteration: int = 0) -> GenerateSettings:
    """Settings of a run that this phase depends on; `with_pool` adds those that depend on the pool."""
    cotrain = config.cotrain
    names = {*(each.route for each in config.data.problems), *blank_routes(config)}
    return GenerateSettings(
        prompts=config.prompts,
        prompt_digest=route_digest(cotrain.route or MAIN_ROUTE, config.prompts),
        sampling=cotrain.sampling.as_sampling(),
        vllm=config.engine.vllm,
        documents=cotrain.documents,
        frozen_batch=cotrain.frozen_batch,
        group_size=cotrain.group_size,
        prompt_tokens=cotrain.prompt_tokens,
        max_tokens=cotrain.generator_tokens,
        question=cotrain.question,
        route=cotrain.route,
        other_prompts=_other_prompts(names - {cotrain.route or MAIN_ROUTE}, config),
        examples=example_facts(config),
        aims=aim_facts(config, iteration),
        shares={"by": cotrain.budget.by, **cotrain.budget.shares} if cotrain.budget.mode == "shares" else {},
        writer=writer or {},
        batch=[],
    )


def depends_on_pool(config: RunConfig) -> bool:
    """Whether the settings depend on the pool's rows: on the routes of a published pool, or on exclusions."""
    rule = config.corpus.exclude
    return bool(rule.sources or rule.documents or (config.corpus.pool and not config.cotrain.route))


def with_pool(
    settings: GenerateSettings, config: RunConfig, pool: Sequence[Document], *, iteration: int, budget: Budget | None
) -> GenerateSettings:
    """Add the routes of the pool's rows to the settings and, if exclusions change it, the batch."""
    names = {*(each.route for each in config.data.problems), *blank_routes(config)}
    if config.corpus.pool and not settings.route:
        names |= {row.prompt_type for row in pool}
    number = 0 if settings.frozen_batch else iteration
    draw_from = partial(draw_batch, pool, settings.documents, seed=config.seed, iteration=number, budget=budget)
    batch = draw_from(exclude=excluded_documents(config, pool))
    changed = [] if batch == draw_from() else [document.document_id for document in batch]
    main = settings.route or MAIN_ROUTE
    return replace(settings, other_prompts=_other_prompts(names - {main}, config), batch=changed)


def excluded_documents(config: RunConfig, pool: Sequence[Document]) -> frozenset[str]:
    """Ids of the documents that the configuration excludes, one by one or by textbook."""
    rule = config.corpus.exclude
    return frozenset(
        row.document_id for row in pool if row.document_id in rule.documents or row.source_id in rule.sources
    )


def _other_prompts(names: Collection[str], config: RunConfig) -> dict[str, str]:
    digests = {name: route_digest(name, config.prompts) for name in sorted(names)}
    return {name: digest for name, digest in digests.items() if digest}


def route_digest(name: str, profile: str) -> str:
    """Digest of a route's template, followed by the route's version if it is not 1; empty without a template."""
    route = find_route(name)
    if not route.template:
        return ""
    digest = template_digest(load_template(route.template, profile=profile))
    return digest if route.version == 1 else f"{digest}/{route.version}"


def generate_questions(
    pool: Sequence[Document],
    generator: Sampler | None,
    settings: GenerateSettings,
    *,
    checkpoint_id: str,
    seed: int,
    iteration: int,
    exclude: Collection[str] = (),
    budget: Budget | None = None,
    problems: Sequence[Question] = (),
    examples: ExamplePool | None = None,
    earlier: Sequence[Question] = (),
    saved_rows: SavedRows[Drawn] | None = None,
    progress: Progress = no_progress,
) -> GeneratedQuestions:
    """Sample n texts per document of the batch; parse each into a question, or store the reason why it is none.

    A document's route is that of the settings or, if that is empty, its own prompt type. Documents of `problems`,
    joined by document id, always use their own. A row that carries its question contributes it without a rollout; if
    all rows do, no generator is needed. `examples` precede the prompts; a route that takes a function draws it from
    them. `earlier` are questions of earlier iterations, to which the new ones are added.
    Raises DocumentError for a row that should carry a question and does not.
    """
    number = 0 if settings.frozen_batch else iteration
    batch = draw_batch(pool, settings.documents, seed=seed, iteration=number, exclude=exclude, budget=budget)
    carrying = {problem.document_id for problem in problems}
    routes: dict[str, Route] = {}
    for document in batch:
        is_own = document.document_id in carrying or not settings.route
        routes[document.document_id] = find_route(document.prompt_type if is_own else settings.route)
    carried = _carried_questions(batch, problems, routes, iteration)
    documents = [document for document in batch if routes[document.document_id].read]
    if not documents:
        return GeneratedQuestions(rollouts=[], questions=carried, labels=[], earlier=list(earlier))
    assert generator is not None, "rows that carry no question need a generator"
    for place, document in enumerate(documents):
        if routes[document.document_id].takes_program:
            program = draw_program(examples, document.document_id, seed=seed, iteration=number)
            documents[place] = replace(document, text=program)
    aims = settings.aims.get("aims") or [None]
    aim_of = {document.document_id: aims[(number + place) % len(aims)] for place, document in enumerate(documents)}
    groups = []
    for document in documents:
        name, route = document.document_id, routes[document.document_id]
        text = render_examples(examples, name, seed=seed, iteration=number, template=route.examples_template)
        turns = render_prompt(route, document, settings.prompts, examples_text=text, aim=aim_of[name])
        seeds = [seed_of(seed, f"generate_questions/{iteration}", name, j) for j in range(settings.group_size)]
        groups.append(PromptGroup(group_id=name, token_ids=generator.tokenizer.render(turns), seeds=seeds))
    fitting = [group for group in groups if len(group.token_ids) <= settings.prompt_tokens]
    params = SamplingParams(max_tokens=settings.max_tokens, **settings.sampling.model_dump())
    completions = sample_resumably(fitting, generator, params, saved_rows=saved_rows, progress=progress)
    rollouts, questions = _parse_completions(
        documents, groups, completions, generator, routes, aim_of, settings, iteration, checkpoint_id
    )
    labeller = settings.question.labeller
    label = find_object(labeller, key="cotrain.question.labeller") if labeller else None
    count: int = settings.examples.get("earlier", 0)
    return GeneratedQuestions(
        rollouts=rollouts,
        questions=[*questions, *carried],
        labels=[label(question) for question in questions] if label else [],
        earlier=[*earlier, *questions][-count:] if count else [],
    )


def _carried_questions(
    batch: Sequence[Document], problems: Sequence[Question], routes: Mapping[str, Route], iteration: int
) -> list[Question]:
    """The questions that rows of the batch carry, under identifiers of this iteration."""
    problem_of = {problem.document_id: problem for problem in problems}
    questions = []
    for document in batch:
        name, carry = document.document_id, routes[document.document_id].carry
        if carry is None:
            continue
        if name not in problem_of:
            raise DocumentError(
                f"document {name} has prompt_type {document.prompt_type} and carries no question",
                hint="problems with their answers come from data.problems; in a pool, use another prompt_type",
            )
        # Like the identifier of a generated question: iteration, row, its only sample, a digest of the text.
        digest = hashlib.sha256(document.text.encode()).hexdigest()[:8]
        questions.append(carry(problem_of[name], f"{iteration}/{name}/0-{digest}"))
    return questions


def _parse_completions(
    documents: Sequence[Document],
    groups: Sequence[PromptGroup],
    completions: Mapping[str, list[Completion]],
    generator: Sampler,
    routes: Mapping[str, Route],
    aims: Mapping[str, float | None],
    settings: GenerateSettings,
    iteration: int,
    checkpoint_id: str,
) -> tuple[list[Rollout], list[Question]]:
    """Every text as a rollout, and the valid questions; a prompt that did not fit has rollouts without tokens."""
    name = settings.question.oracle
    oracle = find_object(name, key="cotrain.question.oracle") if name else None
    rollouts: list[Rollout] = []
    questions: list[Question] = []
    for document, group in zip(documents, groups, strict=True):
        read, aim = routes[document.document_id].read, aims[document.document_id]
        assert read is not None, document.document_id
        for index, completion in enumerate(completions.get(group.group_id, [None] * settings.group_size)):
            text = reply_text(generator.tokenizer, group.token_ids, completion.token_ids) if completion else ""
            rollout_id = f"{iteration}/{document.document_id}/{index}"
            result = read(text, document, rollout_id, settings.question) if completion else Malformed(reason=TOO_LONG)
            if isinstance(result, Question):
                if aim is not None:
                    result = replace(result, grading=as_text(replace(grading_of(result), aim=f"{aim:g}")))
                questions.append(oracle(result) if oracle else result)
            malformed = result.reason if isinstance(result, Malformed) else ""
            rollouts.append(
                Rollout(
                    rollout_id=rollout_id,
                    group_id=group.group_id,
                    sample_index=index,
                    role=Role.GENERATOR,
                    checkpoint_id=checkpoint_id,
                    prompt_token_ids=group.token_ids if completion else [],
                    token_ids=completion.token_ids if completion else [],
                    sampler_logprobs=completion.logprobs if completion else [],
                    text=text,
                    finish_reason=completion.finish_reason if completion else TOO_LONG,
                    verdict="invalid" if malformed else "valid",
                    reward=0.0,
                    malformed_reason=str(malformed),
                )
            )
    return rollouts, questions
