"""DeepSpeed's ZeRO on one rank: shards weights and gradients, and gathers and reduces them as passes need them.

The only module that imports deepspeed. DeepSpeed reduces the gradient of every micro-batch to its owners. Accumulation,
AdamW and files are this project's, on the shard (see shard), so that they equal those of the local trainer.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from infuser_core.engines.deepspeed.shard import Fragment, Shard
from infuser_core.engines.hf.causal_lm import (
    IMPLEMENTATION,
    disable_dropout,
    multiply_experts,
    read_config,
    saved_buffers,
)
from infuser_core.engines.hf.limits import refuse_logit_changes, refuse_other_attention
from infuser_core.engines.training.packing import MicroBatch
from infuser_core.engines.training.parked import free_storages
from infuser_core.engines.training.policy import ModelPolicy
from infuser_core.errors import EngineError
from infuser_core.memory.sizes import BUCKET

ONE_GROUP = 10**15
"""Elements of a sub-group: more than any model has, so that a rank's part is one buffer."""


def empty_model(folder: Path) -> PreTrainedModel:
    """Build the model of a folder on the CPU in fp32, as `load_model` does, but with uninitialised parameters.

    Memory that was never written takes no room on the host: a rank uses only its shard and one more parameter.
    """
    config = read_config(folder)
    refuse_logit_changes(config)
    with no_init_weights():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=IMPLEMENTATION, trust_remote_code=False
        )
    # Under `no_init_weights`, transformers ties no weights.
    model.tie_weights()
    refuse_other_attention(model)
    multiply_experts(model)
    if buffers := saved_buffers(model):
        raise EngineError(
            f"{type(model).__name__} has fixed tensors besides its parameters, which sharded training does not keep: "
            f"{', '.join([*buffers][:3])}",
            hint="set engine.trainer local, or choose another model",
        )
    return disable_dropout(model).eval()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroOptions:
    """Settings of DeepSpeed's sharding."""

    zero_stage: int
    """2 shards moments, masters and gradients; 3 the weights as well."""
    offload: str
    """`none`, `optimizer` (masters, moments and gradients in host memory) or `all` (stage 3: weights as well)."""
    bucket: int = BUCKET
    """Number of elements that are reduced or prefetched at a time."""

    def to_config(self) -> dict[str, Any]:
        """Build DeepSpeed's configuration, without accumulation: gradients are read after every micro-batch."""
        zero: dict[str, Any] = {
            "stage": self.zero_stage,
            "contiguous_gradients": True,
            "overlap_comm": self.zero_stage == 3,
            "reduce_bucket_size": self.bucket,
            "allgather_bucket_size": self.bucket,
        }
        if self.zero_stage == 3:
            zero |= {
                "sub_group_size": ONE_GROUP,
                "stage3_prefetch_bucket_size": self.bucket,
                # Every parameter is sharded: one rule for files, probe and gradients.
                "stage3_param_persistence_threshold": 0,
            }
        if self.offload != "none":
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
        if self.offload == "all":
            zero["offload_param"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
        return {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "steps_per_print": 10**9,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": zero,
        }


class PolicyModule(nn.Module):
    """Wraps a policy's forward calls in one torch module, which DeepSpeed's hooks need."""

    def __init__(self, policy: ModelPolicy) -> None:
        super().__init__()
        self.model = policy.model
        self._policy = policy

    def forward(self, batch: MicroBatch, temperature: float, entropy: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Compute log-probabilities [S], and with `entropy` the entropies (see ModelPolicy)."""
        if entropy:
            return self._policy.with_entropy(batch, temperature=temperature)
        return self._policy.logprobs(batch, temperature=temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPolicy:
    """loss.Policy on one rank. All ranks call it."""

    module: Callable[..., Any]
    """DeepSpeed's engine, or its PolicyModule."""

    def logprobs(self, batch: MicroBatch, *, temperature: float) -> Tensor:
        """Compute log-probabilities of a micro-batch, [S]."""
        logprobs_S: Tensor = self.module(batch, temperature)
        return logprobs_S

    def with_entropy(self, batch: MicroBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities of a micro-batch and the policy's entropies, each [S]."""
        result: tuple[Tensor, Tensor] = self.module(batch, temperature, True)
        return result


class Zero:
    """A policy (model under training) that DeepSpeed shards, and this rank's shard of its parameters."""

    def __init__(self, policy: ModelPolicy, options: ZeroOptions, *, device: torch.device) -> None:
        import deepspeed

        os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")
        # gloo takes the place of its CPU collectives, which it would compile at first use.
        deepspeed.ops.__compatible_ops__ = {}
        if not deepspeed.comm.is_initialized():
            deepspeed.init_distributed(dist_init_required=False, verbose=False)
        self._stage = options.zero_stage
        self.parameters = dict(policy.model.named_parameters())
        module = PolicyModule(policy)
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        shapes = {name: parameter.shape for name, parameter in self.parameters.items()}
        if self._stage == 3:
            # Shards one parameter after the other: the device never holds the whole model.
            deepspeed.zero.Init(module=module, config_dict_or_path=options.to_config(), dtype=torch.float32)
            # DeepSpeed does not move the buffers of a model that is already sharded.
            for owner in module.modules():
                for name, buffer in owner.named_buffers(recurse=False):
                    setattr(owner, name, buffer.to(device))
        # DeepSpeed needs an optimizer for its parameter groups; this one never steps, so its constants do not matter.
        holder = torch.optim.AdamW(self.parameters.values(), lr=0.0)
        self._engine, self._zero, _, _ = deepspeed.initialize(
            model=module, optimizer=holder, config=options.to_config(), dist_init_required=False
        )
        self.policy = RankPolicy(module=self._engine)
        """For `backward`."""
        self.own_policy = RankPolicy(module=self._engine.module)
        """For `pass_gradients`: its backward passes reduce nothing."""
        if self._stage == 3 and policy.compute_dtype == torch.bfloat16:
            _gather_in_bf16(policy.model)
        head = policy.model.get_output_embeddings()
        if self._stage == 3 and head is not None:
            # The output weight is read outside its layer.
            for parameter in head.parameters(recurse=False):
                deepspeed.zero.register_external_parameter(module, parameter)
        flat, fragments = self._layout(names)
        self.shard = Shard(flat, fragments, shapes=shapes, device=device)

    def backward(self, loss: Tensor, into: Tensor) -> None:
        """Add the gradient of the sum of all ranks' losses to the shard buffer `into`. All ranks call it."""
        # DeepSpeed divides by the number of ranks.
        self._engine.backward(loss * dist.get_world_size())
        for fragment, gradient in self._gradients():
            into[fragment.offset : fragment.offset + fragment.length] += gradient
        # The next micro-batch starts from zero.
        self._zero.zero_grad()
        if self._stage == 2:
            self._zero.micro_step_id = -1
            self._zero.averaged_gradients[0] = None
        offloaded = self._masters().grad
        if offloaded is not None:
            offloaded.zero_()

    def pass_gradients(self, loss: Tensor, take: Callable[[str, Tensor], None]) -> None:
        """Pass the gradient of this rank's own loss to `take`, one whole parameter after the other.

        All ranks call it, and `take` with the same parameters in the same order, so that it may gather.
        """

        def hook(name: str) -> Callable[[Tensor], Tensor]:
            def replace(gradient: Tensor) -> Tensor:
                take(name, gradient)
                # Frees the gradient, which autograd would hold until backward ends.
                return gradient.new_zeros(()).expand_as(gradient)

            return replace

        handles = [parameter.register_hook(hook(name)) for name, parameter in self.parameters.items()]
        try:
            # DeepSpeed's hooks on parameters are not called, since none gets a gradient.
            torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def sharded_after(self) -> Iterator[None]:
        """Context manager: shard all weights again after a pass, even if it raises or its backward ends early."""
        try:
            yield
        finally:
            if self._stage == 3:
                self._zero._partition_all_parameters()

    @torch.no_grad()
    def publish(self) -> None:
        """Copy `shard.data` to the weights that passes use. All ranks call it."""
        if self._stage == 2:
            self._zero.update_lp_params()
        else:
            self._zero._partition_all_parameters()
            self._zero._reassign_or_swap_out_partitioned_parameters(0)

    def scratch(self) -> list[Tensor]:
        """List DeepSpeed's buffers on the compute device whose values `publish` or the next pass computes again."""
        parts = [getattr(parameter, "ds_tensor", parameter) for parameter in self.parameters.values()]
        gradients = [*(self._zero.averaged_gradients.get(0) or []), self._masters().grad]
        gradients.append(getattr(self._zero, "grad_partitions_flat_buffer", None))
        for bucket in self._zero.ipg_buckets.values():
            gradients += bucket.buffer if isinstance(bucket.buffer, list) else [bucket.buffer]
        buffers = [buffer.detach() for buffer in [*parts, *gradients] if buffer is not None]
        return [buffer for buffer in buffers if buffer.device.type == self.shard.device.type]

    def destroy(self) -> None:
        """Free DeepSpeed's hooks and buffers."""
        # DeepSpeed's hooks and closures outlive its engine and keep references, so storages are freed explicitly.
        free_storages([*self.scratch(), self.shard.data, self.shard.gradient])
        self._engine.destroy()

    def _layout(self, names: dict[int, str]) -> tuple[Tensor, list[Fragment]]:
        """Return this rank's flat fp32 master weights, and the fragments in them."""
        fragments: list[Fragment] = []
        if self._stage == 2:
            for parameter in self._zero.bit16_groups[0]:
                if parameter._hp_mapping is not None:
                    mine, whole = parameter._hp_mapping.hp_fragment_address, parameter._hp_mapping.lp_fragment_address
                    name = names[id(parameter)]
                    fragments.append(Fragment(name=name, offset=mine.start, start=whole.start, length=mine.numel))
            return self._masters().detach(), fragments
        for parameter in self._zero.fp16_groups[0]:
            _, offset, step = self._zero.grad_position[self._zero.get_param_id(parameter)]
            start = dist.get_rank() * step
            length = max(0, min(step, parameter.ds_numel - start))
            fragments.append(
                Fragment(name=names[id(parameter)], offset=offset, start=min(start, parameter.ds_numel), length=length)
            )
        return self._masters().detach(), fragments

    def _gradients(self) -> Iterator[tuple[Fragment, Tensor]]:
        """Yield this micro-batch's gradient of every fragment."""
        # With offloading, the gradient is in host memory with the masters.
        flat = self._masters().grad
        if flat is None and self._stage == 2:
            flat = torch.cat([part.reshape(-1) for part in self._zero.averaged_gradients[0]])
        if flat is not None:
            yield from self.shard.own(flat)
            return
        for fragment, part in zip(self.shard.fragments, self._zero.averaged_gradients[0], strict=True):
            yield fragment, part[: fragment.length]

    def _masters(self) -> Tensor:
        zero = self._zero
        (flat,) = zero.single_partition_of_fp32_groups if self._stage == 2 else zero.fp32_partitioned_groups_flat
        masters: Tensor = flat
        return masters


def _gather_in_bf16(model: nn.Module) -> None:
    """Make DeepSpeed gather weights in bf16 if they are only multiplied in bf16: same products; gradients stay fp32."""
    from deepspeed.runtime.torch_autocast import PARAM_COMM_DTYPE_ATTR_NAME

    layers = list(model.modules())
    other = {
        id(weight) for layer in layers if type(layer) is not nn.Linear for weight in layer.parameters(recurse=False)
    }
    for layer in layers:
        # A weight that is also an embedding is looked up in fp32.
        if type(layer) is nn.Linear and id(layer.weight) not in other:
            setattr(layer.weight, PARAM_COMM_DTYPE_ATTR_NAME, torch.bfloat16)
