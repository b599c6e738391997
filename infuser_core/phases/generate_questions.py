"""Phase 2a: the generator writes question-answer pairs from a batch of documents (Algorithm 2, phase 2)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from infuser_core.config import QuestionSettings, RunConfig, SamplingSettings
from infuser_core.engines.protocols import Completion, Progress, PromptGroup, Sampler, SamplingParams, no_progress
from infuser_core.parsing import Malformed, parse, to_question
from infuser_core.phases.answering import template_digest
from infuser_core.phases.batch import draw_documents
from infuser_core.phases.drawing import Kept, draw
from infuser_core.prompts.load import load
from infuser_core.schemas import Document, Question, QuestionLabel, Role, Rollout
from infuser_core.seeding import seed_of

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateSettings:
    """What generated questions depend on."""

    prompts: str
    """Prompt profile."""
    prompt_digest: str
    """Digest of the generator's template."""
    sampling: SamplingSettings
    """Temperature, top-p, top-k."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Rollouts of the generator, valid or not, and the valid questions Q_phi."""

    rollouts: list[Rollout]
    """n per document, in document order."""
    questions: list[Question]
    """Valid questions, in rollout order."""
    labels: list[QuestionLabel]
    """An oracle's labels where the configuration names one, for the report alone."""


def settings_of(config: RunConfig) -> GenerateSettings:
    """The sub-configuration that the phase is a function of."""
    cotrain = config.cotrain
    return GenerateSettings(
        prompts=config.prompts,
        prompt_digest=template_digest(load("generate_mcq", profile=config.prompts)),
        sampling=cotrain.sampling,
        documents=cotrain.documents,
        frozen_batch=cotrain.frozen_batch,
        group_size=cotrain.group_size,
        prompt_tokens=cotrain.prompt_tokens,
        max_tokens=cotrain.generator_tokens,
        question=cotrain.question,
    )


def generate_questions(
    pool: Sequence[Document],
    generator: Sampler,
    settings: GenerateSettings,
    *,
    checkpoint_id: str,
    seed: int,
    iteration: int,
    exclude: Collection[str] = (),
    kept: Kept | None = None,
    progress: Progress = no_progress,
) -> Generated:
    """n texts per document, parsed into questions or kept with the reason why they are none."""
    batch = draw_documents(
        pool, settings.documents, seed=seed, iteration=0 if settings.frozen_batch else iteration, exclude=exclude
    )
    template = load("generate_mcq", profile=settings.prompts)
    oracle: Callable[[Question], Question] | None = _named(settings.question.oracle)
    scope = f"generate_questions/{iteration}"
    groups = [
        PromptGroup(
            group_id=document.document_id,
            token_ids=generator.tokenizer.render(template.messages(text=document.text)),
            seeds=[seed_of(seed, scope, document.document_id, index) for index in range(settings.group_size)],
        )
        for document in batch
    ]
    fitting = [group for group in groups if len(group.token_ids) <= settings.prompt_tokens]
    params = SamplingParams(max_tokens=settings.max_tokens, **settings.sampling.model_dump())
    drawn = draw(fitting, generator, params, kept=kept, progress=progress)
    rollouts: list[Rollout] = []
    questions: list[Question] = []
    for document, group in zip(batch, groups, strict=True):
        for index, completion in enumerate(drawn.get(group.group_id, [None] * settings.group_size)):
            text = generator.tokenizer.decode(completion.token_ids) if completion else ""
            rollout_id = f"{iteration}/{document.document_id}/{index}"
            result = _read(text, document, rollout_id, completion is not None, settings.question)
            if isinstance(result, Question):
                questions.append(oracle(result) if oracle else result)
            rollouts.append(_rollout(rollout_id, index, group, completion, text, result, checkpoint_id))
    return Generated(rollouts=rollouts, questions=questions, labels=_labels(questions, settings.question.labeller))


def _read(
    text: str, document: Document, rollout_id: str, sampled: bool, rules: QuestionSettings
) -> Question | Malformed:
    if not sampled:
        return Malformed(reason="prompt_too_long")
    parsed = parse(text, min_choices=rules.min_choices, max_choices=rules.max_choices)
    if isinstance(parsed, Malformed):
        return parsed
    return to_question(parsed, rollout_id=rollout_id, document=document, choice_order=rules.choice_order)


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
        finish_reason=completion.finish_reason if completion else "prompt_too_long",
        verdict="invalid" if malformed else "valid",
        reward=0.0,
        malformed_reason=str(malformed),
    )


def _labels(questions: Sequence[Question], name: str) -> list[QuestionLabel]:
    label: Callable[[Question], QuestionLabel] | None = _named(name)
    return [label(question) for question in questions] if label else []


def _named(name: str) -> Any:
    """What `package.module:name` names; None for an empty name."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute) if name else None
