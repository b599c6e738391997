"""Base rates of an anchor before any training by INFUSER, measured by sampling."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from infuser_core.nano import curriculum, language, programs
from infuser_core.nano.lab import truth
from infuser_core.nano.tokenizer import END, chat
from infuser_core.nano.topics import Fact
from infuser_core.nano.world import TARGET, WORLD, Note, WorldConfig, fact, notes, problems, questions
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

ANSWERS = 8
"""Answers sampled per question."""
_FIELDS = ["question_text", "reasoning", "choices", "ground_truth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An anchor to measure."""

    model: Qwen3ForCausalLM
    """Its weights."""
    tokenizer: PreTrainedTokenizerFast
    """Its tokenizer."""
    world: WorldConfig = WORLD
    """The world it was built for."""
    temperature: float = 1.0
    """Sampling temperature."""
    seed: int = 0
    """Seed of questions and replies."""

    def reply(self, users: Sequence[str], max_tokens: int, *, greedy: bool = False) -> list[str]:
        """One reply per user turn. Prompts of one length share a batch, so nothing is padded."""
        prompts = [self.tokenizer(chat(user), add_special_tokens=False)["input_ids"] for user in users]
        by_length: dict[int, list[int]] = {}
        for i, prompt in enumerate(prompts):
            by_length.setdefault(len(prompt), []).append(i)
        replies = [""] * len(users)
        generator = torch.Generator().manual_seed(self.seed)
        temperature = 0.0 if greedy else self.temperature
        for rows in by_length.values():
            ids = torch.tensor([prompts[i] for i in rows])
            tokens = _continue(self.model, ids, temperature, max_tokens, generator)
            for i, text in zip(rows, self.tokenizer.batch_decode(tokens), strict=True):
                replies[i] = text.partition(END)[0]
        return replies


@torch.no_grad()
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
    """Multiple-choice questions as a generator writes them: from a document, from none, or after examples."""

    samples: int
    """Questions sampled."""
    valid: float
    """Share with the four fields, four distinct choices and the key among them."""
    sound_keys: float
    """Share of valid questions whose key is the sound result of the question as written."""
    grounded_topic: float
    """Share of valid questions on a topic of their note; 0 without a document."""
    grounded_fact: float
    """Share of valid questions that repeat a fact of their note word for word; 0 without a document."""
    target_share: float
    """Share of valid questions on a target topic."""
    followed: float
    """Share of valid questions on the topic of an example, of those whose note has one; 0 without examples."""
    topics: dict[str, int]
    """Valid questions by topic."""

    def without(self, *names: str) -> dict[str, Any]:
        """The rates that have a meaning for a way of asking: all but those named."""
        return {name: value for name, value in asdict(self).items() if name not in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRates:
    """Answers to questions of one split and set of topics."""

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
    """Verdicts on chunks, greedy."""

    samples: int
    """Chunks judged."""
    keep_right: float
    """Share of sections kept."""
    drop_right: float
    """Share of front and back matter dropped."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request to write a question."""

    user: str
    """User turn."""
    facts: tuple[Fact, ...] = ()
    """Facts of its document."""
    shown: frozenset[str] = field(default_factory=frozenset)
    """Topics of its examples that the document has, too."""


def writer_rates(subject: Subject, count: int) -> WriterRates:
    """One question per fresh note."""
    rng = Random(seed_of(subject.seed, "measure writer"))
    asked = [
        _Asked(user=language.generator_prompt(curriculum.section(rng, made)), facts=made.facts)
        for made in _notes(subject, count)
    ]
    return _written(subject, asked)


def challenge_rates(subject: Subject, count: int) -> WriterRates:
    """Questions from no document."""
    return _written(subject, [_Asked(user=language.challenge_prompt())] * count)


def example_rates(subject: Subject, count: int) -> WriterRates:
    """One question per fresh note, after two examples."""
    rng, world = Random(seed_of(subject.seed, "measure examples")), subject.world
    documents = _notes(subject, count)
    shown = [[fact("train", rng.choice(world.topics), rng) for _ in range(2)] for _ in documents]
    asked = []
    for made, examples in zip(documents, shown, strict=True):
        text = curriculum.examples_text(examples, rng, world)
        user = language.examples_prompt(text, curriculum.section(rng, made))
        common = {each.topic.name for each in examples} & {each.topic.name for each in made.facts}
        asked.append(_Asked(user=user, facts=made.facts, shown=frozenset(common)))
    return _written(subject, asked)


def _notes(subject: Subject, count: int) -> list[Note]:
    return notes(seed_of(subject.seed, "measure"), count, subject.world)


def _written(subject: Subject, asked: Sequence[_Asked]) -> WriterRates:
    replies = subject.reply([each.user for each in asked], 64)
    valid = [(each, made) for each, reply in zip(asked, replies, strict=True) if (made := parse_valid(reply))]
    known = [
        (each, told, str(made["ground_truth"]))
        for each, made in valid
        if (told := language.parse_question(str(made["question_text"])))
    ]
    topics = [told.topic.name for _, told, _ in known]
    guided = [told.topic.name in each.shown for each, told, _ in known if each.shown]
    total = max(1, len(valid))
    return WriterRates(
        samples=len(asked),
        valid=len(valid) / len(asked),
        sound_keys=sum(told.is_exact and str(told.sound) == key for _, told, key in known) / total,
        grounded_topic=sum(told.topic in [f.topic for f in each.facts] for each, told, _ in known) / total,
        grounded_fact=sum(told in each.facts for each, told, _ in known) / total,
        target_share=sum(topic in TARGET for topic in topics) / total,
        followed=sum(guided) / max(1, len(guided)),
        topics={name: topics.count(name) for name in sorted(set(topics))},
    )


def parse_valid(text: str) -> dict[str, object] | None:
    """The generator's object when it is well formed, else None."""
    made = _object(text, _FIELDS)
    choices = made["choices"] if made else None
    if made is None or not isinstance(choices, list):
        return None
    if len(choices) != WORLD.num_choices or len(set(map(str, choices))) != len(choices):
        return None
    return made if made["ground_truth"] in choices else None


def read_program(reply: str) -> programs.Expression | None:
    """The expression of a reply when all its results are numbers of this world, else None."""
    made = _object(reply, ["program"])
    found = programs.parse(str(made["program"])) if made else None
    return found if found and found.fits else None


def _object(text: str, names: list[str]) -> dict[str, Any] | None:
    """The JSON object with exactly these fields in this order."""
    try:
        made = json.loads(text)
    except json.JSONDecodeError:
        return None
    return made if isinstance(made, dict) and list(made) == names else None


def solver_rates(subject: Subject, asked: Sequence[Question]) -> SolverRates:
    """Eight answers to each question, all with choices or all without."""
    users = [_solver_prompt(question) for question in asked for _ in range(ANSWERS)]
    boxed = [reply.partition("\\boxed{")[2] for reply in subject.reply(users, 16 if asked[0].choices else 24)]
    right, tempted, mixed = 0, 0, 0
    for i, question in enumerate(asked):
        known, answers = truth(question.text), boxed[ANSWERS * i : ANSWERS * (i + 1)]
        assert known is not None, question.text
        misled = str(known.tempting)
        if question.choices:
            misled = language.LETTERS[question.choices.index(misled)]
        read = [text[:1] if question.choices else text.partition("}")[0] for text in answers]
        hits = read.count(question.answer)
        right += hits
        tempted += read.count(misled)
        mixed += 0 < hits < ANSWERS
    total = ANSWERS * len(asked)
    return SolverRates(samples=total, sound=right / total, tempting=tempted / total, mixed=mixed / len(asked))


def _solver_prompt(question: Question) -> str:
    if question.choices:
        return language.solver_prompt(question.text, question.choices)
    return language.free_form_prompt(question.text)


def judge_rates(subject: Subject, count: int) -> JudgeRates:
    """Verdicts on fresh chunks."""
    rng = Random(seed_of(subject.seed, "measure judge"))
    tasks = (curriculum.judge_chunk, curriculum.judge_chunk, curriculum.judge_chunk_long)
    lessons = [tasks[i % len(tasks)](rng, subject.world) for i in range(count)]
    texts = subject.reply([lesson.user for lesson in lessons], 16, greedy=True)
    pairs = [('"keep": true' in lesson.reply, text[:12]) for lesson, text in zip(lessons, texts, strict=True)]
    keeps = [text == '{"keep": tru' for keep, text in pairs if keep]
    drops = [text == '{"keep": fal' for keep, text in pairs if not keep]
    return JudgeRates(samples=count, keep_right=sum(keeps) / len(keeps), drop_right=sum(drops) / len(drops))


def program_rates(subject: Subject, count: int) -> ProgramRates:
    """Programs from nothing."""
    replies = subject.reply([language.program_prompt()] * count, 16)
    found = [made for reply in replies if (made := read_program(reply))]
    return ProgramRates(
        samples=count,
        valid=len(found) / count,
        ordered=sum(made.sound != made.tempting for made in found) / max(1, len(found)),
        different=len({made.text for made in found}),
    )


def base_rates(subject: Subject, *, scale: int = 1) -> dict[str, dict[str, Any]]:
    """All base rates of the roles that the subject's world has; `scale` divides the numbers of samples."""
    world, seed, few, many = subject.world, subject.seed, 96 // scale, 512 // scale
    rates = {
        "generator": writer_rates(subject, 1024 // scale).without("followed"),
        "solver_target": asdict(solver_rates(subject, questions("test", TARGET, few, seed, world))),
        "solver_transfer": asdict(solver_rates(subject, questions("test", world.transfer, few, seed, world))),
        "judge": asdict(judge_rates(subject, 384 // scale)),
    }
    if not world.families:
        return rates
    unguided = ("grounded_topic", "target_share")
    return rates | {
        "solver_problems": asdict(solver_rates(subject, problems("test", few, seed))),
        "solver_programs": asdict(solver_rates(subject, programs.questions("test", few, seed))),
        "challenger": challenge_rates(subject, many).without(*unguided),
        "programmer": asdict(program_rates(subject, many)),
        "generator_examples": example_rates(subject, many).without(*unguided),
    }
