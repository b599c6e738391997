"""Pre-train the anchor, the micro-world's base model: initial weights, Muon, batches of drills and of role tasks.

Muon learns to copy numbers far more exactly than AdamW in the same time. Applied to one matrix at a time, it would cost
more than the model on a CPU; here all matrices of a shape are one batch.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from infuser_core.engines.training.optimizers.muon import SCALE, orthogonalise
from infuser_core.nano.curriculum import Lesson, course_of
from infuser_core.nano.tokenizer import END, chat
from infuser_core.nano.world import WORLD, Schedule, WorldConfig
from infuser_core.seeding import seed_of


class PretrainingMuon:
    """The Muon optimizer for hidden matrices, batched by shape; tall matrices are transposed."""

    def __init__(self, matrices: Iterable[torch.nn.Parameter], *, momentum: float = 0.95) -> None:
        self._momentum = momentum
        self._groups: dict[tuple[int, int], list[torch.nn.Parameter]] = {}
        for matrix in matrices:
            rows, columns = matrix.shape
            self._groups.setdefault((min(rows, columns), max(rows, columns)), []).append(matrix)
        self._buffers = {shape: torch.zeros(len(group), *shape) for shape, group in self._groups.items()}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update of all matrices from their gradients (Nesterov momentum)."""
        for shape, group in self._groups.items():
            gradients = torch.stack(
                [p.grad if p.shape[0] <= p.shape[1] else p.grad.mT for p in group if p.grad is not None]
            )
            buffer = self._buffers[shape].lerp_(gradients, 1 - self._momentum)
            updates = orthogonalise(gradients.lerp(buffer, self._momentum))
            scale = learning_rate * SCALE * max(shape) ** 0.5
            for matrix, update in zip(group, updates, strict=True):
                matrix.sub_(update if matrix.shape == update.shape else update.mT, alpha=scale)


@torch.no_grad()
def inherit(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Copy another anchor's weights; embeddings are copied token by token, new tokens keep their random ones."""
    parent = Qwen3ForCausalLM.from_pretrained(str(folder))
    parent_ids = PreTrainedTokenizerFast.from_pretrained(str(folder)).get_vocab()
    embedding, old = model.model.embed_tokens.weight, parent.model.embed_tokens.weight
    shared = [(place, parent_ids[token]) for token, place in tokenizer.get_vocab().items() if token in parent_ids]
    embedding[[place for place, _ in shared]] = old[[place for _, place in shared]]
    weights = dict(parent.named_parameters())
    for name, parameter in model.named_parameters():
        if "embed" not in name:
            parameter.copy_(weights[name])


@torch.no_grad()
def rescale(model: Qwen3ForCausalLM, spread: int, *, seed: int) -> None:
    """Scale each hidden unit by 2^k on its way in and 2^-k on its way out, k drawn from -spread to spread.

    Powers of two keep the function bit for bit the same. Squared gradients of its coordinates then differ by up to
    4^(2 spread), as in large models: few coordinates dominate raw gradients, and none dominates AdamW's steps.
    """
    rng = Random(seed_of(seed, "coordinates"))

    def draw_scales(count: int) -> torch.Tensor:
        return torch.tensor([2.0 ** rng.randint(-spread, spread) for _ in range(count)])

    for layer in model.model.layers:
        mlp, attention = layer.mlp, layer.self_attn
        hidden = draw_scales(mlp.up_proj.out_features)
        mlp.up_proj.weight.mul_(hidden[:, None])
        mlp.down_proj.weight.div_(hidden)
        values = draw_scales(attention.v_proj.out_features)
        attention.v_proj.weight.mul_(values[:, None])
        # Every query head of a group reads the same value channels.
        group = attention.o_proj.in_features // len(values)
        attention.o_proj.weight.div_(values.view(-1, attention.head_dim).repeat_interleave(group, dim=0).flatten())


Report = Callable[[str], object]
"""Receives lines of progress."""
REPORT_EVERY = 20
"""Steps between two lines of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A training batch of rows padded on the right; causal attention needs no mask for the padding."""

    token_ids: torch.Tensor
    """[rows, tokens]"""
    weights: torch.Tensor
    """[rows, tokens] loss weight of predicting this token; 0 on prompts and padding."""


def new_model(vocabulary: int, *, end: int, pad: int, seed: int) -> Qwen3ForCausalLM:
    """Create a Qwen3 of about 0.7M parameters with random weights."""
    torch.manual_seed(seed_of(seed, "anchor weights"))
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


class Teacher:
    """Draws lessons and turns them into weighted batches."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, schedule: Schedule, *, seed: int, world: WorldConfig
    ) -> None:
        self._tokenizer, self._schedule, self._world, self._course = tokenizer, schedule, world, course_of(world)
        self._rng = Random(seed_of(seed, "anchor lessons"))
        vocabulary = tokenizer.get_vocab()
        self._boxed = vocabulary[tokenizer.tokenize(" \\boxed{")[0]]
        self._equals = {
            i for token, i in vocabulary.items() if tokenizer.convert_tokens_to_string([token])[-2:] == "= "
        }

    def batch(self, step: int) -> Batch:
        """Draw a random batch for a step: drills or one role task, by the phase of the schedule."""
        plan, rng, course = self._schedule, self._rng, self._course
        progress = step / plan.steps
        share = plan.late_drill_share
        if progress < plan.drill_until:
            share = 1.0
        elif progress < plan.mixed_until:
            share = plan.drill_share
        if rng.random() < share:
            return self.collate([rng.choice(course.drills)(rng, self._world) for _ in range(plan.short_rows)])
        tasks, weights = zip(*course.mixture, strict=True)
        task = rng.choices(tasks, weights=weights)[0]
        rows = plan.short_rows if task in course.short else plan.long_rows
        return self.collate([task(rng, self._world) for _ in range(rows)])

    def collate(self, lessons: Sequence[Lesson]) -> Batch:
        """Tokens and loss weights of the lessons, padded into one batch."""
        prompts = self._tokenize([chat(lesson.user) for lesson in lessons])
        replies = self._tokenize([lesson.reply + END for lesson in lessons])
        width = max(len(p) + len(r) for p, r in zip(prompts, replies, strict=True))
        token_ids = torch.full((len(lessons), width), self._tokenizer.pad_token_id)
        weights = torch.zeros(len(lessons), width)
        for row, (lesson, prompt, reply) in enumerate(zip(lessons, prompts, replies, strict=True)):
            token_ids[row, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
            weights[row, len(prompt) : len(prompt) + len(reply)] = torch.tensor(self._weights(lesson, reply))
        return Batch(token_ids=token_ids, weights=weights)

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encoded = self._tokenizer(texts, add_special_tokens=False, return_attention_mask=False)
        return encoded["input_ids"]

    def _weights(self, lesson: Lesson, reply: list[int]) -> list[float]:
        plan = self._schedule
        weights, is_after_box = [], False
        for before, _ in zip([-1, *reply[:-1]], reply, strict=True):
            is_after_box = is_after_box or before == self._boxed
            if before == self._boxed:
                weights.append(plan.letter_weight)
            elif before in self._equals and lesson.focus != "letter":
                weights.append(plan.result_weight)
            else:
                weights.append(1.0 if lesson.focus == "all" or (lesson.focus == "letter" and is_after_box) else 0.0)
        return weights


def loss_of(model: Qwen3ForCausalLM, batch: Batch) -> torch.Tensor:
    """Weighted mean cross-entropy of a batch; logits are computed for reply positions only."""
    hidden = model.model(input_ids=batch.token_ids[:, :-1], use_cache=False).last_hidden_state
    mask_BT = batch.weights[:, 1:] > 0
    logits = model.lm_head(hidden[mask_BT])
    losses = torch.nn.functional.cross_entropy(logits, batch.token_ids[:, 1:][mask_BT], reduction="none")
    weights = batch.weights[:, 1:][mask_BT]
    return (losses * weights).sum() / weights.sum()


def pretrain(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    schedule: Schedule,
    *,
    seed: int,
    report: Report,
    world: WorldConfig = WORLD,
) -> int:
    """Train the model in place; returns the number of tokens. The same seed on one thread gives the same bytes."""
    teacher = Teacher(tokenizer, schedule, seed=seed, world=world)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    muon = PretrainingMuon(matrices)
    adam = torch.optim.AdamW(rest, lr=schedule.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, foreach=True)
    tokens = 0
    model.train()
    for step in range(schedule.steps):
        batch = teacher.batch(step)
        # In fp32: a CPU without AVX-512 takes ten times as long under bf16 autocast.
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        rate = schedule.rate(step)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        muon.step(rate)
        model.zero_grad(set_to_none=True)
        tokens += batch.token_ids.numel()
        if (step + 1) % REPORT_EVERY == 0 or step + 1 == schedule.steps:
            report(f"step {step + 1}/{schedule.steps}  loss {loss.item():.3f}")
    model.eval()
    return tokens
