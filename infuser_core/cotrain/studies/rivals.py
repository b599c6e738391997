"""Data of published scores that cost more than one backward pass per question. Suffixes: _N parameters, _D features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infuser_core.cotrain.rewards.variance import reward as variance_of
from infuser_core.cotrain.studies.question_gradients import QuestionGradients, centred_rewards
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalData:
    """Gradients and similarities of one question that costly scores compare."""

    answer_dots: Sequence[float]
    """Inner product with the dev gradient of each answer's gradient, at its advantage."""
    old_gradient_N: np.ndarray
    """The question's gradient at the solver's weights, from answers of the anchor."""
    learnable_N: np.ndarray
    """Sum over all candidates of the unit gradient times p (1 - p)."""
    candidates: int
    """Number of candidates in that sum."""
    similarity: float
    """Mean cosine of the question's embedding and the dev questions'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """Computes RivalData: a backward pass per answer and one from the anchor's answers, for each question."""

    gradients: QuestionGradients
    answers: Mapping[str, Sequence[Rollout]]
    """The solver's answers by question."""
    old_answers: Mapping[str, Sequence[Rollout]]
    """The anchor's answers by question."""
    learnable_N: np.ndarray
    similarities: Mapping[str, float]
    """Mean cosine of embeddings by question."""

    @classmethod
    def prepare(
        cls,
        scores: Sequence[InfluenceScore],
        questions: Mapping[str, Question],
        dev: Sequence[Question],
        answers: Mapping[str, Sequence[Rollout]],
        old_answers: Mapping[str, Sequence[Rollout]],
        gradients: QuestionGradients,
        checkpoint: Checkpoint,
    ) -> "Rivals":
        """Compute what all questions share: the sum of learnable gradients, and embeddings."""
        batch = []
        for row in scores:
            own = answers[row.question_id]
            weight = variance_of(row) / row.gradient_norm if row.gradient_norm else 0.0
            batch.append((own, [weight * advantage for advantage in centred_rewards(own)]))
        from infuser_core.engines.hf.causal_lm import embed_texts

        names = [row.question_id for row in scores]
        folder = Path(checkpoint.path)
        units_QD = np.array(embed_texts(folder, [questions[name].text for name in names]))
        dev_units_D = np.array(embed_texts(folder, [row.text for row in dev])).mean(axis=0)
        return cls(
            gradients=gradients,
            answers=answers,
            old_answers=old_answers,
            learnable_N=gradients.of_batch(batch),
            similarities=dict(zip(names, (units_QD @ dev_units_D).tolist(), strict=True)),
        )

    def of(self, name: str, dev_N: np.ndarray) -> RivalData:
        """Data of one question."""
        answers = self.answers[name]
        advantages = centred_rewards(answers)
        dots = []
        for place, advantage in enumerate(advantages):
            alone = [advantage if other == place else 0.0 for other in range(len(advantages))]
            dots.append(float(self.gradients.of(answers, alone) @ dev_N) if advantage else 0.0)
        return RivalData(
            answer_dots=dots,
            old_gradient_N=self.gradients.of(self.old_answers[name]),
            learnable_N=self.learnable_N,
            candidates=len(self.similarities),
            similarity=self.similarities[name],
        )
