"""A solver answers questions and verifiers judge the answers: the part shared by training and evaluation."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, NotRequired, TypedDict, Unpack

from infuser_core.algorithm.score import solver_reward
from infuser_core.config.recorded import Mark
from infuser_core.config.run import SamplingSettings
from infuser_core.errors import ConfigError
from infuser_core.evaluation.drawing import Drawn, Kept, draw
from infuser_core.prompts.load import Template, load, render_question
from infuser_core.prompts.reasoning import reply_text
from infuser_core.protocols import (
    Completion,
    Messages,
    Progress,
    PromptGroup,
    Sampler,
    SamplingParams,
    no_progress,
)
from infuser_core.schemas import Question, Role, Rollout, Verdict
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.batch import CHOICES, SHORT_ANSWER, Job, check_all, prompt_name


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSettings:
    """Everything but the questions and the checkpoint that answers are a function of."""

    prompts: str
    """Prompt profile."""
    prompt_digest: str
    """Digest of the templates: an edited prompt is another recipe."""
    sampling: SamplingSettings
    """Temperature, top-p, top-k."""
    vllm: Annotated[Mapping[str, Any], Mark.NEUTRAL] = field(default_factory=dict)
    """`engine.vllm`, which may change the distribution."""
    samples: int
    """Responses per question."""
    prompt_tokens: int
    """Prompt limit, tokens; a longer question is not asked, and counts as unanswered."""
    max_tokens: int
    """Response limit, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings(AskSettings):
    """Settings of answers that are judged at once."""

    box: str
    """Which boxed answer counts."""


OWN, OFF = "own", "off"
"""Chat templates besides a text in Jinja: the model's own one, and turns as plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A worked example: a question with the reply that it should get."""

    question: Question
    """The question."""
    reply: str
    """The assistant's turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrasing:
    """Few-shot examples, system turn and chat template of a prompt; the default leaves the prompt profile as it is."""

    system: str | None = None
    """System turn in place of the profile's; empty for none."""
    examples: tuple[Example, ...] = ()
    """Turns in front of the question."""
    chat: str = OWN
    """own, off, or a chat template in Jinja."""

    @property
    def digest(self) -> str:
        """Short digest for recipes; empty for the default."""
        return "" if self == Phrasing() else hashlib.sha256(repr(self).encode()).hexdigest()[:16]


AS_WRITTEN = Phrasing()


def solver_templates(profile: str, prompts: Iterable[str] = ()) -> list[Template]:
    """Templates that solvers answer with, including those of the further `prompts` by name.

    A profile may lack all but the first until a question needs them.
    """
    templates = [load(CHOICES, profile=profile)]
    for name in (SHORT_ANSWER, *sorted({*prompts} - {CHOICES, SHORT_ANSWER})):
        with suppress(ConfigError):
            templates.append(load(name, profile=profile))
    return templates


def messages_of(question: Question, *, prompts: str, phrasing: Phrasing = AS_WRITTEN) -> Messages:
    """The chat turns that put a question, worked examples before it."""
    *system, turn = _turns(question, prompts)
    if phrasing.system is not None:
        system = [{"role": "system", "content": phrasing.system}] if phrasing.system else []
    for example in phrasing.examples:
        system += [_turns(example.question, prompts)[-1], {"role": "assistant", "content": example.reply}]
    return [*system, turn]


def _turns(question: Question, prompts: str) -> Messages:
    template = load(prompt_name(question), profile=prompts)
    return template.messages(question=render_question(question.text, question.choices))


def template_digest(*templates: Template, phrasing: Phrasing = AS_WRITTEN) -> str:
    """Short digest of prompt texts, for recipes."""
    texts = ["\x1f".join([t.system, t.user, *chain(*t.examples)]) for t in templates]
    joined = "\x1e".join(texts) + phrasing.digest
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


class Draw(TypedDict):
    """One draw of answers, as every phase that asks questions hands it on."""

    checkpoint_id: str
    """The checkpoint that answers, for its rows."""
    seed: int
    """Seed of the run."""
    kept: NotRequired[Kept[Drawn] | None]
    """Responses that outlive a kill."""
    progress: NotRequired[Progress]
    """Listener to the draw."""


def answer_questions(
    questions: Sequence[Question], sampler: Sampler, settings: AnswerSettings, *, scope: str, **how: Unpack[Draw]
) -> list[Rollout]:
    """Sample and verify `settings.samples` answers per question, in question order.

    `scope` names the draw ("rollout_dev/3"): seeds are a function of (seed, scope, question, sample) alone. Questions
    whose answers are in `kept` are not asked again.
    """
    return judged(draw_answers(questions, sampler, settings, scope=scope, **how), questions, settings.box)


TOO_LONG = "prompt_too_long"
"""Finish reason of a question that did not fit the prompt limit and was not asked."""


def draw_answers(
    questions: Sequence[Question],
    sampler: Sampler,
    settings: AnswerSettings,
    *,
    checkpoint_id: str,
    seed: int,
    scope: str,
    kept: Kept[Drawn] | None = None,
    progress: Progress = no_progress,
) -> list[Rollout]:
    """Answers before their verdicts, in question order."""
    prompts = [sampler.tokenizer.render(messages_of(question, prompts=settings.prompts)) for question in questions]
    fitting = [
        PromptGroup(
            group_id=question.question_id,
            token_ids=prompt,
            seeds=[seed_of(seed, scope, question.question_id, index) for index in range(settings.samples)],
        )
        for question, prompt in zip(questions, prompts, strict=True)
        if len(prompt) <= settings.prompt_tokens
    ]
    params = SamplingParams(max_tokens=settings.max_tokens, **settings.sampling.model_dump())
    completions = draw(fitting, sampler, params, kept=kept, progress=progress)
    return [
        _draft(question, index, prompt, completion, sampler, checkpoint_id)
        for question, prompt in zip(questions, prompts, strict=True)
        for index, completion in enumerate(completions.get(question.question_id, [None] * settings.samples))
    ]


def _draft(
    question: Question,
    index: int,
    prompt: list[int],
    completion: Completion | None,
    sampler: Sampler,
    checkpoint_id: str,
) -> Rollout:
    """The rollout before its verdict; a question that did not fit counts as unanswered."""
    return Rollout(
        rollout_id=f"{question.question_id}/{index}",
        group_id=question.question_id,
        sample_index=index,
        role=Role.SOLVER,
        checkpoint_id=checkpoint_id,
        prompt_token_ids=prompt if completion else [],
        token_ids=completion.token_ids if completion else [],
        sampler_logprobs=completion.logprobs if completion else [],
        text=reply_text(sampler.tokenizer, prompt, completion.token_ids) if completion else "",
        finish_reason=completion.finish_reason if completion else TOO_LONG,
        verdict=Verdict.NO_ANSWER,
        reward=0.0,
        malformed_reason="",
    )


def judged(drafts: Sequence[Rollout], questions: Sequence[Question], preset: str) -> list[Rollout]:
    """The drafts with verdict and reward."""
    by_id = {question.question_id: question for question in questions}
    answered = [row for row in drafts if row.finish_reason != TOO_LONG]
    jobs = [Job(response=row.text, question=by_id[row.group_id]) for row in answered]
    findings = iter(check_all(jobs, preset=preset))
    verdicts = [next(findings).verdict if row.finish_reason != TOO_LONG else row.verdict for row in drafts]
    return [
        replace(row, verdict=verdict, reward=solver_reward(verdict))
        for row, verdict in zip(drafts, verdicts, strict=True)
    ]
