"""Accuracy of a checkpoint on a set of questions: validation and benchmarks alike."""

import random
from collections.abc import Sequence

from infuser_core.config import BenchmarkSettings, RunConfig
from infuser_core.engines.protocols import Progress, Sampler, no_progress
from infuser_core.phases.answering import AnswerSettings, answer_questions, solver_templates, template_digest
from infuser_core.phases.groups import by_group
from infuser_core.schemas import BenchmarkScore, Question, Rollout, Verdict
from infuser_core.seeding import seed_of

VERSION = 1
RESAMPLES = 1000


def settings_of(config: RunConfig, benchmark: BenchmarkSettings | None = None) -> AnswerSettings:
    """How a benchmark, or the validation set, is sampled (appendix: sampling hyperparameters)."""
    cotrain = config.cotrain
    return AnswerSettings(
        prompts=config.prompts,
        prompt_digest=template_digest(*solver_templates(config.prompts).values()),
        sampling=config.evaluate.sampling,
        samples=benchmark.samples if benchmark else cotrain.validation_samples,
        prompt_tokens=cotrain.prompt_tokens,
        max_tokens=(benchmark.max_tokens if benchmark else None) or cotrain.solver_tokens,
        box=config.evaluate.box,
    )


def evaluate(
    name: str,
    questions: Sequence[Question],
    solver: Sampler,
    settings: AnswerSettings,
    *,
    checkpoint_id: str,
    seed: int,
    progress: Progress = no_progress,
) -> list[Rollout]:
    """Responses with their verdicts. The seeds do not depend on the checkpoint: comparisons are paired."""
    return answer_questions(
        questions,
        solver,
        settings,
        checkpoint_id=checkpoint_id,
        seed=seed,
        scope=f"evaluate/{name}",
        progress=progress,
    )


def summarise(name: str, rollouts: Sequence[Rollout], *, checkpoint_id: str) -> BenchmarkScore:
    """Mean accuracy with a 95% percentile-bootstrap interval over questions, the unit that was sampled."""
    groups = by_group(rollouts)
    accuracies = [sum(row.reward for row in rows) / len(rows) for rows in groups.values()]
    draws = _bootstrap(accuracies, name)
    answered = sum(row.verdict != Verdict.NO_ANSWER for row in rollouts)
    return BenchmarkScore(
        benchmark=name,
        checkpoint_id=checkpoint_id,
        num_questions=len(groups),
        num_samples=max((len(rows) for rows in groups.values()), default=0),
        accuracy=_mean(accuracies),
        low=draws[int(0.025 * len(draws))],
        high=draws[int(0.975 * len(draws))],
        answered=answered / max(1, len(rollouts)),
        unverified=sum(row.verdict == Verdict.UNVERIFIED for row in rollouts),
        mean_response_tokens=_mean([len(row.token_ids) for row in rollouts]),
    )


def _bootstrap(values: Sequence[float], name: str) -> list[float]:
    generator = random.Random(seed_of("bootstrap", name))
    return sorted(_mean(generator.choices(values, k=len(values))) if values else 0.0 for _ in range(RESAMPLES))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
