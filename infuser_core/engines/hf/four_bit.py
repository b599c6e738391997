"""Linear layers of a frozen model in 4 bits (NF4), computed by the library bitsandbytes.

QLoRA (Dettmers et al. 2023, arXiv 2305.14314, section 3): 64 weights share a scale, scales take 8 bits each, and every
product converts its matrix to the dtype of its input. Weights are rounded to bf16 first, so that the 4-bit numbers do
not depend on the dtype in which a model was loaded. Import this module only where 4 bits are asked for.
"""

from typing import Any

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from torch import Tensor, nn
from transformers import PreTrainedModel

from infuser_core.engines.hf.adapters import linear_layers
from infuser_core.store.adapter_files import PACKING

KIND = str(PACKING["bnb_4bit_quant_type"])


class FourBitLinear(bitsandbytes.nn.Linear4bit):  # type: ignore[misc]
    """A linear layer whose weight is 4-bit numbers; its output has autocast's dtype, as that of nn.Linear has.

    The library's own forward returns the dtype of the input, and on some CPUs gives the weight a form without backward.
    """

    def forward(self, states: Tensor) -> Tensor:
        device = states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        weight: Any = self.weight
        state = weight.quant_state
        if dtype == torch.float64:
            # The library's kernel for fp64 on a CPU returns numbers that it has not computed.
            return nn.functional.linear(states, dequantize_4bit(weight.data, state).double(), bias)
        output: Tensor = bitsandbytes.matmul_4bit(states.to(dtype), weight.t(), bias=bias, quant_state=state)
        return output


def pack_layers(model: PreTrainedModel, device: torch.device) -> None:
    """Replace the linear layers of `model`, except its output layer, by 4-bit ones on `device`."""
    for path in linear_layers(model):
        layer = model.get_submodule(path)
        assert isinstance(layer, nn.Linear)
        packed = FourBitLinear(layer.in_features, layer.out_features, bias=False, quant_type=KIND, device="meta")
        weight = _rounded(layer.weight)
        numbers: Any = bitsandbytes.nn.Params4bit(
            weight, requires_grad=False, compress_statistics=True, quant_type=KIND, module=packed
        )
        packed.weight = numbers.to(device)
        packed.bias = layer.bias
        model.set_submodule(path, packed)


@torch.no_grad()
def round_layers(model: PreTrainedModel) -> None:
    """Round the linear layers of `model`, except its output layer, to the values of their 4-bit numbers."""
    for path in linear_layers(model):
        weight = model.get_submodule(path).weight
        assert isinstance(weight, Tensor)
        weight.copy_(dequantize_4bit(*quantize_4bit(_rounded(weight), compress_statistics=True, quant_type=KIND)))


def _rounded(weight: Tensor) -> Tensor:
    return weight.data.bfloat16().to(torch.bfloat16 if weight.dtype == torch.bfloat16 else torch.float32)
