"""Phase 1a: the solver answers the dev set (Algorithm 2, phase 1)."""

from collections.abc import Sequence
from typing import Unpack

from infuser_core.config.run import RunConfig
from infuser_core.cotrain.route import solver_prompts
from infuser_core.evaluation.answering import AnswerSettings, Draw, answer_questions, solver_templates, template_digest
from infuser_core.protocols import Sampler
from infuser_core.schemas import Question, Rollout

VERSION = 8


def settings_of(config: RunConfig) -> AnswerSettings:
    """Settings of a run that this phase depends on."""
    return AnswerSettings(
        prompts=config.prompts,
        prompt_digest=template_digest(*solver_templates(config.prompts, solver_prompts(config))),
        sampling=config.cotrain.sampling.as_sampling(),
        vllm=config.engine.vllm,
        samples=config.cotrain.group_size,
        prompt_tokens=config.cotrain.prompt_tokens,
        max_tokens=config.cotrain.solver_tokens,
        box=config.evaluate.box,
    )


def rollout_dev(
    dev: Sequence[Question], solver: Sampler, settings: AnswerSettings, *, iteration: int, **draw: Unpack[Draw]
) -> list[Rollout]:
    """Sample n answers per dev question, with their rewards r(a, a*; q) (Algorithm 2, phase 1)."""
    return answer_questions(dev, solver, settings, scope=f"rollout_dev/{iteration}", **draw)
