"""Check after every change of weights that a sampler computes with its checkpoint.

Every tensor that its engines hold has the checksum of the checkpoint's own: no log-probability shows one wrong number
among millions. And a few fixed prompts are continued by the sampler, while a plain model of the checkpoint's own files
scores the very tokens. Temperature, top-p and top-k are set, so that their conversion is checked along with weights.
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
from infuser_core.engines.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.engines.service.checksum import of_tensors
from infuser_core.engines.service.handover import TEMPERATURE, TOKENS, Handover
from infuser_core.errors import EngineError

PARAMS = SamplingParams(temperature=TEMPERATURE, top_p=0.9, top_k=50, max_tokens=TOKENS)
"""How the fixed prompts are continued."""

LIMITS = {"float64": (1e-3, 1e-2), "float32": (1e-3, 1e-2), "bfloat16": (0.1, 1.0), "quantised": (0.6, 3.0)}
"""Largest mean difference, and the single one that few tokens may exceed, nats, by `precision`.

SmolLM2-135M in bf16 beside fp32 on a CPU, 576 tokens of such prompts: mean .049, of one check's tokens at most .055,
99th percentile .22, largest .34. One random matrix of its 30 layers moves the mean to .23, a zeroed one to .36, a
missing norm to 4.9, noise of .001 on every weight to .12. Six changes of weights in the real engine, beside fp32 or
the trainer's own bf16: .043 to .070. In fp8, emulated (288 tokens, weights by matrix and inputs by token): .32, of one
check .39, 99th percentile 1.8; a random matrix gives .47, which passes: quantised engines always start afresh.
"""
FAR = 0.03
"""Share of tokens that may exceed the single limit: three of some hundred, each as unlikely as it was drawn."""
THREADS = 16
"""Most CPU threads that compute the plain model: everybody waits for it."""


def precision(dtype: str, arguments: Mapping[str, Any]) -> str:
    """The row of LIMITS for engines of a dtype and with those arguments of vLLM."""
    return dtype if arguments.get("quantization") is None else "quantised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Distance of a sampler's log-probabilities from the checkpoint's own."""

    tokens: int
    """Tokens compared."""
    mean: float
    """Mean absolute difference, nats."""
    largest: float
    """Largest absolute difference, nats."""
    far: float
    """Share of tokens beyond the limit of a single one."""
    tensors: int = 0
    """Tensors of the checkpoint whose checksums the sampler's own are."""

    @classmethod
    def of(cls, gaps: Tensor | Sequence[float], dtype: str) -> "Agreement":
        """Of the absolute differences of every token."""
        every = torch.as_tensor(gaps, dtype=torch.float64)
        far = float((every > LIMITS[dtype][1]).double().mean())
        return cls(tokens=len(every), mean=float(every.mean()), largest=float(every.max()), far=far)

    def holds(self, dtype: str) -> bool:
        """Whether it is what rounding explains. False for a NaN."""
        return self.mean <= LIMITS[dtype][0] and self.far <= FAR


Drawn = Sequence[Sequence[Completion]]
"""Responses to the fixed prompts."""


class Claim(ABC):
    """Checksums and log-probabilities of a checkpoint, to compare engines of that `dtype` with."""

    forced: Sequence[Sequence[int]] = ()
    """Responses whose log-probabilities are wanted; none for what engines draw themselves."""
    params = PARAMS
    """How they are drawn."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self._folder, self._dtype = folder, dtype

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""

    @abstractmethod
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Of every tensor of the model by name, tied ones under each of theirs."""

    @abstractmethod
    def sums(self) -> Mapping[str, int]:
        """Checksums by the same names."""

    @abstractmethod
    def gaps(self, groups: Sequence[PromptGroup], drawn: Drawn) -> Tensor:
        """Absolute differences of the engines' log-probabilities from its own, nats."""

    def unlike(self, held: Mapping[str, Sequence[int]]) -> list[str]:
        """Names of tensors of which a form that an engine holds has another checksum."""
        return sorted(name for name, own in self.sums().items() if {own} != {own, *held.get(name, [])})

    def require_same(self, name: str, held: Mapping[str, Sequence[int]], *, own: frozenset[str]) -> None:
        """Raises EngineError where the engine of that name holds other tensors than the checkpoint's, those of forms of
        its `own` apart."""
        wrong = [each for each in self.unlike(held) if each not in own]
        if wrong:
            raise EngineError(
                f"{name} does not hold the weights of {self._folder}: the checksums of {len(wrong)} of {len(held)} "
                f"tensors differ, e.g. {', '.join(wrong[:3])}",
                hint="fresh engines read the checkpoint from the start: set engine.weight_updates: fresh",
            )

    def check(
        self, names: Sequence[str], groups: Sequence[PromptGroup], drawn: Sequence[Drawn], kind: str
    ) -> list[Agreement]:
        """Distance of each engine's log-probabilities. Raises EngineError naming the first that is too far for engines
        whose matrices are of that kind."""
        mean, largest = LIMITS[kind]
        found = [Agreement.of(self.gaps(groups, each), kind) for each in drawn]
        for name, one in zip(names, found, strict=True):
            if not one.holds(kind):
                raise EngineError(
                    f"{name} does not hold the weights of {self._folder}: log-probabilities of {one.tokens} sampled "
                    f"tokens differ from the checkpoint's by {one.mean:.3g} nats on average, {one.far:.0%} of them by "
                    f"more than {largest:g} (limits {mean:g} and {FAR:.0%} for {kind})",
                    hint="fresh engines that differ are of a build that computes something else: try another version",
                )
        return found


class HandedOver(Claim):
    """Weights that the trainer gave, by its own word: nobody reads the checkpoint's files."""

    params = SamplingParams(temperature=TEMPERATURE, max_tokens=TOKENS)

    def __init__(self, folder: Path, dtype: str, handed: Handover) -> None:
        super().__init__(folder, dtype)
        self._handed, self.forced = handed, handed.responses

    def close(self) -> None:
        del self._handed

    def shapes(self) -> Mapping[str, Sequence[int]]:
        return self._handed.shapes

    def sums(self) -> Mapping[str, int]:
        return self._handed.checksums

    def gaps(self, groups: Sequence[PromptGroup], drawn: Drawn) -> Tensor:
        pairs = zip(chain.from_iterable(drawn), self._handed.logprobs, strict=True)
        return torch.cat([(torch.tensor(list(own.logprobs)) - torch.tensor(list(known))).abs() for own, known in pairs])


class Reference(Claim):
    """The plain model of a checkpoint folder, on the CPU in at least fp32. It loads while engines start."""

    def __init__(self, folder: Path, dtype: str) -> None:
        super().__init__(folder, dtype)
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._model: Future[PreTrainedModel] = self._executor.submit(_plain_model, folder, dtype)
        self._sums: Future[dict[str, int]] = self._executor.submit(self._checksums)
        # Once for each response: engines with the same seeds mostly agree.
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Tensor] = {}

    def close(self) -> None:
        self._executor.shutdown()
        del self._model

    def shapes(self) -> Mapping[str, Sequence[int]]:
        return {name: [*each.shape] for name, each in self._model.result().named_parameters(remove_duplicate=False)}

    def sums(self) -> Mapping[str, int]:
        return self._sums.result()

    def gaps(self, groups: Sequence[PromptGroup], drawn: Drawn) -> Tensor:
        with _threads(min(THREADS, os.cpu_count() or 1)):
            pairs = [
                (self._score(group.token_ids, completion.token_ids), completion.logprobs)
                for group, completions in zip(groups, drawn, strict=True)
                for completion in completions
            ]
        return torch.cat([(own - torch.tensor(theirs)).abs() for own, theirs in pairs])

    def _checksums(self) -> dict[str, int]:
        named = self._model.result().named_parameters(remove_duplicate=False)
        workers = min(THREADS, os.cpu_count() or 1)
        # A tensor to a thread: torch's own threads would share out steps that are far too small for that.
        with _threads(1), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            found = pool.map(lambda item: of_tensors(dict([item]), self._dtype), named)
            return {name: one for each in found for name, one in each.items()}

    @torch.inference_mode()
    def _score(self, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Log-probability of every response token, drawn with PARAMS, nats."""
        key = (tuple(prompt), tuple(tokens))
        if key not in self._known:
            ids = torch.tensor([[*prompt, *tokens]])
            hidden = self._model.result()(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
            logprobs = torch.log_softmax(hidden.float() / PARAMS.temperature, -1)
            self._known[key] = logprobs.gather(1, torch.tensor(list(tokens))[:, None])[:, 0]
        return self._known[key]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many CPU threads for torch, and then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _plain_model(folder: Path, dtype: str) -> PreTrainedModel:
    exact = torch.promote_types(choose_dtype(dtype), torch.float32)
    return read_model(folder, read_config(folder), dtype=exact, attention="sdpa").eval()
