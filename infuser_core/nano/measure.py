"""Base rates of an anchor before any training by INFUSER, measured by sampling."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from infuser_core.nano import curriculum, language, programs
from infuser_core.nano import curriculum as wide
from infuser_core.nano.lab import truth
from infuser_core.nano.tokenizer import END, chat
from infuser_core.nano.topics import Fact
from infuser_core.nano.world import TARGET, WORLD, WorldConfig, fact, notes, problems, questions
from infuser_core.schemas import Question
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


Ask = Callable[[Sequence[str], int], list[str]]
"""`ask(user turns, token limit)`: one reply each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRates:
    """Multiple-choice questions written from no document, or from one after examples."""

    samples: int
    """Replies sampled."""
    valid: float
    """Share with the four fields, four distinct choices and the key among them."""
    sound_keys: float
    """Share of valid questions whose key is the sound result of the question as written."""
    grounded_fact: float
    """Share of valid questions that repeat a fact of their note word for word; 0 without a document."""
    followed: float
    """Share of valid questions on the topic of an example, of those whose note has one; 0 without examples."""
    topics: dict[str, int]
    """Valid questions by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRates:
    """Programs written from nothing."""

    samples: int
    """Replies sampled."""
    valid: float
    """Share that is an object with an expression whose results are numbers of this world."""
    ordered: float
    """Share of valid programs whose value depends on the order of operations."""
    different: int
    """Different valid programs."""


def read_program(reply: str) -> programs.Expression | None:
    """The expression of a reply when all its results are numbers of this world, else None."""
    try:
        made = json.loads(reply)
    except json.JSONDecodeError:
        return None
    if not isinstance(made, dict) or list(made) != ["program"]:
        return None
    found = programs.parse(str(made["program"]))
    return found if found and found.fits else None


def free_form_rates(ask: Ask, asked: Sequence[Question]) -> SolverRates:
    """Eight answers to each question without choices."""
    replies = ask([language.free_form_prompt(q.text) for q in asked for _ in range(8)], 24)
    boxed = [reply.partition("\\boxed{")[2].partition("}")[0] for reply in replies]
    right, tempted, mixed = 0, 0, 0
    for i, question in enumerate(asked):
        answers, known = boxed[8 * i : 8 * i + 8], truth(question.text)
        assert known is not None
        hits = answers.count(question.answer)
        right += hits
        tempted += answers.count(str(known.tempting))
        mixed += 0 < hits < 8
    total = 8 * len(asked)
    return SolverRates(samples=total, sound=right / total, tempting=tempted / total, mixed=mixed / len(asked))


def challenge_rates(ask: Ask, count: int) -> WrittenRates:
    """Questions from no document."""
    return _written(ask([language.challenge_prompt()] * count, 64), [()] * count, [()] * count)


def example_rates(ask: Ask, count: int, *, seed: int, world: WorldConfig) -> WrittenRates:
    """Questions from fresh notes, each after two examples."""
    rng = Random(seed_of(seed, "measure examples"))
    documents = notes(seed_of(seed, "measure"), count, world)
    shown = [[fact("train", rng.choice(world.topics), rng) for _ in range(2)] for _ in documents]
    users = [
        language.examples_prompt(wide.examples_text(examples, rng, world), curriculum.section(rng, note))
        for note, examples in zip(documents, shown, strict=True)
    ]
    given = [note.facts for note in documents]
    topics = [
        tuple({e.topic.name for e in examples} & {f.topic.name for f in facts})
        for facts, examples in zip(given, shown, strict=True)
    ]
    return _written(ask(users, 64), given, topics)


def _written(replies: Sequence[str], given: Sequence[Sequence[object]], shown: Sequence[Sequence[str]]) -> WrittenRates:
    valid = [(i, made) for i, reply in enumerate(replies) if (made := parse_valid(reply))]
    known = [(i, language.parse_question(str(made["question_text"])), str(made["ground_truth"])) for i, made in valid]
    facts = [(i, made, key) for i, made, key in known if made]
    total, guided = max(1, len(valid)), [(i, made) for i, made, _ in facts if shown[i]]
    topics = [made.topic.name for _, made, _ in facts]
    sound = sum(str(made.sound) == key and made.topic.sound.exact(made.a, made.b) for _, made, key in facts)
    return WrittenRates(
        samples=len(replies),
        valid=len(valid) / len(replies),
        sound_keys=sound / total,
        grounded_fact=sum(made in given[i] for i, made, _ in facts) / total,
        followed=sum(made.topic.name in shown[i] for i, made in guided) / max(1, len(guided)),
        topics={name: topics.count(name) for name in sorted(set(topics))},
    )


def program_rates(ask: Ask, count: int) -> ProgramRates:
    """Programs from nothing."""
    found = [made for reply in ask([language.program_prompt()] * count, 16) if (made := read_program(reply))]
    ordered = sum(made.sound != made.tempting for made in found)
    return ProgramRates(
        samples=count,
        valid=len(found) / count,
        ordered=ordered / max(1, len(found)),
        different=len({made.text for made in found}),
    )


def wide_rates(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    temperature: float,
    scale: int = 1,
    seed: int = 0,
    world: WorldConfig = WORLD,
) -> dict[str, dict[str, Any]]:
    """The rates that only this world has; `scale` divides the numbers of samples."""

    def ask(users: Sequence[str], max_tokens: int) -> list[str]:
        return sample(model, tokenizer, users, temperature=temperature, max_tokens=max_tokens, seed=seed)

    return {
        "solver_problems": asdict(free_form_rates(ask, problems("test", 96 // scale, seed))),
        "solver_programs": asdict(free_form_rates(ask, programs.questions("test", 96 // scale, seed))),
        "challenger": asdict(challenge_rates(ask, 512 // scale)),
        "programmer": asdict(program_rates(ask, 512 // scale)),
        "generator_examples": asdict(example_rates(ask, 512 // scale, seed=seed, world=world)),
    }
