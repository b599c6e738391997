"""How much each phase has to do: rows, prompts and tokens, from a configuration and mean lengths."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from infuser_core.capacity.lengths import Lengths
from infuser_core.capacity.spread import Spread
from infuser_core.capacity.training import Work
from infuser_core.config import BenchmarkQuestions, FileQuestions, MixQuestions, QuestionSource, RunConfig
from infuser_core.errors import ConfigError
from infuser_core.rewards.find import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Work of one iteration. Sampling keeps all groups, training those whose rewards differ."""

    dev: Work | None
    """Dev questions that are answered; None where nothing needs the dev set."""
    dev_trained: Work | None
    """Those of them that have a gradient."""
    written: Work | None
    """Documents that questions are written from; None where the solver trains on dev questions alone."""
    answered: Work | None
    """Generated questions that are answered."""
    scored: Work | None
    """Those that are scored; None where the reward needs no influence."""
    generator: Work | None
    """Documents the generator is updated on; None where it stays at its anchor."""
    solver: Work | None
    """Questions the solver is updated on."""
    validation: Work
    """Validation questions of one validation."""


def volume_of(config: RunConfig, lengths: Lengths) -> Volume:
    """What one iteration of the configuration amounts to. Raises ConfigError for a question file of unknown size."""
    cotrain, rows = config.cotrain, config.cotrain.group_size
    solved = _spread(lengths.solver_response, cotrain.solver_tokens, lengths.spread, lengths.within)
    to_dev = _spread(lengths.dev_response, cotrain.solver_tokens, lengths.spread, lengths.within)
    written = _spread(lengths.generator_response, cotrain.generator_tokens, lengths.generator_spread, lengths.within)
    dev = _size(config.data.dev, "data.dev")
    questions = cotrain.documents * rows * lengths.valid
    influence = cotrain.generator.update and not cotrain.dev_only and load(cotrain.reward.name).needs_influence
    all_dev = Work(groups=dev, rows=rows, prompt=lengths.dev_prompt, response=to_dev, steps=1)
    documents = Work(groups=cotrain.documents, rows=rows, prompt=lengths.generator_prompt, response=written, steps=1)
    generated = Work(groups=questions, rows=rows, prompt=lengths.solver_prompt, response=solved, steps=1)
    dev_trained = _share(all_dev, lengths.varied_dev)
    varied = _share(generated, lengths.varied_questions)
    trained = dev_trained if cotrain.dev_only else varied
    return Volume(
        dev=all_dev if influence or cotrain.dev_only else None,
        dev_trained=dev_trained if influence else None,
        written=None if cotrain.dev_only else documents,
        answered=None if cotrain.dev_only else generated,
        scored=varied if influence else None,
        generator=_stepped(documents, cotrain.generator.minibatch) if cotrain.generator.update else None,
        solver=_stepped(trained, cotrain.solver.minibatch) if cotrain.solver.update else None,
        validation=Work(
            groups=_size(config.data.validation, "data.validation"),
            rows=cotrain.validation_samples,
            prompt=lengths.dev_prompt,
            response=to_dev,
            steps=1,
        ),
    )


def _spread(mean: float, limit: int, deviation: float, within: float) -> Spread:
    return Spread(mean=mean, deviation=deviation, limit=limit, within=within)


def _share(work: Work, share: float) -> Work:
    return Work(
        groups=work.groups * share, rows=work.rows, prompt=work.prompt, response=work.response, steps=work.steps
    )


def _stepped(work: Work, minibatch: int) -> Work:
    steps = max(1, math.ceil(work.groups / minibatch))
    return Work(groups=work.groups, rows=work.rows, prompt=work.prompt, response=work.response, steps=steps)


def _size(source: QuestionSource, key: str) -> int:
    if isinstance(source, MixQuestions):
        return sum(part.count or _size(part.source, f"{key}.parts") for part in source.parts)
    if isinstance(source, BenchmarkQuestions):
        return sum(quota.count for quota in source.quotas)
    if source.size is not None:
        return source.size
    assert isinstance(source, FileQuestions)
    try:
        text = Path(source.path).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.strip()]
        return len(lines) if source.path.endswith(".jsonl") else len(json.loads(text))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}.path = {source.path!r} cannot be counted: {error}", hint=f"say how many: --set {key}.size=800"
        ) from error
