"""Builds an anchor, a 0.7M-parameter Qwen3 that plays generator, solver and judge of the micro-world, and measures it.

`infuser nano build OUT` rebuilds it from nothing; no weights are downloaded. With `--world` it builds another world's
anchor, which starts from the shipped basic one: copying and looking up are known by then. Its card holds its base rates
before any training by INFUSER, measured by sampling.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM

from infuser_core.nano import curriculum, language, programs
from infuser_core.nano.lab import anchor_path
from infuser_core.nano.pretrain import Report, inherit, new_model, pretrain, rescale
from infuser_core.nano.tokenizer import END, chat, train_tokenizer
from infuser_core.nano.world import WORLD, WorldConfig, notes, problems, questions, world_of
from infuser_core.plugins import WORLDS
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of
from infuser_core.terminal import ignore

CARD_FORMAT = 1
TEMPERATURE = 1.0
"""Sampling temperature of the measured base rates, and the one meant for training rollouts.

Below 1 the generator's majority of sound keys is sharpened so far that a fixed generator teaches nearly as well.
"""


def build_anchor(
    out: Path, *, steps_scale: float = 1.0, seed: int = 0, world: str = "basic", progress: Report = ignore
) -> dict[str, Any]:
    """Pre-train, measure and save the anchor; the same seed and scale give the same weights on the same machine.

    Raises ConfigError for an unknown world.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _build(out, steps_scale, seed, world, progress)
    finally:
        torch.set_num_threads(threads)


def _build(out: Path, steps_scale: float, seed: int, name: str, progress: Report) -> dict[str, Any]:
    began = time.process_time()
    full, world = WORLDS.find(name, "SCHEDULE")[1], world_of(name)
    out.mkdir(parents=True, exist_ok=True)
    schedule = replace(full, steps=max(1, round(full.steps * steps_scale)))
    tokenizer = train_tokenizer(world)
    model = new_model(len(tokenizer), end=tokenizer.eos_token_id, pad=tokenizer.pad_token_id, seed=seed)
    if name != "basic":
        inherit(model, tokenizer, anchor_path())
    tokens = pretrain(model, tokenizer, schedule, seed=seed, report=progress, world=world)
    rescale(model, world.coordinate_spread, seed=seed)
    subject = Subject(model=model, tokenizer=tokenizer, world=world, temperature=TEMPERATURE)
    # A shortened build is a smoke test; measuring it in full would take longer than building it.
    rates = base_rates(subject, scale=1 if steps_scale >= 0.5 else 32)
    card = {
        "format": CARD_FORMAT,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "seed": seed,
        "steps_scale": steps_scale,
        "tokens_seen": tokens,
        "cpu_seconds": round(time.process_time() - began, 1),
        "torch": torch.__version__,
        "schedule": asdict(schedule),
        "world": asdict(world),
        "temperature": TEMPERATURE,
        "base_rates": rates,
    }
    model.save_pretrained(str(out))
    tokenizer.save_pretrained(str(out))
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card


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
        drawing = {} if greedy else {"temperature": self.temperature, "top_k": 0}
        ends = {"eos_token_id": self.tokenizer.eos_token_id, "pad_token_id": self.tokenizer.pad_token_id}
        how = GenerationConfig(do_sample=not greedy, max_new_tokens=max_tokens, **drawing, **ends)
        replies = [""] * len(users)
        # transformers annotates `generate` with a class that its models are not of.
        model: Any = self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            for rows in by_length.values():
                ids = torch.tensor([prompts[i] for i in rows])
                tokens = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=how)
                for i, text in zip(rows, self.tokenizer.batch_decode(tokens[:, ids.shape[1] :]), strict=True):
                    replies[i] = text.partition(END)[0]
        return replies


Rates = dict[str, Any]
"""Rates of one role as an anchor's card holds them: shares, but for `samples` and counts of kinds."""


def writer_rates(subject: Subject, count: int) -> Rates:
    """Share of valid questions on fresh notes, and of these of a right key, a topic, a whole fact, a target."""
    rng = Random(seed_of(subject.seed, "measure writer"))
    documents = notes(seed_of(subject.seed, "measure"), count, subject.world)
    prompts = [language.generator_prompt(curriculum.section(rng, made)) for made in documents]
    written = [(note, parse_valid(reply)) for note, reply in zip(documents, subject.reply(prompts, 64), strict=True)]
    valid = [(note, made) for note, made in written if made]
    known = [
        (note.facts, told, str(made["ground_truth"]))
        for note, made in valid
        if (told := language.parse_question(str(made["question_text"])))
    ]
    topics = [told.topic.name for _, told, _ in known]
    total = max(1, len(valid))
    return {
        "samples": count,
        "valid": len(valid) / count,
        "sound_keys": sum(told.is_exact and str(told.sound) == key for _, told, key in known) / total,
        "grounded_topic": sum(told.topic in [f.topic for f in facts] for facts, told, _ in known) / total,
        "grounded_fact": sum(told in facts for facts, told, _ in known) / total,
        "target_share": sum(topic in subject.world.target for topic in topics) / total,
        "topics": {name: topics.count(name) for name in sorted(set(topics))},
    }


def parse_valid(text: str) -> dict[str, object] | None:
    """The generator's object when it is well formed, its fields in this order, else None."""
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


Ask = tuple[str, str, str]
"""A prompt, the sound method's answer in its box, and the misconception's."""


def solver_rates(subject: Subject, asked: Sequence[Question]) -> Rates:
    """Eight answers to each of the facts' questions, all with choices or all without, as in `answer_rates`."""
    return answer_rates(subject, [_ask(question) for question in asked], 16 if asked[0].choices else 24)


def program_rates(subject: Subject, exercises: Sequence[programs.Exercise]) -> Rates:
    """Eight answers to each of the exercises, as in `answer_rates`."""
    answers = [[made.answer(sound=sound) for sound in (True, False)] for made in exercises]
    asks = zip((language.free_form_prompt(made.text) for made in exercises), *zip(*answers, strict=True), strict=True)
    return answer_rates(subject, list(asks), 24)


def answer_rates(subject: Subject, asks: Sequence[Ask], max_tokens: int) -> Rates:
    """Shares of eight answers that box the sound and the misconception's result, and of prompts with mixed ones."""
    replies = subject.reply([user for user, _, _ in asks for _ in range(ANSWERS)], max_tokens)
    boxed = [reply.partition("\\boxed{")[2].partition("}")[0] for reply in replies]
    right, tempted, mixed = 0, 0, 0
    for i, (_, sound, misled) in enumerate(asks):
        answers = boxed[ANSWERS * i : ANSWERS * (i + 1)]
        hits = answers.count(sound)
        right += hits
        tempted += answers.count(misled)
        mixed += 0 < hits < ANSWERS
    total = ANSWERS * len(asks)
    return {"samples": total, "sound": right / total, "tempting": tempted / total, "mixed": mixed / len(asks)}


def _ask(question: Question) -> Ask:
    fact = language.parse_question(question.text)
    assert fact is not None, question.text
    misled = str(fact.tempting)
    if question.choices:
        misled = language.LETTERS[question.choices.index(misled)]
        return language.solver_prompt(question.text, question.choices), question.answer, misled
    return language.free_form_prompt(question.text), question.answer, misled


def proposer_rates(subject: Subject, count: int) -> Rates:
    """Functions and inputs written for each of Absolute Zero's tasks: the share that has the form of the lessons."""
    rng = Random(seed_of(subject.seed, "measure proposer"))
    rates: Rates = {"samples": count}
    for task in programs.TASKS:
        made = [programs.drawn(rng, task) for _ in range(count)]
        if task == "induction":
            users = [language.inputs_prompt(each.function.text) for each in made]
        else:
            users = [language.program_prompt(task, each.used) for each in made]
        rates[task] = sum(programs.well_formed(task, reply) for reply in subject.reply(users, 64)) / count
    return rates


def judge_rates(subject: Subject, count: int) -> Rates:
    """Greedy verdicts on fresh chunks: shares of sections kept, and of front and back matter dropped."""
    rng = Random(seed_of(subject.seed, "measure judge"))
    tasks = (curriculum.judge_chunk, curriculum.judge_chunk, curriculum.judge_chunk_long)
    lessons = [tasks[i % len(tasks)](rng, subject.world) for i in range(count)]
    texts = subject.reply([lesson.user for lesson in lessons], 16, greedy=True)
    pairs = [('"keep": true' in lesson.reply, text[:12]) for lesson, text in zip(lessons, texts, strict=True)]
    keeps = [text == '{"keep": tru' for keep, text in pairs if keep]
    drops = [text == '{"keep": fal' for keep, text in pairs if not keep]
    return {"samples": count, "keep_right": sum(keeps) / len(keeps), "drop_right": sum(drops) / len(drops)}


def base_rates(subject: Subject, *, scale: int = 1) -> dict[str, Rates]:
    """Base rates of writer, solver and judge; `scale` divides the numbers of samples."""
    world, seed, few = subject.world, subject.seed, 96 // scale
    rates = {
        "generator": writer_rates(subject, 1024 // scale),
        "solver_target": solver_rates(subject, questions("test", world.target, few, seed, world)),
        "solver_transfer": solver_rates(subject, questions("test", world.transfer, few, seed, world)),
        "judge": judge_rates(subject, 384 // scale),
    }
    if world.families:
        rates["solver_problems"] = solver_rates(subject, problems("test", few, seed))
        for task in programs.TASKS:
            rates[f"solver_{task}"] = program_rates(subject, programs.chosen(task, "test", few, seed))
        rates["proposer"] = proposer_rates(subject, 256 // scale)
    return rates
