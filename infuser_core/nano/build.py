"""Build and measure an anchor: the 0.7M-parameter Qwen3 base model of the micro-world's generator, solver and judge.

`infuser nano build OUT` builds the basic world's anchor from random weights; nothing is downloaded. With `--world` it
builds another world's anchor, which starts from the shipped basic one, so that it can already copy and look up. The
anchor's card has its base rates before any training by INFUSER, measured by sampling.
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
from infuser_core.nano.topics import Fact
from infuser_core.nano.world import WORLD, WorldConfig, draw_notes, draw_problems, draw_questions, world_of
from infuser_core.plugins import WORLDS
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of
from infuser_core.terminal import ignore

CARD_FORMAT = 1
TEMPERATURE = 1.0
"""Sampling temperature of the base rates, and of training rollouts.

Below 1 the generator writes sound keys so often that a fixed generator teaches nearly as well as a trained one.
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
        return _build_on_one_thread(out, steps_scale, seed, world, progress)
    finally:
        torch.set_num_threads(threads)


def _build_on_one_thread(out: Path, steps_scale: float, seed: int, name: str, progress: Report) -> dict[str, Any]:
    start = time.process_time()
    schedule, world = WORLDS.find(name, "SCHEDULE")[1], world_of(name)
    out.mkdir(parents=True, exist_ok=True)
    schedule = replace(schedule, steps=max(1, round(schedule.steps * steps_scale)))
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
        "cpu_seconds": round(time.process_time() - start, 1),
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
    """An anchor to measure, with its world and sampling settings."""

    model: Qwen3ForCausalLM
    tokenizer: PreTrainedTokenizerFast
    world: WorldConfig = WORLD
    temperature: float = 1.0
    seed: int = 0
    """Seed of questions and replies."""

    def reply(self, users: Sequence[str], max_tokens: int, *, greedy: bool = False) -> list[str]:
        """Generate one reply per user turn; prompts of equal length share a batch, so nothing is padded."""
        prompts = [self.tokenizer(chat(user), add_special_tokens=False)["input_ids"] for user in users]
        by_length: dict[int, list[int]] = {}
        for i, prompt in enumerate(prompts):
            by_length.setdefault(len(prompt), []).append(i)
        sampling = {} if greedy else {"temperature": self.temperature, "top_k": 0}
        ends = {"eos_token_id": self.tokenizer.eos_token_id, "pad_token_id": self.tokenizer.pad_token_id}
        generation = GenerationConfig(do_sample=not greedy, max_new_tokens=max_tokens, **sampling, **ends)
        replies = [""] * len(users)
        # transformers annotates `generate` with a class that its models are not of.
        model: Any = self.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            for rows in by_length.values():
                ids = torch.tensor([prompts[i] for i in rows])
                tokens = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=generation)
                for i, text in zip(rows, self.tokenizer.batch_decode(tokens[:, ids.shape[1] :]), strict=True):
                    replies[i] = text.partition(END)[0]
        return replies


Rates = dict[str, Any]
"""Rates of one role on an anchor's card: shares, except `samples` and counts."""


def writer_rates(subject: Subject, count: int) -> Rates:
    """Rates of the generator's questions about new notes: validity, right keys, grounding in the note, target topics.

    All but the first are shares of the valid questions; a grounded one has a topic, or a fact, of its note.
    """
    rng = Random(seed_of(subject.seed, "measure writer"))
    documents = draw_notes(seed_of(subject.seed, "measure"), count, subject.world)
    prompts = [language.generator_prompt(curriculum.section_text(rng, note)) for note in documents]
    num_valid = 0
    questions: list[tuple[tuple[Fact, ...], Fact, str]] = []
    for note, reply in zip(documents, subject.reply(prompts, 64), strict=True):
        if fields := parse_valid(reply):
            num_valid += 1
            if fact := language.parse_question(str(fields["question_text"])):
                questions.append((note.facts, fact, str(fields["ground_truth"])))
    topics = [fact.topic.name for _, fact, _ in questions]
    total = max(1, num_valid)
    return {
        "samples": count,
        "valid": num_valid / count,
        "sound_keys": sum(fact.is_exact and str(fact.sound) == key for _, fact, key in questions) / total,
        "grounded_topic": sum(fact.topic in [f.topic for f in facts] for facts, fact, _ in questions) / total,
        "grounded_fact": sum(fact in facts for facts, fact, _ in questions) / total,
        "target_share": sum(topic in subject.world.target for topic in topics) / total,
        "topics": {name: topics.count(name) for name in sorted(set(topics))},
    }


def parse_valid(text: str) -> dict[str, object] | None:
    """Parse the generator's JSON object; None if it is malformed or its fields are in another order."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError:
        return None
    if not isinstance(fields, dict) or list(fields) != _FIELDS or not isinstance(fields["choices"], list):
        return None
    choices = fields["choices"]
    if len(choices) != WORLD.num_choices or len(set(map(str, choices))) != len(choices):
        return None
    return fields if fields["ground_truth"] in choices else None


SolverTask = tuple[str, str, str]
"""(prompt, answer by the sound method, answer by the misconception)."""


def solver_rates(subject: Subject, questions: Sequence[Question]) -> Rates:
    """Rates of the solver on questions about facts, all with choices or all without (see `answer_rates`)."""
    tasks: list[SolverTask] = []
    for question in questions:
        fact = language.parse_question(question.text)
        assert fact is not None, question.text
        prompt, tempting = language.free_form_prompt(question.text), str(fact.tempting)
        if question.choices:
            prompt = language.solver_prompt(question.text, question.choices)
            tempting = language.LETTERS[question.choices.index(tempting)]
        tasks.append((prompt, question.answer, tempting))
    return answer_rates(subject, tasks, 16 if questions[0].choices else 24)


def program_rates(subject: Subject, exercises: Sequence[programs.Exercise]) -> Rates:
    """Rates of the solver on exercises about functions (see `answer_rates`)."""
    tasks = [(language.free_form_prompt(e.text), e.answer(sound=True), e.answer(sound=False)) for e in exercises]
    return answer_rates(subject, tasks, 24)


def answer_rates(subject: Subject, tasks: Sequence[SolverTask], max_tokens: int) -> Rates:
    """Sample `ANSWERS` answers per task: shares of sound and of tempting results, and of tasks with mixed results."""
    replies = subject.reply([user for user, _, _ in tasks for _ in range(ANSWERS)], max_tokens)
    boxes = [reply.partition("\\boxed{")[2].partition("}")[0] for reply in replies]
    right, tempted, mixed = 0, 0, 0
    for i, (_, sound, tempting) in enumerate(tasks):
        answers = boxes[ANSWERS * i : ANSWERS * (i + 1)]
        hits = answers.count(sound)
        right += hits
        tempted += answers.count(tempting)
        mixed += 0 < hits < ANSWERS
    total = ANSWERS * len(tasks)
    return {"samples": total, "sound": right / total, "tempting": tempted / total, "mixed": mixed / len(tasks)}


def proposer_rates(subject: Subject, count: int) -> Rates:
    """Rates of the generator as Absolute Zero's proposer: share of well-formed functions or inputs, by task."""
    rng = Random(seed_of(subject.seed, "measure proposer"))
    rates: Rates = {"samples": count}
    for task in programs.TASKS:
        exercises = [programs.draw_exercise(rng, task) for _ in range(count)]
        if task == "induction":
            users = [language.inputs_prompt(exercise.function.text) for exercise in exercises]
        else:
            users = [language.program_prompt(task, exercise.example) for exercise in exercises]
        rates[task] = sum(programs.is_well_formed(task, reply) for reply in subject.reply(users, 64)) / count
    return rates


def judge_rates(subject: Subject, count: int) -> Rates:
    """Rates of the judge on new chunks, greedy: share of sections that it keeps, of front and back matter it drops."""
    rng = Random(seed_of(subject.seed, "measure judge"))
    tasks = (curriculum.judge_chunk, curriculum.judge_chunk, curriculum.judge_chunk_long)
    lessons = [tasks[i % len(tasks)](rng, subject.world) for i in range(count)]
    texts = subject.reply([lesson.user for lesson in lessons], 16, greedy=True)
    pairs = [('"keep": true' in lesson.reply, text[:12]) for lesson, text in zip(lessons, texts, strict=True)]
    keeps = [text == '{"keep": tru' for keep, text in pairs if keep]
    drops = [text == '{"keep": fal' for keep, text in pairs if not keep]
    return {"samples": count, "keep_right": sum(keeps) / len(keeps), "drop_right": sum(drops) / len(drops)}


def base_rates(subject: Subject, *, scale: int = 1) -> dict[str, Rates]:
    """Measure the base rates of all roles; `scale` divides the numbers of samples."""
    world, seed, few = subject.world, subject.seed, 96 // scale
    rates = {
        "generator": writer_rates(subject, 1024 // scale),
        "solver_target": solver_rates(subject, draw_questions("test", world.target, few, seed, world)),
        "solver_transfer": solver_rates(subject, draw_questions("test", world.transfer, few, seed, world)),
        "judge": judge_rates(subject, 384 // scale),
    }
    if world.families:
        rates["solver_problems"] = solver_rates(subject, draw_problems("test", few, seed))
        for task in programs.TASKS:
            rates[f"solver_{task}"] = program_rates(subject, programs.sample_exercises(task, "test", few, seed))
        rates["proposer"] = proposer_rates(subject, 256 // scale)
    return rates
