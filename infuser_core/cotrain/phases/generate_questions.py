"""Phase 2a: question-answer pairs from a batch of documents, each by its route (Algorithm 2, phase 2)."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from infuser_core.config.recorded import Mark
from infuser_core.config.run import QuestionSettings, RunConfig, SamplingSettings
from infuser_core.cotrain.phases.allocate import Budget, draw_batch
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.phases.parts.shown import Examples, aim_facts, example_facts, messages_of, program_of, text_of
from infuser_core.cotrain.route import Route, blank_routes, find_route
from infuser_core.errors import DocumentError
from infuser_core.evaluation.answering import TOO_LONG, template_digest
from infuser_core.evaluation.drawing import Drawn, Kept, draw
from infuser_core.plugins import MAIN_ROUTE, find_object
from infuser_core.prompts.load import load
from infuser_core.prompts.reasoning import reply_text
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
    """Digest of the template of the run's own route."""
    sampling: SamplingSettings
    """Temperature, top-p, top-k."""
    vllm: Annotated[Mapping[str, Any], Mark.NEUTRAL] = field(default_factory=dict)
    """`engine.vllm`, which may change the distribution."""
    documents: int
    """B."""
    frozen_batch: bool
    """True draws the first iteration's documents every time."""
    group_size: int
    """n."""
    prompt_tokens: int
    """Prompt limit, tokens."""
    max_tokens: int
    """Response limit, tokens."""
    question: QuestionSettings
    """Rules for a valid question."""
    route: str
    """Route of every document; empty for each document's own."""
    other_prompts: Mapping[str, str]
    """Digests of the templates of routes that rows of the pool follow besides."""
    examples: Mapping[str, Any]
    """Number, origin and content of the examples in the prompts; empty without any."""
    aims: Mapping[str, Any]
    """Accuracies that the documents aim at in turn; empty where they aim at none."""
    shares: Mapping[str, Any]
    """Constant shares of the batch by arm, and the field that names a document's arm; empty for the whole pool."""
    writer: Mapping[str, str]
    """Identity of a writer that is no checkpoint; empty for the generator's."""
    batch: Sequence[str]
    """Documents of a batch that exclusions change; empty for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Rollouts of the generator, valid or not, and the valid questions Q_phi."""

    rollouts: list[Rollout]
    """n per document that a generator wrote from, in document order."""
    questions: list[Question]
    """Valid questions in rollout order, then those that rows of the batch carry, which have no rollout."""
    labels: list[QuestionLabel]
    """An oracle's labels where the configuration names one, for the report alone."""
    earlier: list[Question]
    """The newest questions of the iterations so far, which later prompts draw from; empty where none do."""


def settings_of(config: RunConfig, *, writer: Mapping[str, str] | None = None, iteration: int = 0) -> GenerateSettings:
    """The sub-configuration that the phase is a function of, whatever is in the pool."""
    cotrain = config.cotrain
    names: set[str] = {*(each.route for each in config.data.problems), *blank_routes(config)}
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
    """Whether rows of the pool enter the settings: routes of a published pool, or exclusions."""
    rule = config.corpus.exclude
    return bool(rule.sources or rule.documents or (config.corpus.pool and not config.cotrain.route))


def with_pool(
    settings: GenerateSettings, config: RunConfig, pool: Sequence[Document], *, iteration: int, budget: Budget | None
) -> GenerateSettings:
    """The settings with what they take from the pool's rows."""
    names: set[str] = {*(each.route for each in config.data.problems), *blank_routes(config)}
    if config.corpus.pool and not settings.route:
        names |= {row.prompt_type for row in pool}
    number = 0 if settings.frozen_batch else iteration
    draw_from = partial(draw_batch, pool, settings.documents, seed=config.seed, iteration=number, budget=budget)
    batch = draw_from(exclude=excluded(config, pool))
    changed = [] if batch == draw_from() else [document.document_id for document in batch]
    own = settings.route or MAIN_ROUTE
    return replace(settings, other_prompts=_other_prompts(names - {own}, config), batch=changed)


def excluded(config: RunConfig, pool: Sequence[Document]) -> frozenset[str]:
    """Documents of the pool that the configuration excludes, by themselves or with their textbook."""
    rule = config.corpus.exclude
    return frozenset(
        row.document_id for row in pool if row.document_id in rule.documents or row.source_id in rule.sources
    )


def _other_prompts(names: Collection[str], config: RunConfig) -> dict[str, str]:
    digests = {name: route_digest(name, config.prompts) for name in sorted(names)}
    return {name: digest for name, digest in digests.items() if digest}


def route_digest(name: str, profile: str) -> str:
    """Digest of a route's template, with the route's version from the second on; empty for a route without one."""
    found = find_route(name)
    if not found.template:
        return ""
    digest = template_digest(load(found.template, profile=profile))
    return digest if found.version == 1 else f"{digest}/{found.version}"


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
    examples: Examples | None = None,
    earlier: Sequence[Question] = (),
    kept: Kept[Drawn] | None = None,
    progress: Progress = no_progress,
) -> Generated:
    """n texts per document, parsed into questions or kept with the reason why they are none.

    Documents follow the settings' route, or where it is empty their own prompt type. Rows of `problems`, joined by
    document id, always follow their own; a row that carries its question gives that one, and no rollout: where all
    rows do, there need be no generator. `examples` stand before the prompts; a route that takes a function is given
    one of theirs. `earlier` are questions of the iterations before this one, which the new ones join.
    Raises DocumentError for a row that should carry a problem and has none.
    """
    number = 0 if settings.frozen_batch else iteration
    batch = draw_batch(pool, settings.documents, seed=seed, iteration=number, exclude=exclude, budget=budget)
    ways = _ways(batch, problems, settings.route)
    given = _given(batch, problems, ways, iteration)
    writing = [document for document in batch if ways[document.document_id].read]
    if not writing:
        return Generated(rollouts=[], questions=given, labels=[], earlier=list(earlier))
    assert generator is not None, "rows without a question of their own need a generator"
    writing = [_with_program(row, ways, examples, seed=seed, iteration=number) for row in writing]
    aims = settings.aims.get("aims") or [None]
    aim_of = {row.document_id: aims[(number + place) % len(aims)] for place, row in enumerate(writing)}

    def prompt_of(row: Document) -> list[int]:
        way = ways[row.document_id]
        shown = text_of(examples, row.document_id, seed=seed, iteration=number, template=way.shows)
        turns = messages_of(way, row, settings.prompts, shown=shown, aim=aim_of[row.document_id])
        return generator.tokenizer.render(turns)

    seeds = partial(seed_of, seed, f"generate_questions/{iteration}")
    size = range(settings.group_size)
    groups = [
        PromptGroup(
            group_id=(name := row.document_id), token_ids=prompt_of(row), seeds=[seeds(name, index) for index in size]
        )
        for row in writing
    ]
    fitting = [group for group in groups if len(group.token_ids) <= settings.prompt_tokens]
    params = SamplingParams(max_tokens=settings.max_tokens, **settings.sampling.model_dump())
    drawn = draw(fitting, generator, params, kept=kept, progress=progress)
    rollouts, written = _read_all(writing, groups, drawn, generator, ways, aim_of, settings, (iteration, checkpoint_id))
    return Generated(
        rollouts=rollouts,
        questions=[*written, *given],
        labels=_labels(written, settings.question.labeller),
        earlier=_newest([*earlier, *written], settings),
    )


def _read_all(
    writing: Sequence[Document],
    groups: Sequence[PromptGroup],
    drawn: Mapping[str, list[Completion]],
    generator: Sampler,
    ways: Mapping[str, Route],
    aims: Mapping[str, float | None],
    settings: GenerateSettings,
    origin: tuple[int, str],
) -> tuple[list[Rollout], list[Question]]:
    """Every text as a rollout, and the questions among them; `origin` is the iteration and the writer."""
    iteration, checkpoint_id = origin
    name = settings.question.oracle
    oracle = find_object(name, key="cotrain.question.oracle") if name else None
    rollouts: list[Rollout] = []
    written: list[Question] = []
    for document, group in zip(writing, groups, strict=True):
        read = ways[document.document_id].read
        assert read is not None, document.document_id
        for index, completion in enumerate(drawn.get(group.group_id, [None] * settings.group_size)):
            text = reply_text(generator.tokenizer, group.token_ids, completion.token_ids) if completion else ""
            rollout_id = f"{iteration}/{document.document_id}/{index}"
            result = read(text, document, rollout_id, settings.question) if completion else Malformed(reason=TOO_LONG)
            if isinstance(result, Question):
                aimed = _aimed(result, aims[document.document_id])
                written.append(oracle(aimed) if oracle else aimed)
            rollouts.append(_rollout(rollout_id, index, group, completion, text, result, checkpoint_id))
    return rollouts, written


def _newest(questions: list[Question], settings: GenerateSettings) -> list[Question]:
    """The questions that the next iteration's prompts draw from."""
    count: int = settings.examples.get("earlier", 0)
    return questions[-count:] if count else []


def _with_program(
    row: Document, ways: Mapping[str, Route], examples: Examples | None, *, seed: int, iteration: int
) -> Document:
    """The row, with a function for its text where its route asks about one."""
    if not ways[row.document_id].takes_program:
        return row
    return replace(row, text=program_of(examples, row.document_id, seed=seed, iteration=iteration))


def _aimed(question: Question, aim: float | None) -> Question:
    """The question with the accuracy that its writer aimed at."""
    return (
        question if aim is None else replace(question, grading=as_text(replace(grading_of(question), aim=f"{aim:g}")))
    )


def _ways(batch: Sequence[Document], problems: Sequence[Question], route: str) -> dict[str, Route]:
    """Route of every document, by its id."""
    carrying = {problem.document_id for problem in problems}
    names = {
        row.document_id: row.prompt_type if row.document_id in carrying else route or row.prompt_type for row in batch
    }
    routes = {name: find_route(name) for name in names.values()}
    return {document_id: routes[name] for document_id, name in names.items()}


def _given(
    batch: Sequence[Document], problems: Sequence[Question], ways: Mapping[str, Route], iteration: int
) -> list[Question]:
    """The questions that rows of the batch carry."""
    carried = {problem.document_id: problem for problem in problems}
    found = []
    for document in batch:
        give = ways[document.document_id].given
        if give is None:
            continue
        if document.document_id not in carried:
            raise DocumentError(
                f"document {document.document_id} has prompt_type {document.prompt_type} and carries no question",
                hint="problems with their answers come from data.problems; in a pool, use another prompt_type",
            )
        found.append(give(carried[document.document_id], _identifier(iteration, document)))
    return found


def _identifier(iteration: int, document: Document) -> str:
    """Like that of a written question: the iteration, the row, its first and only sample, a digest of the text."""
    return f"{iteration}/{document.document_id}/0-{hashlib.sha256(document.text.encode()).hexdigest()[:8]}"


def _rollout(
    rollout_id: str,
    index: int,
    group: PromptGroup,
    completion: Completion | None,
    text: str,
    result: Question | Malformed,
    checkpoint_id: str,
) -> Rollout:
    malformed = result.reason if isinstance(result, Malformed) else ""
    return Rollout(
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


def _labels(questions: Sequence[Question], name: str) -> list[QuestionLabel]:
    label = find_object(name, key="cotrain.question.labeller") if name else None
    return [label(question) for question in questions] if label else []
