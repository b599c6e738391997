"""Self-test of a loaded model: sampler and trainer must compute the log-probabilities of transformers' own forward.

An architecture may mix tokens outside of attention, scale its logits, or make its position encoding depend on the
longest row of a call. No list of such families is complete, so that the test compares results for a few random tokens.
"""

from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from infuser_core.engines.hf.causal_lm import IMPLEMENTATION, device_name, hidden_states
from infuser_core.engines.hf.layouts import DecodeCache, PrefillLayout
from infuser_core.engines.hf.limits import most_positions, require_finite
from infuser_core.engines.hf.output_head import OutputHead
from infuser_core.engines.training.packing import Packer
from infuser_core.errors import EngineError
from infuser_core.protocols import TrainGroup, TrainRow
from infuser_core.system.sealed import digest_of, digest_of_file

PROMPTS, RESPONSE, SAMPLES = (4, 7), 3, 2
"""Tokens of the prompts and of every response, and responses to each prompt."""
LIMITS = {torch.float64: 1e-3, torch.float32: 1e-2, torch.bfloat16: 0.25}
"""Largest mean difference of a token's log-probability, nats. A wrong model gives 1 and more."""


def seal_of_test(model: str, *, device: str = "cpu", dtype: str = "float32") -> str:
    """Compute the digest (seal) that identifies a passed test of a model.

    A run's anchor, the pre-trained base model of both roles, is tested on the CPU in float32. The digest depends on the
    versions of torch and transformers and on the engines' code, so that the test is repeated after any change.
    """
    engines = Path(__file__).parents[1]
    code = {str(path.relative_to(engines)): digest_of_file(path) for path in engines.rglob("*.py")}
    packages = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    return digest_of({"model": model, "device": device, "dtype": dtype, "code": code, **packages})


def require_same_once(model: PreTrainedModel, digest: str, seals: Path | None) -> None:
    """Run the self-test `require_same`, unless a model of this digest has passed it before.

    `seals` is a folder of empty files named by `seal_of_test`; without it, every call tests.
    """
    if seals is None:
        require_same(model)
        return
    dtype = str(model.dtype).removeprefix("torch.")
    seal = seals / seal_of_test(digest, device=device_name(model.device), dtype=dtype)
    if not seal.is_file():
        require_same(model)
        seals.mkdir(parents=True, exist_ok=True)
        seal.touch()


@torch.inference_mode()
def require_same(model: PreTrainedModel) -> None:
    """Raise EngineError, with place and size, if the engines' log-probabilities are not those of transformers."""
    groups = _groups(model)
    family = type(model).__name__
    try:
        expected = _stock_logprobs(model, groups)
        require_finite(model, expected)
        results = {
            "sampled with a cache": _sampled_logprobs(model, groups),
            "packed with other responses": _packed_logprobs(model, groups),
        }
        if (most := most_positions(model.config)) is not None:
            results["packed with a row at the last position"] = _packed_logprobs(model, groups, last=most - 1)
    except (torch.OutOfMemoryError, EngineError):
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        message = str(error).strip().splitlines() or [""]
        raise EngineError(
            f"{family} cannot be computed by sampler and trainer: {type(error).__name__}: {message[0][:200]}",
            hint="choose another model: see the page on models",
        ) from error
    for place, logprobs in results.items():
        gap = float((logprobs - expected[: len(logprobs)]).abs().mean())
        # The negation refuses NaN as well.
        if not gap <= LIMITS[model.dtype]:
            raise EngineError(
                f"{family}: log-probabilities {place} differ from those of transformers by {gap:.2g} nats a token, "
                f"over {LIMITS[model.dtype]}",
                hint="its layers use other rows of a call: choose another model",
            )


def _groups(model: PreTrainedModel) -> list[TrainGroup]:
    """Build two groups of random tokens, the same for all models with equal vocabulary sizes."""
    generator = torch.Generator().manual_seed(0)
    vocabulary = int(model.config.get_text_config().vocab_size)

    def tokens(count: int) -> list[int]:
        return torch.randint(vocabulary, (count,), generator=generator).tolist()

    return [
        TrainGroup(
            group_id=str(prompt),
            prompt_token_ids=tokens(prompt),
            rows=[
                TrainRow(token_ids=tokens(RESPONSE), advantage=1.0, sampler_logprobs=[0.0] * RESPONSE)
                for _ in range(SAMPLES)
            ],
        )
        for prompt in PROMPTS
    ]


def _select_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    return torch.log_softmax(logits.float(), -1).gather(-1, tokens[..., None])[..., 0].flatten()


def _stock_logprobs(model: PreTrainedModel, groups: list[TrainGroup]) -> Tensor:
    """Compute log-probabilities of all response tokens, one row after the other, by transformers' own forward."""
    rows = [(group.prompt_token_ids, row.token_ids) for group in groups for row in group.rows]
    logprobs = []
    model.set_attn_implementation("eager")
    try:
        for prompt, response in rows:
            ids = torch.tensor([[*prompt, *response]], device=model.device)
            logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
            logprobs.append(_select_logprobs(logits, ids[0, len(prompt) :]))
    finally:
        model.set_attn_implementation(IMPLEMENTATION)
    return torch.cat(logprobs)


def _packed_logprobs(model: PreTrainedModel, groups: list[TrainGroup], *, last: int | None = None) -> Tensor:
    """Compute log-probabilities of all response tokens in one packed call, as the trainer does.

    With `last`, those of the first group alone, packed with a second one that ends at position `last`.
    """
    packer = Packer(token_budget=1 << 20, device=model.device, dtype=torch.float32)
    (segments,) = packer.plan(groups)
    batch, first = packer.pack(segments), segments[0].num_tokens
    positions = batch.position_ids.clone()
    if last is not None:
        positions[:, first:] += last - int(positions[:, first:].max())
    hidden = hidden_states(model, batch.input_ids, positions, batch.layout)[0].index_select(0, batch.predictors_S)
    logprobs = _select_logprobs(OutputHead(model).logits(hidden), batch.targets_S)
    return logprobs if last is None else logprobs[: RESPONSE * SAMPLES]


def _sampled_logprobs(model: PreTrainedModel, groups: list[TrainGroup]) -> Tensor:
    """Compute log-probabilities of all response tokens as the sampler does.

    One padded call for the prompts is followed by one call for each token, with the cache.
    """
    device, width, head = model.device, max(PROMPTS), OutputHead(model)
    lengths = torch.tensor(PROMPTS, device=device)
    cache = DecodeCache(lengths, SAMPLES, RESPONSE)
    ids = torch.tensor([[*group.prompt_token_ids, *[0] * (width - len(group.prompt_token_ids))] for group in groups])
    places = torch.arange(width, device=device).expand(len(groups), width)
    hidden = hidden_states(model, ids.to(device), places, PrefillLayout(cache, 0, width))
    states = [hidden[torch.arange(len(groups), device=device), lengths - 1].repeat_interleave(SAMPLES, 0)]
    responses = torch.tensor([list(row.token_ids) for group in groups for row in group.rows], device=device)
    for step in range(RESPONSE - 1):
        positions = (lengths + step).repeat_interleave(SAMPLES)[:, None]
        states.append(hidden_states(model, responses[:, step : step + 1], positions, cache)[:, 0])
        cache.next_step()
    return _select_logprobs(head.logits(torch.stack(states, 1).flatten(0, 1)).unflatten(0, responses.shape), responses)
