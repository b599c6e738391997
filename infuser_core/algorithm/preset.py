"""Presets `paper` and `official`: a named option for each difference between the paper and the authors' code.

| option | `paper` | `official` | what it decides |
|---|---|---|---|
| `length_norm` | fixed | token_mean | C: the longest generation, or the mean response length of the update batch |
| `dual_clip` | none | 3.0 | bound of the loss of a negative advantage, in units of abs(A) |
| `tis_form` | old_over_sampler | old_over_sampler | which policy's ratio to the sampler is truncated (1) |
| `sigma_b` | all | nonzero | groups that enter sigma_B: every document, or those with variance |
| `single_row` | zero | unit | a group of one row: no credit, or mean 0 and standard deviation 1 in sigma_B (2) |
| `batch_std` | batch_mean_std | batch_pooled_std | batch normalisation: by sigma_B, or by the std of centred rewards |
| `partial_minibatch` | real | nominal | divisor of a smaller last step, which takes a full AdamW step (3) |
| `mid_eos_verdicts` | no_answer | no_answer, unverified | verdicts the mid-EOS penalty of hybrid runs applies to (4) |

Each can be set alone, as `cotrain.loss.OPTION`.

(1) The text truncates the current policy's ratio; the method that it cites, and the code, truncate the ratio of the
    policy before the update and multiply the clipped ratio by it. Both presets follow the method;
    `current_over_sampler` follows the text literally. They differ from the second step of an update on.
(2) Undefined in the paper. One such row among influence rewards of 1e-3 shrinks every other advantage 500 times.
(3) Unstated in the paper.
(4) The code cannot tell a verifier's timeout from a missing answer.

The same under both, although the code differs: the score (`cosine` by default in the code's base settings; every
released recipe sets the preconditioned one); ddof 1 of every standard deviation, which the paper leaves open;
division of the dev gradient by its questions (a factor that cancels in a cosine); the zero-variance filter (the code
tests the population variance in fp32, here the range); rewards of unscored questions (0, here with a status); fp32
sums of the score (here fp64). C does not cancel in a score: Gamma weighs the square of a question's gradient against
v, which comes from updates (eq:adamw_moments). The influence pass has the C that an update on the same questions has.
Not reproduced, because they lose or corrupt data: a dev gradient of an earlier iteration if this one's groups are all
flat, repeated sampling seeds, documents drawn twice, rows dropped from uneven groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infuser_core.algorithm.advantage import SigmaB, SingleRow
from infuser_core.schemas import Verdict

TisForm = Literal["old_over_sampler", "current_over_sampler"]
"""Policy whose ratio to the sampler is truncated: see objective.clipped_objective."""
LengthNorm = Literal["fixed", "token_mean"]
BatchStd = Literal["batch_mean_std", "batch_pooled_std"]
PartialMinibatch = Literal["real", "nominal"]
Overlong = Literal["keep", "mask"]
RatioLevel = Literal["token", "sequence"]
"""Importance ratios per token, or one per response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Values of all named options of the algorithm; the defaults are the paper's."""

    length_norm: LengthNorm = "fixed"
    """Form of C in eq:unified_obj: see the function `length_norm`."""
    dual_clip: float | None = None
    """See objective.clipped_objective."""
    tis_form: TisForm = "old_over_sampler"
    """See objective.clipped_objective."""
    sigma_b: SigmaB = "all"
    """See advantage.batch_sigma."""
    single_row: SingleRow = "zero"
    """See advantage.group_sigma."""
    batch_std: BatchStd = "batch_mean_std"
    """The normaliser that `batch_std` means."""
    partial_minibatch: PartialMinibatch = "real"
    """See step_denominator."""
    mid_eos_verdicts: tuple[str, ...] = (Verdict.NO_ANSWER,)
    """See score.mid_eos_shaped."""

    def normaliser(self, name: str) -> str:
        """Resolve a configured name to one of advantage.NORMALISERS: `batch_std` becomes this preset's form of it."""
        return self.batch_std if name == "batch_std" else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Constants of the clipped objective (eq:unified_obj)."""

    clip_low: float
    """Lower clip range of the importance ratio."""
    clip_high: float
    """Upper clip range of the importance ratio."""
    length_norm: float
    """C: the fixed maximum generation length, tokens."""
    dual_clip: float | None
    """Bound of the loss for negative advantages, in units of |A|; None is the paper's form."""
    tis_cap: float | None
    """Cap of the truncated importance weight; None disables it."""
    tis_form: TisForm
    """Which policy's ratio to the sampler is truncated (see objective.clipped_objective)."""
    ratio: RatioLevel
    """Importance ratios per token, or one per response (see objective.clipped_objective)."""
    kl: float = 0.0
    """Weight of the KL divergence to the anchor, the base model that both roles start from; 0 for influence scores.

    It applies to rows that have the anchor's log-probabilities.
    """
    entropy: float = 0.0
    """Weight of the policy's entropy; 0 for influence scores."""
    temperature: float
    """Sampling temperature: logits are divided by it, so that ratios compare like with like."""

    @property
    def only_credited(self) -> bool:
        """Whether rows of advantage 0 have no gradient: without a KL and an entropy term."""
        return not (self.kl or self.entropy)


PRESETS = {
    "paper": Preset(),
    "official": Preset(
        length_norm="token_mean",
        dual_clip=3.0,
        sigma_b="nonzero",
        single_row="unit",
        batch_std="batch_pooled_std",
        partial_minibatch="nominal",
        mid_eos_verdicts=(Verdict.NO_ANSWER, Verdict.UNVERIFIED),
    ),
}


def length_norm(lengths: Sequence[int], *, mode: LengthNorm, max_tokens: int) -> float:
    """Length normaliser C of eq:unified_obj, tokens.

    `fixed` (paper) is the maximum generation length; `token_mean` (authors' code) is the mean response length of
    the update batch.
    """
    if mode == "fixed":
        return float(max_tokens)
    return max(1.0, sum(lengths) / max(1, len(lengths)))


def step_denominator(groups: int, *, minibatch: int, mode: PartialMinibatch) -> int:
    """Divisor of a step's gradient, in groups.

    `real` is the number of groups in the step; `nominal` (authors' code) the configured minibatch, so that a smaller
    last minibatch has a smaller gradient, and its full AdamW step.
    """
    return groups if mode == "real" else minibatch
