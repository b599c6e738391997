"""Benchmarks and the validation set: questions are put to a solver, its saved responses are scored.

Batches run across benchmarks and are the same whatever was finished before: a resumed evaluation meets the same
arithmetic as an undisturbed one. Scoring needs no model, and gives the same verdicts as often as it is asked.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from infuser_core.config.run import BenchmarkSettings, RunConfig, SamplingSettings
from infuser_core.evaluation.answering import (
    AS_WRITTEN,
    TOO_LONG,
    AskSettings,
    Phrasing,
    messages_of,
    solver_templates,
    template_digest,
)
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark
from infuser_core.protocols import (
    ChatModel,
    Progress,
    PromptGroup,
    Sampler,
    SamplingParams,
    Tokenizer,
    no_progress,
)
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question, Verdict
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.batch import Job, break_ties, check_all, verifier_prompt
from infuser_core.verifiers.parts.grading import Finding

Key = tuple[str, str]
"""(benchmark label, question id)."""

MAX_RESPONSES = 512
"""Responses of one batch at most: what a kill can lose of a small model with short answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question and how often it is asked."""

    benchmark: str
    """Benchmark label."""
    question: Question
    """The question."""
    samples: int
    """Responses wanted."""
    max_tokens: int
    """Response limit, tokens."""

    @property
    def key(self) -> Key:
        """The key under which saved responses are found."""
        return self.benchmark, self.question.question_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondSettings:
    """Settings for sampling responses to benchmark questions."""

    prompts: str
    """Prompt profile."""
    sampling: SamplingSettings
    """Temperature, top-p, top-k."""
    prompt_tokens: int
    """Prompt limit, tokens; a longer question is not asked."""
    seed: int
    """Seed of the examination."""
    batch_tokens: int
    """Prompt and response tokens that one batch may come to."""
    phrasing: Phrasing = AS_WRITTEN
    """Worked examples, system turn and chat template."""


def seeds_of(ask: Ask, seed: int) -> list[int]:
    """One seed per sample: a function of (seed, benchmark, question, sample) alone, so that models are paired."""
    scope = f"evaluate/{ask.benchmark}"
    return [seed_of(seed, scope, ask.question.question_id, index) for index in range(ask.samples)]


def respond(
    asks: Sequence[Ask],
    finished: Collection[Key],
    sampler: Sampler,
    settings: RespondSettings,
    *,
    progress: Progress = no_progress,
) -> Iterator[list[BenchmarkResponse]]:
    """Batches of complete questions, to be saved as they come. What is in `finished` is not asked."""
    # Four bytes a token: lists of those of a large benchmark would take ten times as much.
    prompts = [array("i", _prompt(ask, sampler.tokenizer, settings)) for ask in asks]
    lengths = [len(prompt) for prompt in prompts]
    unasked = [ask for ask, length in zip(asks, lengths, strict=True) if length > settings.prompt_tokens]
    rows = [row for ask in unasked if ask.key not in finished for row in too_long(ask)]
    total = sum(ask.samples for ask in asks if ask.key not in finished)
    done, tokens = len(rows), 0
    if rows:
        yield rows
    for places in batches(asks, lengths, settings):
        batch = [(asks[place], prompts[place].tolist()) for place in places if asks[place].key not in finished]
        if batch:
            rows = _answers(batch, sampler, settings, partial(_moved, progress, total, done, tokens))
            done, tokens = done + len(rows), tokens + sum(row.response_tokens for row in rows)
            progress(done, total, tokens)
            yield rows


def _moved(report: Progress, total: int, before: int, spent: int, done: int, _: int, tokens: int) -> None:
    """A batch moved, which so many responses and tokens came before."""
    report(before + done, total, spent + tokens)


def batches(asks: Sequence[Ask], lengths: Sequence[int], settings: RespondSettings) -> Iterator[list[int]]:
    """Places of the questions of each batch: one response limit per batch, longest prompts first."""
    fitting = [place for place, length in enumerate(lengths) if length <= settings.prompt_tokens]
    order = sorted(fitting, key=lambda place: (asks[place].max_tokens, -lengths[place], place))
    batch: list[int] = []
    tokens = responses = 0
    for place in order:
        ask = asks[place]
        need = lengths[place] + ask.samples * ask.max_tokens
        full = tokens + need > settings.batch_tokens or responses + ask.samples > MAX_RESPONSES
        if batch and (full or ask.max_tokens != asks[batch[0]].max_tokens):
            yield batch
            batch, tokens, responses = [], 0, 0
        batch.append(place)
        tokens, responses = tokens + need, responses + ask.samples
    if batch:
        yield batch


def too_long(ask: Ask, *, prompt_tokens: int = 0) -> list[BenchmarkResponse]:
    """The rows of a question that did not fit: empty, one per sample, so that it stays in the denominator."""
    return [response(ask, index, "", TOO_LONG, (prompt_tokens, 0)) for index in range(ask.samples)]


def response(ask: Ask, index: int, text: str, finish_reason: str, tokens: tuple[int, int]) -> BenchmarkResponse:
    """One sample of an answer as it is saved; `tokens` are those of the prompt and of the response."""
    return BenchmarkResponse(
        benchmark=ask.benchmark,
        question_id=ask.question.question_id,
        sample_index=index,
        response=text,
        finish_reason=finish_reason,
        prompt_tokens=tokens[0],
        response_tokens=tokens[1],
    )


def _prompt(ask: Ask, tokenizer: Tokenizer, settings: RespondSettings) -> list[int]:
    phrasing = settings.phrasing
    return tokenizer.render(messages_of(ask.question, prompts=settings.prompts, phrasing=phrasing), phrasing.chat)


def _answers(
    batch: Sequence[tuple[Ask, list[int]]], sampler: Sampler, settings: RespondSettings, progress: Progress
) -> list[BenchmarkResponse]:
    groups = [
        PromptGroup(group_id="/".join(ask.key), token_ids=prompt, seeds=seeds_of(ask, settings.seed))
        for ask, prompt in batch
    ]
    params = SamplingParams(max_tokens=batch[0][0].max_tokens, **settings.sampling.model_dump())
    drawn = sampler.sample(groups, params, progress=progress)
    decode = sampler.tokenizer.decode
    return [
        response(ask, index, decode(found.token_ids), found.finish_reason, (len(prompt), len(found.token_ids)))
        for (ask, prompt), completions in zip(batch, drawn, strict=True)
        for index, found in enumerate(completions)
    ]


UNASKED = Finding(verdict=Verdict.NO_ANSWER, extracted=None, reason="prompt too long")
"""Finding for a question that did not fit: no answer, which counts as wrong."""


def grade(
    responses: Sequence[BenchmarkResponse],
    questions: Mapping[Key, Question],
    *,
    preset: str,
    judge: ChatModel | None = None,
    progress: Progress = no_progress,
) -> list[BenchmarkVerdict]:
    """One verdict per response, in order. A judge breaks ties that a fallible rule left, and is named beside them."""
    asked = [row for row in responses if row.finish_reason != TOO_LONG]
    jobs = [Job(response=row.response, question=questions[row.benchmark, row.question_id]) for row in asked]
    found = check_all(jobs, preset=preset, progress=progress)
    broken = break_ties(jobs, found, judge) if judge is not None else {}
    settled = iter([(finding, broken.get(place)) for place, finding in enumerate(found)])
    unasked: tuple[Finding, Verdict | None] = (UNASKED, None)
    return [_verdict(row, *(unasked if row.finish_reason == TOO_LONG else next(settled)), preset) for row in responses]


def _verdict(row: BenchmarkResponse, rule: Finding, judged: Verdict | None, preset: str) -> BenchmarkVerdict:
    """The rule's finding, or the judge's verdict where there is one."""
    return BenchmarkVerdict(
        benchmark=row.benchmark,
        question_id=row.question_id,
        sample_index=row.sample_index,
        preset=preset,
        verdict=(judged or rule.verdict).value,
        extracted=rule.extracted or "",
        reason=f"judge, where the rule said {rule.verdict.value}: {rule.reason}" if judged else str(rule.reason),
        decided_by="judge" if judged else "verifier",
    )


VERSION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """Settings for scoring saved responses: another rule needs no model."""

    box: str
    """Which answer counts."""
    too_long: str
    """`wrong` keeps questions that were not asked in the denominator, `drop` leaves them out."""


def ask_settings(config: RunConfig, benchmark: BenchmarkSettings | None = None) -> AskSettings:
    """Sampling settings of a benchmark, or of the validation set (appendix: sampling hyperparameters)."""
    cotrain = config.cotrain
    known = describe_benchmark(benchmark.name) if benchmark else None
    own_limit = (benchmark.max_tokens if benchmark else None) or (known.max_tokens if known else None)
    own_samples = (benchmark.samples if benchmark else None) or (known.samples if known else 1)
    prompts = [verifier_prompt(known.verifier)] if known and known.verifier else []
    return AskSettings(
        prompts=config.prompts,
        prompt_digest=template_digest(*solver_templates(config.prompts, prompts)),
        sampling=config.evaluate.sampling,
        vllm=config.engine.vllm,
        samples=own_samples if benchmark else cotrain.validation_samples,
        prompt_tokens=cotrain.prompt_tokens,
        max_tokens=own_limit or cotrain.solver_tokens,
    )


def score_settings(config: RunConfig) -> ScoreSettings:
    """Scoring settings of a run."""
    return ScoreSettings(box=config.evaluate.box, too_long=config.evaluate.too_long)
