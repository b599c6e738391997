"""Compute log-probabilities of packed responses under a transformers model, with gradients.

Shapes: _T tokens of a micro-batch, _S response tokens, _V vocabulary.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infuser_core.engines.hf.causal_lm import hidden_states
from infuser_core.engines.training.output_layer import OutputLayer
from infuser_core.engines.training.packing import MicroBatch
from infuser_core.engines.training.recomputation import Recomputation
from infuser_core.errors import EngineError


class ModelPolicy:
    """loss.Policy over a transformers model, whose weights are in a master dtype; computes in `compute_dtype`.

    `device`: where it will compute, if the model has yet to be moved there.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        compute_dtype: torch.dtype,
        recomputation: Recomputation | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.model = model
        self._recomputation = recomputation
        self.compute_dtype = compute_dtype
        head = model.get_output_embeddings()
        if type(head) is not nn.Linear:
            raise EngineError(
                f"the output layer of {type(model).__name__} is {type(head).__name__}, and not a plain linear one",
                hint="choose a model whose logits are one linear map, and no adapter on its output layer",
            )
        self.output = OutputLayer.of(head, compute_dtype, device or model.device)

    def logprobs(self, batch: MicroBatch, *, temperature: float) -> Tensor:
        """Compute log pi(token) of every response token, [S]."""
        return self.output.logprobs(self.predictors(batch), batch.targets_S, temperature)

    def with_entropy(self, batch: MicroBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        """Compute `logprobs`, and the entropy of the distribution of every response token, each [S]."""
        return self.output.with_entropy(self.predictors(batch), batch.targets_S, temperature)

    def predictors(self, batch: MicroBatch) -> Tensor:
        """Compute the final hidden state of the token before every response token, [S, H]."""
        if self._recomputation is not None:
            self._recomputation.choose(batch.input_ids.shape[1])
        rounded = self.compute_dtype == torch.bfloat16
        with torch.autocast(self.model.device.type, dtype=torch.bfloat16, enabled=rounded):
            hidden = hidden_states(self.model, batch.input_ids, batch.position_ids, batch.layout)
            return hidden[0].index_select(0, batch.predictors_S)


def tied_names(model: nn.Module) -> dict[str, str]:
    """Map the other names of tied parameters to the name that checkpoints use."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: names[id(parameter)] for name, parameter in every if names[id(parameter)] != name}
