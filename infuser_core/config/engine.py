"""Settings of engines and hardware: the programs, accelerators and machines that run the models."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from infuser_core.config.recorded import Mark
from infuser_core.config.sources import Count, Settings, Tokens
from infuser_core.errors import ConfigError, abbreviate
from infuser_core.plugins import shipped_plugins_only

RESERVED = {
    "model": "anchor",
    "dtype": "engine.dtype",
    "tensor_parallel_size": "engine.tensor_parallel",
    "max_num_seqs": "engine.max_num_seqs",
    "max_num_batched_tokens": "engine.max_num_batched_tokens",
    "max_model_len": "cotrain.prompt_tokens and the limits of responses",
    "gpu_memory_utilization": "engine.sampler_memory",
    "enable_sleep_mode": "engine.placement",
    "enable_lora": "cotrain.adapter",
    "max_lora_rank": "cotrain.adapter.rank",
    "lora_target_modules": "cotrain.adapter.targets",
    "seed": "seed",
    "trust_remote_code": "",
    "skip_tokenizer_init": "",
    "enable_prefix_caching": "",
    "logprobs_mode": "",
    "logits_processors": "",
    "generation_config": "",
    "hf_overrides": "",
    "disable_log_stats": "",
}
"""Arguments of vLLM's engine that INFUSER sets itself, with the setting that decides each; empty for a constant."""


class EngineSettings(Settings):
    """Hardware and programs on which the models run."""

    sampler: Literal["hf", "vllm", "fake"] = "hf"
    """Program that samples text: `hf` (transformers, in this process), `vllm` (separate processes on GPUs), or `fake`
    (canned text, for tests)."""
    trainer: Literal["local", "deepspeed", "fake"] = "local"
    """Program that computes gradients and steps: `local` (one process), `deepspeed` (several ranks), or `fake` (for
    tests)."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Number format of the computation. The trainer's own weights and AdamW's state are always at least `float32`."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the models run; `auto` takes the GPU if there is one."""
    threads: int = Field(default=1, gt=0, le=4096)
    """CPU threads of one process."""
    token_budget: Tokens | Literal["auto"] = 16384
    """Tokens of one micro-batch. It changes only rounding and is not part of an artifact's recipe, so stored results
    are reused. `auto` fits the free memory, by a formula and one measured micro-batch (trainer `local`)."""
    gradient_checkpointing: bool | Tokens | Literal["auto"] = False
    """Whether the backward pass recomputes activations instead of storing them. With a number, micro-batches with more
    tokens recompute all of them, and smaller ones only those between matrix products: this saves memory for a few long
    responses and takes hardly more time. `auto` is the largest number for which the free memory suffices (trainer
    `local`). It changes only rounding and is not part of a recipe."""
    attention: Literal["auto", "flash", "sdpa"] = "auto"
    """Attention implementation of the trainer `local`; `auto` takes the fastest available one that agrees with sdpa."""
    elementwise: Annotated[Literal["auto", "fused", "plain"], Mark.NEUTRAL] = "auto"
    """How trainers compute norms, rotations and gates in `bfloat16`: as kernels that torch.compile generates (`fused`),
    or operator by operator (`plain`). `auto` is `fused` on a GPU if they can be compiled. It changes only rounding and
    is not part of a recipe."""
    deterministic: bool = False
    """Whether torch uses only deterministic kernels and fails where none exists; slower on an accelerator."""
    ranks: Count = 1
    """Processes of the trainer `deepspeed`, one per accelerator."""
    zero_stage: Literal[2, 3] = 3
    """ZeRO stage of `deepspeed`: 2 shards AdamW's state and gradients, 3 the weights as well."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """State that the trainer `deepspeed` keeps in host memory instead of on the accelerator: with `optimizer` AdamW's
    state and gradients, with `all` (ZeRO stage 3) the weights as well."""
    placement: Literal["split", "colocated"] = "split"
    """Whether engines have separate accelerators (`split`), or take turns on all of them (`colocated`)."""
    overlap: bool = False
    """Whether independent phases run at the same time: dev rollouts and dev gradient during question generation, a
    validation during the next iteration. It changes no result and is not part of a recipe."""
    write_beside: bool = False
    """Whether the trainer leaves files to be hashed, flushed and committed in the background: the dev
    gradient while questions are generated, the generator's checkpoint while the solver is updated, under either
    placement. It changes no result; if the run is killed before the commit, the phase is repeated."""
    tensor_parallel: int = Field(default=1, gt=0, le=4096)
    """Accelerators that share one engine of the sampler `vllm`."""
    sampler_memory: float = Field(default=0.85, gt=0, le=1)
    """Share of an accelerator's memory that one engine of the sampler `vllm` may use."""
    max_num_seqs: Count | None = None
    """Most responses that one engine of the sampler `vllm` computes at a time; null: vLLM's default for the device."""
    max_num_batched_tokens: Tokens | None = None
    """Most tokens, with prompts, in one step of an engine of sampler `vllm`; null: vLLM's default for the device."""
    weight_updates: Literal["in-place", "fresh"] = "in-place"
    """Whether a running engine of the sampler `vllm` loads new weights, or a new engine is started for them. A check
    proves that the engine computes with them; a running engine that fails it is replaced."""
    vllm: Annotated[dict[str, JsonValue], Mark.NEUTRAL] = Field(default={}, max_length=64)
    """Further arguments of vLLM's engine under vLLM's names, e.g. `{quantization: fp8}`. They may change samples, so
    they are part of the recipe if there are any."""

    @property
    def is_pooled(self) -> bool:
        """Whether the accelerators are divided between the trainer's ranks and the sampler's engines."""
        return self.placement == "split" and self.trainer == "deepspeed" and self.sampler == "vllm"

    @property
    def sampler_key(self) -> str:
        """The sampler in keys: the number of `vllm` rises when seeds give other tokens than before."""
        return "vllm/2" if self.sampler == "vllm" else self.sampler

    @property
    def sampler_share(self) -> float:
        """Share of an accelerator's memory for an awake sampler: in a pool both roles' samplers are awake."""
        return self.sampler_memory / 2 if self.is_pooled else self.sampler_memory

    @property
    def in_place(self) -> bool:
        """Whether running engines load new weights; not quantised ones, whose weights no checksum can verify."""
        return self.weight_updates == "in-place" and self.vllm.get("quantization") is None

    def hands_over(self, *, spread: bool) -> bool:
        """Whether trainers leave saved weights in memory for running samplers: those of `vllm`, and those of `hf` if
        `spread` over a cluster."""
        running = self.sampler == "vllm" or (self.sampler == "hf" and spread)
        return running and self.in_place and self.trainer != "fake"

    @model_validator(mode="after")
    def _check_vllm(self) -> "EngineSettings":
        if self.vllm and self.sampler != "vllm":
            raise ValueError(f"engine.vllm needs engine.sampler vllm, and it is {self.sampler}: leave it out")
        for name, value in self.vllm.items():
            # Some of vLLM's arguments name classes and files to load.
            if shipped_plugins_only() and not (isinstance(value, int | float) or str(value).isidentifier()):
                message = (
                    f"engine.vllm.{name} = {abbreviate(value)}: a deployment passes numbers and single words alone"
                )
                raise ConfigError(
                    message,
                    hint="`infuser serve --allow-plugins` allows others; a worker does with INFUSER_PLUGINS=any",
                )
            if name in RESERVED:
                instead = f"set {RESERVED[name]}" if RESERVED[name] else "leave it out"
                raise ValueError(f"engine.vllm.{name}: INFUSER sets this argument of vLLM itself: {instead}")
        return self

    @model_validator(mode="after")
    def _check_overlap(self) -> "EngineSettings":
        if self.overlap and self.placement == "colocated":
            raise ValueError("engine.overlap needs placement split: colocated engines take turns")
        if self.overlap and self.sampler == "hf" and self.dtype != "float32":
            raise ValueError(f"engine.overlap with sampler hf needs dtype float32, and it is {self.dtype}")
        return self

    @model_validator(mode="after")
    def _check_trainer(self) -> "EngineSettings":
        for name in ("token_budget", "gradient_checkpointing"):
            if self.trainer == "deepspeed" and getattr(self, name) == "auto":
                raise ValueError(f"engine.{name} auto needs trainer local: `infuser plan` says what fits each rank")
        if self.trainer != "deepspeed":
            if self.ranks > 1 or self.offload != "none":
                raise ValueError(f"engine.ranks and engine.offload need trainer deepspeed, and it is {self.trainer}")
            return self
        if self.dtype == "float64":
            raise ValueError("trainer deepspeed keeps fp32 masters: choose dtype float32 or bfloat16")
        if self.offload == "all" and self.zero_stage != 3:
            raise ValueError("engine.offload all needs zero_stage 3: stage 2 shards no weights")
        return self


class ClusterSettings(Settings):
    """A Ray cluster whose machines share the store and run this version."""

    address: str = "auto"
    """`host:port` of the cluster's head; `auto` is the cluster in RAY_ADDRESS, or the one on this machine."""
