"""What an anchor does before any training by INFUSER: base rates, measured by sampling."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from infuser_core.nano import curriculum, language
from infuser_core.nano.tokenizer import END, chat
from infuser_core.nano.topics import Fact
from infuser_core.nano.world import TARGET, WORLD, WorldConfig, notes, questions
from infuser_core.seeding import seed_of

_FIELDS = ["question_text", "reasoning", "choices", "ground_truth"]


@torch.no_grad()
def sample(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    users: Sequence[str],
    *,
    temperature: float,
    max_tokens: int,
    seed: int,
) -> list[str]:
    """One reply per user turn; 0 is greedy. Prompts of one length share a batch, so nothing is padded."""
    prompts = [tokenizer(chat(user), add_special_tokens=False)["input_ids"] for user in users]
    by_length: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(i)
    replies = [""] * len(users)
    generator = torch.Generator().manual_seed(seed)
    for rows in by_length.values():
        tokens = _continue(model, torch.tensor([prompts[i] for i in rows]), temperature, max_tokens, generator)
        for i, text in zip(rows, tokenizer.batch_decode(tokens), strict=True):
            replies[i] = text.partition(END)[0]
    return replies


def _continue(
    model: Qwen3ForCausalLM, ids: torch.Tensor, temperature: float, max_tokens: int, generator: torch.Generator
) -> torch.Tensor:
    cache, drawn, done = None, [], torch.zeros(len(ids), dtype=torch.bool)
    for _ in range(max_tokens):
        out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, logits = out.past_key_values, out.logits[:, -1].float()
        if temperature == 0:
            ids = logits.argmax(-1, keepdim=True)
        else:
            ids = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        drawn.append(ids)
        done |= ids[:, 0] == model.config.eos_token_id
        if done.all():
            break
    return torch.cat(drawn, dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterRates:
    """The generator's base rates."""

    samples: int
    """Questions sampled, one per note."""
    valid: float
    """Share with the four fields, four distinct choices and the key among them."""
    sound_keys: float
    """Share of valid questions whose key is the sound result of the question as written."""
    grounded_topic: float
    """Share of valid questions on a topic of their note."""
    grounded_fact: float
    """Share of valid questions that repeat a fact of their note word for word."""
    target_share: float
    """Share of valid questions on a target topic."""
    topics: dict[str, int]
    """Valid questions by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRates:
    """The solver's base rates on questions of one split and set of topics."""

    samples: int
    """Responses, one per question and seed."""
    sound: float
    """Share that boxes the sound result."""
    tempting: float
    """Share that boxes the misconception's result."""
    mixed: float
    """Share of questions whose eight responses are neither all right nor all wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRates:
    """The judge's base rates, greedy."""

    samples: int
    """Chunks judged."""
    keep_right: float
    """Share of sections kept."""
    drop_right: float
    """Share of other matter dropped."""


def parse_valid(text: str) -> dict[str, object] | None:
    """The generator's object when it is well formed, else None."""
    try:
        made = json.loads(text)
    except json.JSONDecodeError:
        return None
    if not isinstance(made, dict) or list(made) != _FIELDS or not isinstance(made["choices"], list):
        return None
    choices = made["choices"]
    if len(choices) != WORLD.num_choices or len(set(map(str, choices))) != len(choices):
        return None
    return made if made["ground_truth"] in choices else None


def writer_rates(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    count: int,
    temperature: float,
    seed: int,
    world: WorldConfig = WORLD,
) -> WriterRates:
    """Sample one question per fresh note."""
    rng = Random(seed_of(seed, "measure writer"))
    documents = notes(seed_of(seed, "measure"), count, world)
    users = [language.generator_prompt(curriculum.section(rng, made)) for made in documents]
    texts = sample(model, tokenizer, users, temperature=temperature, max_tokens=64, seed=seed)
    valid = [(note, made) for note, text in zip(documents, texts, strict=True) if (made := parse_valid(text))]
    facts: list[tuple[tuple[Fact, ...], Fact | None, str]] = [
        (note.facts, language.parse_question(str(made["question_text"])), str(made["ground_truth"]))
        for note, made in valid
    ]
    known = [(given, fact, key) for given, fact, key in facts if fact]
    topics = [fact.topic.name for _, fact, _ in known]
    total = max(1, len(valid))
    return WriterRates(
        samples=count,
        valid=len(valid) / count,
        sound_keys=sum(str(fact.sound) == key and fact.topic.sound.exact(fact.a, fact.b) for _, fact, key in known)
        / total,
        grounded_topic=sum(fact.topic.name in [f.topic.name for f in given] for given, fact, _ in known) / total,
        grounded_fact=sum(fact in given for given, fact, _ in known) / total,
        target_share=sum(topic in TARGET for topic in topics) / total,
        topics={name: topics.count(name) for name in sorted(set(topics))},
    )


def solver_rates(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    topics: Sequence[str],
    count: int,
    temperature: float,
    seed: int,
    world: WorldConfig = WORLD,
) -> SolverRates:
    """Sample eight answers to each of `count` test questions."""
    asked = questions("test", topics, count, seed, world)
    users = [language.solver_prompt(q.text, q.choices) for q in asked for _ in range(8)]
    texts = sample(model, tokenizer, users, temperature=temperature, max_tokens=16, seed=seed)
    right, tempted, mixed = 0, 0, 0
    for i, question in enumerate(asked):
        letters = [text.partition("\\boxed{")[2][:1] for text in texts[8 * i : 8 * i + 8]]
        fact = language.parse_question(question.text)
        assert fact is not None
        hits = letters.count(question.answer)
        right += hits
        tempted += letters.count(language.LETTERS[question.choices.index(str(fact.tempting))])
        mixed += 0 < hits < 8
    return SolverRates(
        samples=8 * count, sound=right / (8 * count), tempting=tempted / (8 * count), mixed=mixed / count
    )


def judge_rates(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    count: int,
    seed: int,
    world: WorldConfig = WORLD,
) -> JudgeRates:
    """Judge fresh chunks greedily."""
    rng = Random(seed_of(seed, "measure judge"))
    tasks = (curriculum.judge_chunk, curriculum.judge_chunk, curriculum.judge_chunk_long)
    lessons = [tasks[i % len(tasks)](rng, world) for i in range(count)]
    texts = sample(model, tokenizer, [x.user for x in lessons], temperature=0, max_tokens=16, seed=seed)
    pairs = [('"keep": true' in x.reply, text[:12]) for x, text in zip(lessons, texts, strict=True)]
    keeps = [text == '{"keep": tru' for keep, text in pairs if keep]
    drops = [text == '{"keep": fal' for keep, text in pairs if not keep]
    return JudgeRates(samples=count, keep_right=sum(keeps) / len(keeps), drop_right=sum(drops) / len(drops))


def base_rates(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    temperature: float,
    scale: int = 1,
    seed: int = 0,
    world: WorldConfig = WORLD,
) -> dict[str, dict[str, object]]:
    """All base rates; `scale` divides the numbers of samples."""

    def solver(topics: Sequence[str]) -> dict[str, object]:
        found = solver_rates(
            model, tokenizer, topics=topics, count=96 // scale, temperature=temperature, seed=seed, world=world
        )
        return asdict(found)

    writer = writer_rates(model, tokenizer, count=1024 // scale, temperature=temperature, seed=seed, world=world)
    return {
        "generator": asdict(writer),
        "solver_target": solver(TARGET),
        "solver_transfer": solver(world.transfer),
        "judge": asdict(judge_rates(model, tokenizer, count=384 // scale, seed=seed, world=world)),
    }
