"""Check, after every change of weights, that sampling engines compute with the weights of their checkpoint.

Every tensor in the engines must have the checksum of the checkpoint's: no log-probability shows one wrong number among
millions. In addition the engines continue a few fixed prompts, and a plain model of the checkpoint's files scores the
same tokens. Temperature, top-p and top-k are set, so that their conversion is checked along with weights.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from infuser_core.engines.hf.causal_lm import choose_dtype, read_config, read_model
from infuser_core.engines.service.checksum import of_adapter, of_tensors
from infuser_core.engines.service.weight_transfer import TEMPERATURE, TOKENS, WeightTransfer
from infuser_core.errors import EngineError
from infuser_core.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.store.adapter_files import base_folder, read_scale, rename_for_peft

PARAMS = SamplingParams(temperature=TEMPERATURE, top_p=0.9, top_k=50, max_tokens=TOKENS)
"""Sampling parameters for the fixed prompts."""

LIMITS = {"float64": (1e-3, 1e-2), "float32": (1e-3, 1e-2), "bfloat16": (0.1, 1.0), "quantised": (0.6, 3.0)}
"""Largest mean difference, and the single one that few tokens may exceed, nats, by `precision`.

SmolLM2-135M in bf16 compared with fp32 on a CPU, 576 tokens of such prompts: mean .049, of one check's tokens at most
.055, 99th percentile .22, largest .34. One random matrix of its 30 layers moves the mean to .23, a zeroed one to .36, a
missing norm to 4.9, noise of .001 on every weight to .12. Six changes of weights in the real engine, compared with fp32
or the trainer's own bf16: .043 to .070. In fp8, emulated (288 tokens, weights by matrix and inputs by token): .32, of
one check .39, 99th percentile 1.8; a random matrix gives .47, which passes: so quantised engines are always started
fresh.
"""
FAR = 0.03
"""Share of tokens that may exceed the single limit: three of about a hundred."""
THREADS = 16
"""Most CPU threads that compute the plain model: the run waits for it."""


def precision(dtype: str, arguments: Mapping[str, Any]) -> str:
    """Return the row of LIMITS for engines of a dtype with these arguments of vLLM."""
    return dtype if arguments.get("quantization") is None else "quantised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Distance of an engine's log-probabilities from those of its checkpoint."""

    tokens: int
    """Tokens compared."""
    mean: float
    """Mean absolute difference, nats."""
    largest: float
    """Largest absolute difference, nats."""
    far: float
    """Share of tokens beyond the limit of a single token."""
    tensors: int = 0
    """Number of tensors whose checksums were compared and agree."""

    @classmethod
    def of(cls, gaps: Tensor | Sequence[float], dtype: str) -> "Agreement":
        """Summarize the absolute differences of all tokens; `dtype` is a row of LIMITS."""
        differences = torch.as_tensor(gaps, dtype=torch.float64)
        far = float((differences > LIMITS[dtype][1]).double().mean())
        return cls(tokens=len(differences), mean=float(differences.mean()), largest=float(differences.max()), far=far)

    def holds(self, dtype: str) -> bool:
        """Whether the distance is small enough to be rounding, by a row of LIMITS. False for a NaN."""
        return self.mean <= LIMITS[dtype][0] and self.far <= FAR


Drawn = Sequence[Sequence[Completion]]
"""Responses to the fixed prompts."""


class ExpectedWeights(ABC):
    """Checksums and log-probabilities of a checkpoint, with which engines that compute in `dtype` are compared."""

    forced: Sequence[Sequence[int]] = ()
    """Responses that engines must score; empty if they are to draw responses themselves."""
    params = PARAMS
    """Sampling parameters of the responses."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self._folder, self._dtype = folder, dtype

    @abstractmethod
    def close(self) -> None:
        """Free the memory of weights and results."""

    @abstractmethod
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Return the shape of every tensor of the model by name, tied ones under each of their names."""

    @abstractmethod
    def checksums(self) -> Mapping[str, int]:
        """Return the checksum of every tensor, by the names of `shapes`."""

    @abstractmethod
    def gaps(self, groups: Sequence[PromptGroup], responses: Drawn) -> Tensor:
        """Compute absolute differences of an engine's log-probabilities from the checkpoint's, nats."""

    def differing(self, checksums: Mapping[str, Sequence[int]]) -> list[str]:
        """List the tensors that an engine holds in a form with another checksum."""
        return sorted(name for name, own in self.checksums().items() if {own} != {own, *checksums.get(name, [])})

    def require_same(self, name: str, checksums: Mapping[str, Sequence[int]], *, converted: frozenset[str]) -> None:
        """Raise EngineError if the engine `name` holds other tensors than the checkpoint's.

        Tensors that fresh engines already held in another form, the `converted` ones, are not compared.
        """
        wrong = [tensor for tensor in self.differing(checksums) if tensor not in converted]
        if wrong:
            raise EngineError(
                f"{name} does not hold the weights of {self._folder}: the checksums of {len(wrong)} of "
                f"{len(checksums)} tensors differ, e.g. {', '.join(wrong[:3])}",
                hint="fresh engines read the checkpoint from the start: set engine.weight_updates: fresh",
            )

    def check(
        self, names: Sequence[str], groups: Sequence[PromptGroup], responses: Sequence[Drawn], kind: str
    ) -> list[Agreement]:
        """Measure how far each engine's log-probabilities are from the checkpoint's.

        Raises EngineError naming the first engine that is too far off; `kind` is a row of LIMITS.
        """
        mean, largest = LIMITS[kind]
        agreements = [Agreement.of(self.gaps(groups, each), kind) for each in responses]
        for name, agreement in zip(names, agreements, strict=True):
            if not agreement.holds(kind):
                raise EngineError(
                    f"{name} does not hold the weights of {self._folder}: log-probabilities of {agreement.tokens} "
                    f"sampled tokens differ from the checkpoint's by {agreement.mean:.3g} nats on average, "
                    f"{agreement.far:.0%} of them by more than {largest:g} (limits {mean:g} and {FAR:.0%} for {kind})",
                    hint="fresh engines that differ are of a build that computes something else: try another version",
                )
        return agreements


class TransferredWeights(ExpectedWeights):
    """The trainer's checksums and log-probabilities of weights in memory; the checkpoint's files are not read."""

    params = SamplingParams(temperature=TEMPERATURE, max_tokens=TOKENS)

    def __init__(self, folder: Path, dtype: str, transfer: WeightTransfer) -> None:
        super().__init__(folder, dtype)
        self._transfer, self.forced = transfer, transfer.responses

    def close(self) -> None:
        del self._transfer

    def shapes(self) -> Mapping[str, Sequence[int]]:
        return self._transfer.shapes

    def checksums(self) -> Mapping[str, int]:
        return self._transfer.checksums

    def gaps(self, groups: Sequence[PromptGroup], responses: Drawn) -> Tensor:
        pairs = zip(chain.from_iterable(responses), self._transfer.logprobs, strict=True)
        return torch.cat(
            [
                (torch.tensor(list(completion.logprobs)) - torch.tensor(list(expected))).abs()
                for completion, expected in pairs
            ]
        )


class PlainModel(ExpectedWeights):
    """Checksums and log-probabilities of a checkpoint's files, by a model on the CPU in at least fp32.

    The model loads while engines start. With `merged`, a checkpoint's adapter is part of the model's tensors; without,
    the tensors are those of its base model, and the adapter's.
    """

    def __init__(self, folder: Path, dtype: str, *, merged: bool) -> None:
        super().__init__(folder, dtype)
        self._base = None if merged else base_folder(folder)
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._model: Future[PreTrainedModel] = self._executor.submit(self._read_model)
        self._checksums: Future[dict[str, int]] = self._executor.submit(self._compute_checksums)
        # Computed once for equal responses: engines with the same seeds mostly agree.
        self._logprobs: dict[tuple[tuple[int, ...], tuple[int, ...]], Tensor] = {}

    def close(self) -> None:
        self._executor.shutdown()
        del self._model

    def shapes(self) -> Mapping[str, Sequence[int]]:
        weights, adapter = self._tensors()
        return {name: [*tensor.shape] for name, tensor in (weights | adapter).items()}

    def checksums(self) -> Mapping[str, int]:
        return self._checksums.result()

    @torch.inference_mode()
    def gaps(self, groups: Sequence[PromptGroup], responses: Drawn) -> Tensor:
        gaps: list[Tensor] = []
        with _torch_threads(min(THREADS, os.cpu_count() or 1)):
            for group, completions in zip(groups, responses, strict=True):
                for completion in completions:
                    expected = self._score(group.token_ids, completion.token_ids)
                    gaps.append((expected - torch.tensor(completion.logprobs)).abs())
        return torch.cat(gaps)

    def _compute_checksums(self) -> dict[str, int]:
        weights, adapter = self._tensors()
        workers = min(THREADS, os.cpu_count() or 1)
        # One tensor per thread: the steps of a checksum are too small for torch's own threads.
        with (
            _torch_threads(1),
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as threads,
        ):
            parts = threads.map(lambda weight: of_tensors(dict([weight]), self._dtype), weights.items())
            sums = dict(chain.from_iterable(part.items() for part in parts))
        return sums | (of_adapter(adapter, self._dtype, scale=read_scale(self._folder)) if adapter else {})

    def _read_model(self) -> PreTrainedModel:
        folder, base = self._folder, self._base
        exact = torch.promote_types(choose_dtype(self._dtype), torch.float32)
        model = read_model(base or folder, read_config(base or folder), dtype=exact, attention="sdpa").eval()
        if base is not None:
            # Imported here: peft takes seconds.
            from infuser_core.engines.hf.adapters import attach_adapters

            attach_adapters(model, folder)
        return model

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the tensors of the model and of the adapter, by their names in files; tied ones under each name."""
        tensors: dict[str, Tensor] = dict(self._model.result().named_parameters(remove_duplicate=False))
        adapter = {name: each for name, each in tensors.items() if ".lora_" in name}
        # peft moves a layer with an adapter into another one.
        weights = {name.replace(".base_layer.", "."): each for name, each in tensors.items() if name not in adapter}
        return weights, rename_for_peft(adapter)

    def _score(self, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Compute the log-probability of every response token, drawn with PARAMS, nats."""
        key = (tuple(prompt), tuple(tokens))
        if key not in self._logprobs:
            ids = torch.tensor([[*prompt, *tokens]])
            logits = self._model.result()(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
            logprobs = torch.log_softmax(logits.float() / PARAMS.temperature, -1)
            self._logprobs[key] = logprobs.gather(1, torch.tensor(list(tokens))[:, None])[:, 0]
        return self._logprobs[key]


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """Make torch use `count` CPU threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
