"""Settings of the loss: clipping, truncated importance weights, KL, entropy, and options of the preset."""

from typing import Annotated, Literal

from pydantic import Field

from infuser_core.algorithm.advantage import SigmaB, SingleRow
from infuser_core.algorithm.preset import BatchStd, LengthNorm, Overlong, PartialMinibatch, RatioLevel, TisForm
from infuser_core.config.sources import Settings


class LossSettings(Settings):
    """Constants of the loss (eq:unified_obj), and options of the preset; null leaves an option to the preset."""

    clip_low: float = Field(default=0.2, gt=0, le=1e6)
    """Lower clip of the importance ratio: the ratio counts from 1 - clip_low."""
    clip_high: float = Field(default=0.2, gt=0, le=1e6)
    """Upper clip of the importance ratio, whose range is 1 - clip_low to 1 + clip_high (DAPO: 0.2 and 0.28)."""
    tis_cap: float | None = Field(default=2.0, gt=0, le=1e6)
    """Cap rho_max of the truncated importance weight; null switches this weight off."""
    kl: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of the KL divergence from the anchor in an update's loss (GRPO's beta). Influence scores ignore it."""
    entropy: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of the policy's entropy, nats per token, in an update's objective. Influence scores ignore it."""
    ratio: RatioLevel = "token"
    """Importance ratio per `token`, or per `sequence`: the geometric mean over a response (GSPO), which needs a far
    narrower clip range."""
    overlong: Overlong = "keep"
    """Treatment of a response that ends at the length limit: `keep` treats it like any other; `mask` gives it no
    credit, but its reward still enters the group's mean (DAPO)."""
    dual_clip: Annotated[float, Field(gt=1, le=1e6)] | Literal["none"] | None = None
    """Upper bound of the loss for a negative advantage A, in units of |A|; `none` sets no bound."""
    tis_form: TisForm | None = None
    """Policy whose ratio to the sampler's policy is truncated: the policy before the update, or the current one."""
    length_norm: LengthNorm | None = None
    """Length C by which token losses are divided: the longest generation (`fixed`), or the batch's mean response length
    (`token_mean`)."""
    sigma_b: SigmaB | None = None
    """Groups from which sigma_B of the advantage `dugrpo` is computed: all, or those with variance (`nonzero`)."""
    single_row: SingleRow | None = None
    """Advantage of a group with one row: none (`zero`), or computed with mean 0 and standard deviation 1 (`unit`)."""
    batch_std: BatchStd | None = None
    """Normaliser of the advantage `batch_std`."""
    partial_minibatch: PartialMinibatch | None = None
    """Divisor of a smaller last minibatch: its own number of groups (`real`), or that of a full one (`nominal`)."""
    mid_eos_verdicts: list[Literal["no_answer", "unverified"]] | None = None
    """Verdicts to which `mid_eos_penalty` applies."""
