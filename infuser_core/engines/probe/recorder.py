"""Record the operands of a model's weight gradients during backward, so that the probe can form them per question.

Inside `Recorder.recording` the forward methods of layers with parameters are replaced by functions with equal outputs,
whose backward passes the operands of the weight's gradient to `note` and returns None as the gradient. Gradient
checkpointing runs such a forward twice and its backward once, so that nothing is counted twice. Shapes: _T tokens, _O
and _I output and input features.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from infuser_core.engines.hf.norms import epsilon_of, is_rms_norm
from infuser_core.engines.probe.choice import refusal
from infuser_core.engines.probe.sums import QuestionSums


class RecordedLinear(torch.autograd.Function):
    """Linear layer y = x W^T + b in the dtype of x; backward calls `note(dy, x)` with [T, O] and [T, I]."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, note: Callable[[Tensor, Tensor], None]
    ) -> Tensor:
        ctx.save_for_backward(states, weight)
        ctx.note = note
        return F.linear(states, weight.to(states.dtype), None if bias is None else bias.to(states.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        states, weight = ctx.saved_tensors
        ctx.note(gradients[0].flatten(0, -2), states.flatten(0, -2))
        return gradients[0] @ weight.to(gradients[0].dtype), None, None, None


class RecordedEmbedding(torch.autograd.Function):
    """Embedding: rows of a weight by token id; backward calls `note(dy)` with [T, I]."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, note: Callable[[Tensor], None]) -> Tensor:
        ctx.note = note
        return F.embedding(tokens, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.note(gradients[0].flatten(0, -2))
        return None, None, None


class RecordedNorm(torch.autograd.Function):
    """RMS norm y = weight * x / sqrt(mean(x^2) + eps) in the weight's dtype; `note` gets d weight of each token."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, eps: float, note: Callable[[Tensor], None]) -> Tensor:
        wide = states.to(weight.dtype)
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(wide.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(states, weight, scale)
        ctx.note = note
        return (wide * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        states, weight, scale = ctx.saved_tensors
        gradient = gradients[0].to(weight.dtype)
        normed = states.to(weight.dtype) * scale
        share = gradient * normed
        ctx.note(share)
        mean = (share @ weight).unsqueeze_(-1).div_(weight.numel())
        result = (gradient * weight).sub_(normed.mul_(mean)).mul_(scale)
        return result.to(states.dtype), None, None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNames:
    """Names of the parameters of a model's output layer."""

    weight: str
    """The embedding's name if they are tied."""
    bias: str | None
    tied: bool
    """Whether the embedding shares the weight."""


class Recorder:
    """Records a model's layers with parameters. Raises UnknownLayerError naming the layers that it does not support."""

    def __init__(self, model: PreTrainedModel, *, compute_dtype: torch.dtype) -> None:
        self._compute_dtype = compute_dtype
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._sums: QuestionSums | None = None
        self._forwards: list[tuple[nn.Module, Callable[[Tensor], Tensor]]] = []
        self.head = self._head_names(model)
        """Names of the output layer's parameters; None if it is frozen."""
        users: dict[str, list[str]] = {}
        unknown: dict[str, str] = {}
        for path, module in model.named_modules():
            trained = [parameter for parameter in module.parameters(recurse=False) if parameter.requires_grad]
            for parameter in trained:
                users.setdefault(self._names[id(parameter)], []).append(path)
            if trained and module is not model.get_output_embeddings():
                forward = self._recorded_forward(path, module)
                if forward is None:
                    parameters = ", ".join(name for name, _ in module.named_parameters(recurse=False))
                    unknown.setdefault(f"{type(module).__name__} with {parameters}", path)
                else:
                    self._forwards.append((module, forward))
        if unknown:
            raise refusal(" and ".join(f"{path} ({kind})" for kind, path in unknown.items()))
        for name, paths in users.items():
            tied = self.head is not None and self.head.tied and name == self.head.weight
            if len(paths) > 1 and not (tied and len(paths) == 2):
                raise refusal(f"{name}, shared by {' and '.join(paths)}")

    @contextmanager
    def recording(self, sums: QuestionSums) -> Iterator[None]:
        """Make the backward passes of forward passes in the block add their weight gradients to `sums`."""
        self._sums = sums
        originals = [(module, module.__dict__.get("forward")) for module, _ in self._forwards]
        for module, forward in self._forwards:
            module.__dict__["forward"] = forward
        try:
            yield
        finally:
            for module, original in originals:
                del module.__dict__["forward"]
                if original is not None:
                    module.__dict__["forward"] = original
            self._sums = None

    def _current_sums(self) -> QuestionSums:
        assert self._sums is not None, "recorded layers are in place only while recording"
        return self._sums

    def _head_names(self, model: PreTrainedModel) -> HeadNames | None:
        head = model.get_output_embeddings()
        if type(head) is not nn.Linear:
            raise refusal(f"the output layer {type(head).__name__}")
        if not head.weight.requires_grad:
            return None
        weight = self._names[id(head.weight)]
        bias = None if head.bias is None else self._names[id(head.bias)]
        return HeadNames(weight=weight, bias=bias, tied=head.weight is model.get_input_embeddings().weight)

    def _recorded_forward(self, path: str, module: nn.Module) -> Callable[[Tensor], Tensor] | None:
        if is_rms_norm(module):
            return self._norm_forward(module)
        if "forward" in module.__dict__:
            raise refusal(f"{path}, whose forward method was replaced")
        if type(module) is nn.Linear:
            return self._linear_forward(module)
        if type(module) is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq:
            return self._embedding_forward(module)
        return None

    def _linear_forward(self, module: nn.Linear) -> Callable[[Tensor], Tensor]:
        weight_name = self._names[id(module.weight)]
        bias_name = None if module.bias is None else self._names[id(module.bias)]

        def forward(states: Tensor) -> Tensor:
            sums = self._current_sums()

            def note(left_TO: Tensor, right_TI: Tensor) -> None:
                sums.add_linear(weight_name, left_TO, right_TI)
                if bias_name is not None:
                    sums.add_tokens(bias_name, left_TO)

            output: Tensor = RecordedLinear.apply(states.to(self._compute_dtype), module.weight, module.bias, note)
            return output

        return forward

    def _embedding_forward(self, module: nn.Embedding) -> Callable[[Tensor], Tensor]:
        name = self._names[id(module.weight)]

        def forward(tokens: Tensor) -> Tensor:
            sums = self._current_sums()

            def note(gradients_TI: Tensor) -> None:
                sums.add_embedding(name, gradients_TI, padding=module.padding_idx)

            output: Tensor = RecordedEmbedding.apply(tokens, module.weight, note)
            return output

        return forward

    def _norm_forward(self, module: nn.Module) -> Callable[[Tensor], Tensor]:
        weight = module.weight
        eps = epsilon_of(module)
        assert isinstance(weight, nn.Parameter) and eps is not None
        name, wide = self._names[id(weight)], weight.dtype
        # Some stock layers multiply by the scale after returning to the input's dtype, some before.
        with torch.no_grad():
            widens = module(torch.ones(1, len(weight), dtype=torch.bfloat16, device=weight.device)).dtype == wide

        def forward(states: Tensor) -> Tensor:
            sums = self._current_sums()
            # Tokens must be the outermost dimension, [1, T, ...], and one after another in memory.
            if states.shape[:2] != (1, sums.num_tokens) or states.stride(1) < max(states.stride()[2:]):
                raise refusal(f"{name}, whose input of shape {tuple(states.shape)} is not ordered by token")

            def note(gradients: Tensor) -> None:
                sums.add_tokens(name, gradients)

            output: Tensor = RecordedNorm.apply(states, weight, eps, note)
            return output if widens else output.to(states.dtype)

        return forward
