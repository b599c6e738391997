"""The nano tokenizer: byte-level BPE in which numbers, words and JSON scaffold are single tokens.

A number is one token in every place: the space before it belongs to the word before. Otherwise copying a number from
a sentence into a JSON string would mean translating between two tokens of the same number.
"""

from collections.abc import Iterator
from random import Random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from infuser_core.nano import language, programs
from infuser_core.nano.topics import LIMIT
from infuser_core.nano.world import WORLD, WorldConfig, draw_fact, draw_notes
from infuser_core.prompts.function_questions import IDENTITY_PROGRAM

MAX_TOKENS = 1024
PAD, END, SYSTEM, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"

SCAFFOLD = (
    '{"question_text": "',
    '", "reasoning": "',
    '", "choices": ["',
    '", "',
    '"], "ground_truth": "',
    '"}',
    '{"keep": true, "reason": "',
    '{"keep": false, "reason": "',
    " \\boxed{",
    *(f"\n{letter}) " for letter in language.LETTERS),
)
"""Texts that are single tokens, but not special ones: decoding without special tokens must give back exact JSON."""
PROGRAM_SCAFFOLD = ('{"program": "', '", "arguments": "', '{"inputs": ["', '"]}', programs.HEAD)
"""Further texts that are single tokens in a world with programs."""

_PIECES = r"\d{1,2}| ?\p{L}+(?: (?=\d))?| ?(?:[^\s\w]+ ?)+(?=\d)|\n+| ?[^\s\w]+|\s+"

_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def chat(user: str) -> str:
    """The chat template's text for one user turn, ready for the reply."""
    return f"{USER}{user}{END}{ASSISTANT}"


def _lexicon(world: WorldConfig) -> Iterator[str]:
    """Text in which every word of the world occurs often; frequencies only order the merges."""
    for number in range(LIMIT):
        yield from [str(number)] * 50
    for topic in world.topics:
        yield f"{topic.name}, {topic.name}; {topic.name} {topic.ask}"
    for note in draw_notes(0, 400, world):
        yield language.paragraph(note.facts)
        for fact in note.facts:
            yield language.question_text(fact)
            yield fact.topic.sound.working(fact.a, fact.b) + ", " + fact.topic.tempting.working(fact.a, fact.b)
    for place in language.PLACES:
        for time in language.TIMES:
            yield " ".join(["", place, time] * 20)
            yield f"## {language.section_title(1, 2, place)}\n\n# {language.chapter_title(3, time)}\n\n"
    front = [*language.FRONT_MATTER, *language.DROP_REASONS.values(), language.KEEP_REASON]
    yield from front * 20
    yield from [language.generator_prompt(" "), language.solver_prompt(" ", []), language.judge_prompt(" ")] * 100
    if world.families:
        yield from _wide_lexicon(world)


def _wide_lexicon(world: WorldConfig) -> Iterator[str]:
    rng = Random(0)
    exercises = [programs.draw_exercise(rng, task) for task in programs.TASKS]
    prompts = [language.challenge_prompt(), language.examples_prompt(" ", " ")]
    prompts.append(language.inputs_prompt(IDENTITY_PROGRAM))
    prompts += [language.program_prompt(exercise.task, exercise.example) for exercise in exercises[:2]]
    yield from [*prompts, *(exercise.text for exercise in exercises), "\nAnswer: A"] * 100
    for topic in world.families * 100:
        fact = draw_fact("train", topic, rng)
        yield f" {topic.name} {language.question_text(fact)}"
        yield topic.sound.working(fact.a, fact.b) + ", " + topic.tempting.working(fact.a, fact.b)


def train_tokenizer(world: WorldConfig = WORLD) -> PreTrainedTokenizerFast:
    """Train the world's tokenizer; every call returns an equal one."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    scaffold = (*SCAFFOLD, *PROGRAM_SCAFFOLD) if world.families else SCAFFOLD
    trainer = trainers.BpeTrainer(
        vocab_size=MAX_TOKENS - len(scaffold),
        min_frequency=1,
        special_tokens=[PAD, END, SYSTEM, USER, ASSISTANT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_lexicon(world), trainer)
    core.add_tokens([AddedToken(text, normalized=False, special=False) for text in scaffold])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
