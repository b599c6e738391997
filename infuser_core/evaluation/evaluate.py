"""Sample a solver's responses to benchmarks or the validation set, and grade the saved responses.

Batches span benchmarks and do not depend on what was finished before, so a resumed evaluation computes exactly what an
uninterrupted one does. Grading needs no model, and repeating it gives the same verdicts.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infuser_core.config.run import BenchmarkSettings, RunConfig, SamplingSettings
from infuser_core.evaluation.answering import (
    AS_WRITTEN,
    TOO_LONG,
    AskSettings,
    Phrasing,
    render_messages,
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
    no_progress,
)
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question, Verdict
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.batch import Job, break_ties, check_all, verifier_prompt
from infuser_core.verifiers.parts.grading import Finding

Key = tuple[str, str]
"""(benchmark label, question id)."""

MAX_RESPONSES = 512
"""Most responses in one batch: what a kill can lose of a small model with short answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A benchmark question to ask the solver, with its number of samples and response limit."""

    benchmark: str
    """Benchmark label."""
    question: Question
    samples: int
    max_tokens: int
    """Response limit, tokens."""

    @property
    def key(self) -> Key:
        """Identifies the question's saved responses."""
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
    """Seed of the evaluation."""
    batch_tokens: int
    """Most prompt and response tokens in one batch."""
    phrasing: Phrasing = AS_WRITTEN
    """Worked examples, system turn and chat template."""


def seeds_of(ask: Ask, seed: int) -> list[int]:
    """One seed per sample, from (seed, benchmark, question, sample) alone, so that all models get the same seeds."""
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
    """Answer the questions that are not in `finished`; yields batches of completely answered ones, to be saved."""
    # Four bytes a token: as lists, the prompts of a large benchmark would take ten times as much.
    prompts = []
    for ask in asks:
        messages = render_messages(ask.question, prompts=settings.prompts, phrasing=settings.phrasing)
        prompts.append(array("i", sampler.tokenizer.render(messages, settings.phrasing.chat)))
    lengths = [len(prompt) for prompt in prompts]
    unfit = [ask for ask, length in zip(asks, lengths, strict=True) if length > settings.prompt_tokens]
    rows = [row for ask in unfit if ask.key not in finished for row in too_long_rows(ask)]
    total = sum(ask.samples for ask in asks if ask.key not in finished)
    count, tokens = len(rows), 0

    def report_batch(done: int, _: int, batch_tokens: int) -> None:
        progress(count + done, total, tokens + batch_tokens)

    if rows:
        yield rows
    for places in split_batches(asks, lengths, settings):
        batch = [(asks[place], prompts[place].tolist()) for place in places if asks[place].key not in finished]
        if batch:
            rows = _answer_batch(batch, sampler, settings, report_batch)
            count, tokens = count + len(rows), tokens + sum(row.response_tokens for row in rows)
            progress(count, total, tokens)
            yield rows


def split_batches(asks: Sequence[Ask], lengths: Sequence[int], settings: RespondSettings) -> Iterator[list[int]]:
    """Indices of the questions in each batch: one response limit per batch, longest prompts first."""
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


def too_long_rows(ask: Ask, *, prompt_tokens: int = 0) -> list[BenchmarkResponse]:
    """Empty rows, one per sample, for a question whose prompt is too long: it stays in the denominator."""
    return [response_row(ask, index, "", TOO_LONG, (prompt_tokens, 0)) for index in range(ask.samples)]


def response_row(ask: Ask, index: int, text: str, finish_reason: str, tokens: tuple[int, int]) -> BenchmarkResponse:
    """Build the saved row of one response; `tokens` are the counts of the prompt and of the response."""
    return BenchmarkResponse(
        benchmark=ask.benchmark,
        question_id=ask.question.question_id,
        sample_index=index,
        response=text,
        finish_reason=finish_reason,
        prompt_tokens=tokens[0],
        response_tokens=tokens[1],
    )


def _answer_batch(
    batch: Sequence[tuple[Ask, list[int]]], sampler: Sampler, settings: RespondSettings, progress: Progress
) -> list[BenchmarkResponse]:
    groups = [
        PromptGroup(group_id="/".join(ask.key), token_ids=prompt, seeds=seeds_of(ask, settings.seed))
        for ask, prompt in batch
    ]
    params = SamplingParams(max_tokens=batch[0][0].max_tokens, **settings.sampling.model_dump())
    completions_of_groups = sampler.sample(groups, params, progress=progress)
    decode = sampler.tokenizer.decode
    return [
        response_row(ask, index, decode(each.token_ids), each.finish_reason, (len(prompt), len(each.token_ids)))
        for (ask, prompt), completions in zip(batch, completions_of_groups, strict=True)
        for index, each in enumerate(completions)
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
    """Grade every response, in order; a judge, if any, decides cases that a fallible rule left open."""
    answered = [row for row in responses if row.finish_reason != TOO_LONG]
    jobs = [Job(response=row.response, question=questions[row.benchmark, row.question_id]) for row in answered]
    findings = check_all(jobs, preset=preset, progress=progress)
    by_judge = break_ties(jobs, findings, judge) if judge is not None else {}
    decisions = iter([(finding, by_judge.get(place)) for place, finding in enumerate(findings)])
    verdicts = []
    for row in responses:
        rule, judgement = (UNASKED, None) if row.finish_reason == TOO_LONG else next(decisions)
        reason = str(rule.reason)
        if judgement:
            reason = f"judge, where the rule said {rule.verdict.value}: {rule.reason}"
        verdicts.append(
            BenchmarkVerdict(
                benchmark=row.benchmark,
                question_id=row.question_id,
                sample_index=row.sample_index,
                preset=preset,
                verdict=(judgement or rule.verdict).value,
                extracted=rule.extracted or "",
                reason=reason,
                decided_by="judge" if judgement else "verifier",
            )
        )
    return verdicts


VERSION = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """Settings for grading saved responses; grading by another rule needs no model."""

    box: str
    """Which answer counts."""
    too_long: str
    """`wrong` keeps questions that did not fit in the denominator, `drop` leaves them out."""


def ask_settings(config: RunConfig, benchmark: BenchmarkSettings | None = None) -> AskSettings:
    """Sampling settings of a benchmark, or of the validation set (appendix: sampling hyperparameters)."""
    cotrain = config.cotrain
    spec = describe_benchmark(benchmark.name) if benchmark else None
    own_limit = (benchmark.max_tokens if benchmark else None) or (spec.max_tokens if spec else None)
    own_samples = (benchmark.samples if benchmark else None) or (spec.samples if spec else 1)
    prompts = [verifier_prompt(spec.verifier)] if spec and spec.verifier else []
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
    """Grading settings of a run."""
    return ScoreSettings(box=config.evaluate.box, too_long=config.evaluate.too_long)
