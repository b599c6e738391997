"""Worker process of the sampling service that runs a vLLM engine.

Runs as `python -m infuser_core.engines.vllm.worker FD SETTINGS` in an environment with vllm. Of this project it imports
only the pipe, the checksums and what draws tokens.
"""

import sys
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from infuser_core.engines.service.checksum import whole
from infuser_core.engines.service.server import ADAPTER, FORCED, Row, main
from infuser_core.memory.hardware import free_host_memory, sleep_level

PROCESSOR = "infuser_core.engines.vllm.logits:DrawTokens"
"""The logits processor, as vllm's own processes import it."""
DRAW_SETTINGS = ("temperature", "top_p", "top_k")
"""Sampling parameters that the processor applies, not vllm."""


class VLLMEngine:
    """service.server.Engine over a vLLM engine in this process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._engines_here, self._level = settings.pop("engines_here"), 0
        from vllm import SamplingParams, __version__
        from vllm.engine.arg_utils import EngineArgs
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        self._version, self._params = __version__, SamplingParams
        # Responses are returned when they are complete: otherwise the engine copies each one at every step.
        self._whole = RequestOutputKind.FINAL_ONLY
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                **settings,
                skip_tokenizer_init=True,
                trust_remote_code=False,
                enable_prefix_caching=True,
                # The processor makes the logit of the drawn token its log-probability.
                logprobs_mode="processed_logits",
                logits_processors=[PROCESSOR],
                generation_config="vllm",
                # Logits in fp32: rounded to bf16 they move log-probabilities away from the trainer's.
                hf_overrides={"head_dtype": "float32"},
                disable_log_stats=True,
            ),
            # Defaults for the responses and tokens of a step: those for offline work, not for serving.
            usage_context=UsageContext.LLM_CLASS,
        )
        self._new_adapter, self._adapter = LoRARequest, None
        if settings.get("enable_lora"):
            self._take_adapter()

    def facts(self) -> dict[str, Any]:
        """Return version, limits and dtype, in plain values."""
        config, limits = self._engine.model_config, self._engine.vllm_config.scheduler_config
        return {
            "vllm": self._version,
            "max_model_len": config.max_model_len,
            "dtype": str(config.dtype),
            "head_dtype": str(config.head_dtype),
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
        }

    def busy(self) -> bool:
        return bool(self._engine.has_unfinished_requests())

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        forced = params.get(FORCED, {}).get(key, [])
        request = self._params(
            temperature=0.0,
            max_tokens=len(forced) or params["max_tokens"],
            stop_token_ids=params["stop_token_ids"],
            extra_args={"seed": seed, FORCED: forced, **{name: params[name] for name in DRAW_SETTINGS}},
            logprobs=0,
            detokenize=False,
            output_kind=self._whole,
        )
        self._engine.add_request(key, {"prompt_token_ids": prompt}, request, lora_request=self._adapter)

    def step(self) -> list[Row]:
        """Compute one token of every unfinished response that fits in memory; returns the completed responses."""
        rows = []
        for output in self._engine.step():
            (completion,) = output.outputs
            tokens = list(completion.token_ids)
            logprobs = [values[token].logprob for token, values in zip(tokens, completion.logprobs, strict=True)]
            reason = str(completion.finish_reason)
            rows.append(Row(key=output.request_id, tokens=tokens, logprobs=logprobs, reason=reason))
        return rows

    def under_way(self) -> int:
        states = self._engine.output_processor.request_states.values()
        return sum(state.detokenizer.num_output_tokens() for state in states)

    def load(self) -> None:
        if self._adapter is None:
            self._engine.collective_rpc("reload_weights")
            self._engine.apply_model(_pack_again)
        else:
            self._take_adapter()
        self._engine.reset_prefix_cache()

    def _take_adapter(self) -> None:
        """Replace the adapter by that of the files, under a new number: vLLM keeps those it knows."""
        number = 1
        if self._adapter is not None:
            number = self._adapter.lora_int_id + 1
            self._engine.remove_lora(self._adapter.lora_int_id)
        path = str(Path(ADAPTER).absolute())
        self._adapter = self._new_adapter(lora_name=str(number), lora_int_id=number, lora_path=path)
        self._engine.add_lora(self._adapter)

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        """Compute checksums of the tensors that all ranks together hold (see weights)."""
        from infuser_core.engines.vllm.weights import checksums

        ranks = self._engine.apply_model(partial(checksums, shapes=shapes, dtype=dtype))
        return {
            name: [whole(chain(*form)) for form in zip(*(rank.get(name, []) for rank in ranks), strict=False)]
            for name in ranks[0]
        }

    def sleep(self) -> int:
        """Sleep at the level that main memory allows at the first time; returns the level."""
        if self._adapter is not None:
            # Layers with adapters cannot read their weights again.
            self._level = 1
        if not self._level:
            weights = sum(self._engine.apply_model(_count_bytes))
            self._level = sleep_level(weights, engines=self._engines_here, free=free_host_memory())
        self._engine.sleep(level=self._level)
        return self._level

    def wake(self) -> None:
        self._engine.wake_up()


def _count_bytes(model: Any) -> int:
    """Count the bytes of this rank's weights."""
    return sum(parameter.nbytes for parameter in model.parameters())


def _pack_again(model: Any) -> None:
    """Make kernels pack tied weights again: vLLM's reload skips the second of two layers that share a tensor."""
    layers = [layer for layer in model.modules() if getattr(layer, "weight", None) is not None]
    owners = Counter(id(layer.weight) for layer in layers)
    for layer in layers:
        if owners[id(layer.weight)] > 1 and hasattr(layer, "quant_method"):
            layer.quant_method.process_weights_after_loading(layer)


if __name__ == "__main__":
    main(sys.argv[1:], VLLMEngine)
