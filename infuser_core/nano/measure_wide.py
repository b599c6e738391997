"""What the wide world's anchor does besides the basic roles: base rates, measured by sampling."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from infuser_core.nano import curriculum, language, programs
from infuser_core.nano import curriculum_wide as wide
from infuser_core.nano.lab import truth
from infuser_core.nano.measure import SolverRates, parse_valid, sample
from infuser_core.nano.world import WORLD, WorldConfig, fact, notes, problems
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

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
