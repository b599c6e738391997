"""Sample a solver's answers to questions and judge them with verifiers, for training and evaluation."""

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
from infuser_core.evaluation.resumable_sampling import Drawn, SavedRows, sample_resumably
from infuser_core.prompts.reasoning import reply_text
from infuser_core.prompts.templates import Template, load_template, render_question
from infuser_core.protocols import (
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
    """Settings that sampled answers depend on, besides the questions and the checkpoint."""

    prompts: str
    """Prompt profile."""
    prompt_digest: str
    """Digest of the templates: an edited prompt changes the recipe."""
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
    """Settings for answers that are sampled and judged at once."""

    box: str
    """Which boxed answer counts."""


OWN, OFF = "own", "off"
"""Values of `Phrasing.chat` other than a Jinja template: the model's own template, or turns as plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A worked example: a question and the assistant's reply."""

    question: Question
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrasing:
    """Few-shot examples, system turn and chat template of a prompt; the default does not change the prompt profile."""

    system: str | None = None
    """Replaces the profile's system turn; empty for none."""
    examples: tuple[Example, ...] = ()
    """Turns before the question."""
    chat: str = OWN
    """own, off, or a chat template in Jinja."""

    @property
    def digest(self) -> str:
        """Short digest for recipes; empty for the default."""
        return "" if self == Phrasing() else hashlib.sha256(repr(self).encode()).hexdigest()[:16]


AS_WRITTEN = Phrasing()


def solver_templates(profile: str, prompts: Iterable[str] = ()) -> list[Template]:
    """Load the templates of the solver's prompts, including the additional ones named in `prompts`.

    Templates that a profile lacks are left out until a question needs them; only the one for choices is required.
    """
    templates = [load_template(CHOICES, profile=profile)]
    for name in (SHORT_ANSWER, *sorted({*prompts} - {CHOICES, SHORT_ANSWER})):
        with suppress(ConfigError):
            templates.append(load_template(name, profile=profile))
    return templates


def render_messages(question: Question, *, prompts: str, phrasing: Phrasing = AS_WRITTEN) -> Messages:
    """Render the chat turns that ask a question, after any worked examples."""
    *system, turn = _turns_of(question, prompts)
    if phrasing.system is not None:
        system = [{"role": "system", "content": phrasing.system}] if phrasing.system else []
    for example in phrasing.examples:
        system += [_turns_of(example.question, prompts)[-1], {"role": "assistant", "content": example.reply}]
    return [*system, turn]


def _turns_of(question: Question, prompts: str) -> Messages:
    template = load_template(prompt_name(question), profile=prompts)
    return template.messages(question=render_question(question.text, question.choices))


def template_digest(*templates: Template, phrasing: Phrasing = AS_WRITTEN) -> str:
    """Short digest of prompt texts, for recipes."""
    texts = ["\x1f".join([t.system, t.user, *chain(*t.examples)]) for t in templates]
    joined = "\x1e".join(texts) + phrasing.digest
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


class Draw(TypedDict):
    """Keyword arguments of `answer_questions` that the phases pass through unchanged."""

    checkpoint_id: str
    """The checkpoint that answers, for its rows."""
    seed: int
    """Seed of the run."""
    saved_rows: NotRequired[SavedRows[Drawn] | None]
    """Responses on disk that survive a kill."""
    progress: NotRequired[Progress]


def answer_questions(
    questions: Sequence[Question], sampler: Sampler, settings: AnswerSettings, *, scope: str, **draw: Unpack[Draw]
) -> list[Rollout]:
    """Sample and verify `settings.samples` answers per question, in question order.

    `scope` names the draw ("rollout_dev/3"): seeds are a function of (seed, scope, question, sample) alone. Answers in
    `saved_rows` are not sampled again.
    """
    return _judge(_sample_answers(questions, sampler, settings, scope=scope, **draw), questions, settings.box)


TOO_LONG = "prompt_too_long"
"""Finish reason of a question whose prompt exceeds the limit, which is not asked."""


def _sample_answers(
    questions: Sequence[Question],
    sampler: Sampler,
    settings: AnswerSettings,
    *,
    checkpoint_id: str,
    seed: int,
    scope: str,
    saved_rows: SavedRows[Drawn] | None = None,
    progress: Progress = no_progress,
) -> list[Rollout]:
    """Answers in question order, not yet judged; a question that did not fit counts as unanswered."""
    prompts = [sampler.tokenizer.render(render_messages(question, prompts=settings.prompts)) for question in questions]
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
    completions = sample_resumably(fitting, sampler, params, saved_rows=saved_rows, progress=progress)
    return [
        Rollout(
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
        for question, prompt in zip(questions, prompts, strict=True)
        for index, completion in enumerate(completions.get(question.question_id, [None] * settings.samples))
    ]


def _judge(rollouts: Sequence[Rollout], questions: Sequence[Question], preset: str) -> list[Rollout]:
    """The rollouts with verdict and reward."""
    by_id = {question.question_id: question for question in questions}
    answered = [row for row in rollouts if row.finish_reason != TOO_LONG]
    jobs = [Job(response=row.text, question=by_id[row.group_id]) for row in answered]
    findings = iter(check_all(jobs, preset=preset))
    verdicts = [next(findings).verdict if row.finish_reason != TOO_LONG else row.verdict for row in rollouts]
    return [
        replace(row, verdict=verdict, reward=solver_reward(verdict))
        for row, verdict in zip(rollouts, verdicts, strict=True)
    ]
