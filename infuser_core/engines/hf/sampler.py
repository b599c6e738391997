"""Sample responses from a transformers causal language model: prompts once per group, one decode loop for all rows.

The uniform random number of a token is a hash of (its sample's seed, its position), so that a response does not depend
on the other responses of its batch. On a CPU, groups are decoded in batches whose rows a request alone determines; on
an accelerator, rows join as others end (hf.continuous). Shapes: _G groups, _N samples per group, _R = G x N rows of the
grid, _P prompt tokens, _V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from infuser_core.engines.draws import pick_tokens, uniforms
from infuser_core.engines.hf.causal_lm import (
    choose_device,
    choose_dtype,
    configure_process,
    device_name,
    hidden_states,
    load_model,
    read_end_tokens,
    refill,
    set_deterministic,
)
from infuser_core.engines.hf.continuous import Decoder
from infuser_core.engines.hf.layouts import DecodeCache, PrefillLayout
from infuser_core.engines.hf.limits import most_positions, require_finite
from infuser_core.engines.hf.output_head import OutputHead
from infuser_core.engines.hf.renderer import Renderer, require_room
from infuser_core.engines.model_files import companions
from infuser_core.engines.training.checkpoint import STATE
from infuser_core.engines.training.self_test import require_same_once
from infuser_core.errors import EngineError
from infuser_core.memory.sizes import CACHE_TOKENS
from infuser_core.protocols import (
    Completion,
    Keep,
    Progress,
    PromptGroup,
    SamplingParams,
    no_keep,
    no_progress,
)
from infuser_core.schemas import Checkpoint
from infuser_core.store.adapter_files import is_packed
from infuser_core.store.series import Series

SHRINK_AT = 0.75
"""The batch is rebuilt without finished rows once this share of its rows suffices: rebuilding copies the cache."""


class HFSampler:
    """protocols.Sampler of a transformers model on one device.

    `cache_tokens` bounds the cached tokens of a batch (prompts once, plus response limit per sample), `prefill_tokens`
    the prompt tokens of one prefill call. With `continuous`, by default on CUDA alone, rows join as others end, as many
    as the free memory holds instead of `cache_tokens`. `deterministic`: see `set_deterministic`; on an accelerator
    torch has no repeatable cumulative sum and raises. `seals` is the folder of passed self-tests, for checkpoints whose
    ids are digests.
    """

    def __init__(
        self,
        *,
        dtype: str,
        device: str,
        threads: int,
        deterministic: bool,
        cache_tokens: int = CACHE_TOKENS,
        prefill_tokens: int = 16_384,
        continuous: bool | None = None,
        seals: Path | None = None,
    ) -> None:
        configure_process(threads)
        set_deterministic(deterministic)
        self._dtype = choose_dtype(dtype)
        self._device = choose_device(device)
        self._cache_tokens = cache_tokens
        self._prefill_tokens = prefill_tokens
        self._continuous = self._device.type == "cuda" if continuous is None else continuous
        self._decoding: dict[str, Any] = {}
        self._seals = seals
        self._model: PreTrainedModel | None = None
        self._renderer: Renderer | None = None
        self._ends: list[int] = []
        self._companions: Mapping[str, bytes] = {}

    forgets = True
    """Whether a checkpoint must be loaded after `wake`."""

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the loaded model by name, tied ones under each of their names; empty while asleep."""
        return {} if self._model is None else dict(self._model.named_parameters(remove_duplicate=False))

    def sleep(self) -> None:
        """Free the memory of the model."""
        self._model, self._renderer = None, None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Do nothing: `load` restores the model."""

    def facts(self) -> dict[str, Any]:
        """Describe device and kernels, for an artifact's record."""
        return {
            "engine": "hf",
            "device": device_name(self._device),
            "dtype": str(self._dtype).removeprefix("torch."),
            "attention": "sdpa, decoding by matrix products",
            **self._decoding,
        }

    @property
    def tokenizer(self) -> Renderer:
        if self._renderer is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        return self._renderer

    def load(self, checkpoint: Checkpoint) -> None:
        folder = Path(checkpoint.path)
        files = companions(folder)
        if self._model is None or files != self._companions or not refill(self._model, folder):
            self.sleep()
            self._renderer = Renderer(folder)
            model = load_model(folder, dtype=self._dtype, device=self._device, attached=is_packed(folder))
            # Checkpoints of a run come from a base model (the anchor) that passed the self-test.
            if not (folder / STATE).is_file():
                require_same_once(model, checkpoint.checkpoint_id, self._seals)
            self._model = model
            self._ends = read_end_tokens(folder, self._renderer.end_token)
        self._companions = files

    @torch.inference_mode()
    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """Sample one completion per seed and group, in the caller's order. Raises EngineError for a bad prompt."""
        if self._model is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        vocabulary = int(self._model.config.get_text_config().vocab_size)
        require_room(groups, params, most_positions(self._model.config), vocabulary)
        if self._continuous:
            decoder = Decoder(self._model, params, self._ends, prefill_tokens=self._prefill_tokens)
            self._decoding = decoder.facts()
            return decoder.run(groups, progress, keep)
        results: list[list[Completion]] = [[] for _ in groups]
        total, finished, tokens = sum(len(group.seeds) for group in groups), 0, 0
        for places in self._batches(groups, params):
            batch = _Batch(self._model, [groups[place] for place in places], params, self._ends, self._prefill_tokens)
            for place, completions in zip(places, batch.run(), strict=True):
                results[place] = completions
                finished += len(completions)
                tokens += sum(len(completion.token_ids) for completion in completions)
                for row, completion in enumerate(completions):
                    keep(place, row, completion)
            progress(finished, total, tokens)
        return results

    @torch.inference_mode()
    def score(self, prompt: Sequence[int], tokens: Sequence[int], *, temperature: float) -> list[float]:
        """Compute the log-probability of every token of a response, nats."""
        assert self._model is not None
        ids = torch.tensor([[*prompt, *tokens]], device=self._device)
        width = ids.shape[1]
        cache = DecodeCache(torch.tensor([width], device=self._device), 1, 1)
        places = torch.arange(width, device=self._device)[None]
        hidden = hidden_states(self._model, ids, places, PrefillLayout(cache, 0, width))[0, len(prompt) - 1 : -1]
        logits_TV = OutputHead(self._model).logits(hidden) / temperature
        logprobs: list[float] = torch.log_softmax(logits_TV, -1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()
        return logprobs

    def _batches(self, groups: Sequence[PromptGroup], params: SamplingParams) -> Iterator[list[int]]:
        """Yield the places of the groups of each batch, longest prompts first so that a batch pads little."""
        order = sorted(range(len(groups)), key=lambda place: -len(groups[place].token_ids))
        batch: list[int] = []
        used = 0
        for place in order:
            if not groups[place].seeds:
                continue
            need = len(groups[place].token_ids) + len(groups[place].seeds) * groups[place].limit(params)
            if batch and used + need > self._cache_tokens:
                yield batch
                batch, used = [], 0
            batch.append(place)
            used += need
        if batch:
            yield batch


class _Batch:
    """One decoding batch: a grid of groups x samples that drops its finished rows during decoding."""

    def __init__(
        self,
        model: PreTrainedModel,
        groups: list[PromptGroup],
        params: SamplingParams,
        ends: list[int],
        prefill_tokens: int,
    ) -> None:
        self._model, self._groups, self._params, self._prefill_tokens = model, groups, params, prefill_tokens
        self._device, self._head = model.device, OutputHead(model)
        samples = max(len(group.seeds) for group in groups)
        lengths_G = torch.tensor([len(group.token_ids) for group in groups], device=self._device)
        self._longest = max(group.limit(params) for group in groups)
        self._cache = DecodeCache(lengths_G, samples, self._longest)
        self._ends = torch.tensor(ends, device=self._device)
        # Groups with fewer samples fill up with idle rows.
        seeds_GN = np.zeros((len(groups), samples), dtype=np.int64)
        alive_GN = np.zeros((len(groups), samples), dtype=bool)
        for place, group in enumerate(groups):
            seeds_GN[place, : len(group.seeds)] = np.array(group.seeds, dtype=np.uint64).view(np.int64)
            alive_GN[place, : len(group.seeds)] = True
        self._seeds_R, self._alive_R = seeds_GN.reshape(-1), alive_GN.reshape(-1)
        self._rows_R = np.arange(len(self._alive_R))
        self._tokens_RT = torch.zeros(len(self._alive_R), self._longest, dtype=torch.int64)
        self._logprobs_RT = torch.zeros(len(self._alive_R), self._longest)
        self._lengths_R = np.repeat([group.limit(params) for group in groups], samples)
        self._limits_R = self._lengths_R.copy()
        self._stopped_R = np.zeros(len(self._alive_R), dtype=bool)

    def run(self) -> list[list[Completion]]:
        """Decode until every row has ended or reached the response limit."""
        samples = self._cache.samples
        logits_RV = self._prefill().repeat_interleave(samples, dim=0)
        for position in range(self._longest):
            tokens_R = self._choose(logits_RV, position)
            if not self._alive_R.any():
                break
            tokens_R = self._shrink(tokens_R)
            positions_R = (self._cache.lengths_G + position).repeat_interleave(self._cache.samples)
            hidden = hidden_states(self._model, tokens_R[:, None], positions_R[:, None], self._cache)
            self._cache.next_step()
            logits_RV = self._head.logits(hidden[:, 0])
        return [self._completions(place * samples, len(group.seeds)) for place, group in enumerate(self._groups)]

    def _prefill(self) -> Tensor:
        """Compute logits [G, V] after each prompt; keys and values go to the cache."""
        lengths = [len(group.token_ids) for group in self._groups]
        last: list[Tensor] = []
        start = 0
        while start < len(lengths):
            # Groups come longest first, so the first prompt of a call sets its width.
            stop = min(len(lengths), start + max(1, self._prefill_tokens // lengths[start]))
            width = lengths[start]
            ids = [group.token_ids + [0] * (width - len(group.token_ids)) for group in self._groups[start:stop]]
            positions = torch.arange(width, device=self._device).expand(stop - start, width)
            layout = PrefillLayout(self._cache, start, width)
            hidden = hidden_states(self._model, torch.tensor(ids, device=self._device), positions, layout)
            ends = self._cache.lengths_G[start:stop] - 1
            last.append(hidden[torch.arange(stop - start, device=self._device), ends])
            start = stop
        return self._head.logits(torch.cat(last))

    def _choose(self, logits_RV: Tensor, position: int) -> Tensor:
        """Sample and record the token at `position` of every row; mark rows that ended."""
        uniforms_R = uniforms(torch.from_numpy(self._seeds_R).to(self._device), position)
        tokens_R, logprobs_R = pick_tokens(logits_RV, uniforms_R, self._params)
        self._tokens_RT[self._rows_R, position] = tokens_R.cpu()
        logprobs_R = logprobs_R.cpu()
        require_finite(self._model, logprobs_R)
        self._logprobs_RT[self._rows_R, position] = logprobs_R
        ended_R = torch.isin(tokens_R, self._ends).cpu().numpy() & self._alive_R
        self._lengths_R[self._rows_R[ended_R]] = position + 1
        self._stopped_R[self._rows_R[ended_R]] = True
        self._alive_R = self._alive_R & ~ended_R & (self._limits_R[self._rows_R] > position + 1)
        return tokens_R

    def _shrink(self, tokens_R: Tensor) -> Tensor:
        """Drop finished groups, and narrow the grid to the most running rows of a group; returns the tokens left."""
        alive_GN = self._alive_R.reshape(self._cache.groups, self._cache.samples)
        counts_G = alive_GN.sum(axis=1)
        running_G, width = np.flatnonzero(counts_G), int(counts_G.max())
        if len(running_G) * width > SHRINK_AT * len(self._alive_R):
            return tokens_R
        columns_GN = np.argsort(~alive_GN, axis=1, kind="stable")[running_G, :width]
        rows = (running_G[:, None] * self._cache.samples + columns_GN).reshape(-1)
        rows_tensor = torch.from_numpy(rows).to(self._device)
        self._cache.keep(torch.from_numpy(running_G).to(self._device), rows_tensor, width)
        self._seeds_R, self._alive_R, self._rows_R = self._seeds_R[rows], self._alive_R[rows], self._rows_R[rows]
        return tokens_R.index_select(0, rows_tensor)

    def _completions(self, first: int, count: int) -> list[Completion]:
        rows, lengths = range(first, first + count), self._lengths_R.tolist()
        return [
            Completion(
                token_ids=Series.of(self._tokens_RT[row, : lengths[row]].numpy(), int),
                logprobs=Series.of(self._logprobs_RT[row, : lengths[row]].numpy(), float),
                finish_reason="stop" if self._stopped_R[row] else "length",
            )
            for row in rows
        ]
