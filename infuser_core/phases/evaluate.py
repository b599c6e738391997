"""How benchmarks and the validation set are asked and scored; asking is `respond`, scoring is `grade`."""

from dataclasses import dataclass

from infuser_core import plugins
from infuser_core.config.run import BenchmarkSettings, RunConfig, SamplingSettings
from infuser_core.phases.answering import solver_templates, template_digest

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSettings:
    """Everything but the questions and the checkpoint that responses are a function of."""

    prompts: str
    """Prompt profile."""
    prompt_digest: str
    """Digest of the templates: an edited prompt is another recipe."""
    sampling: SamplingSettings
    """Temperature, top-p, top-k."""
    samples: int
    """Responses per question."""
    prompt_tokens: int
    """Prompt limit, tokens; a longer question is not asked."""
    max_tokens: int
    """Response limit, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """How saved responses are scored: another rule needs no model."""

    box: str
    """Which answer counts."""
    too_long: str
    """`wrong` keeps questions that were not asked in the denominator, `drop` leaves them out."""


def ask_settings(config: RunConfig, benchmark: BenchmarkSettings | None = None) -> AskSettings:
    """How a benchmark, or the validation set, is sampled (appendix: sampling hyperparameters)."""
    cotrain = config.cotrain
    known = plugins.describe(benchmark.name) if benchmark else None
    own_limit = (benchmark.max_tokens if benchmark else None) or (known.max_tokens if known else None)
    own_samples = (benchmark.samples if benchmark else None) or (known.samples if known else 1)
    is_code = known is not None and known.category == "coding"
    return AskSettings(
        prompts=config.prompts,
        prompt_digest=template_digest(*solver_templates(config.prompts, code=is_code)),
        sampling=config.evaluate.sampling,
        samples=own_samples if benchmark else cotrain.validation_samples,
        prompt_tokens=cotrain.prompt_tokens,
        max_tokens=own_limit or cotrain.solver_tokens,
    )


def score_settings(config: RunConfig) -> ScoreSettings:
    """Which answers count."""
    return ScoreSettings(box=config.evaluate.box, too_long=config.evaluate.too_long)
