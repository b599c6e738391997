"""Texts of the micro-world: facts, sections, questions, prompts, and the replies of generator, solver and judge."""

import json
import re
from collections.abc import Sequence

from infuser_core.nano.topics import ALL_TOPICS, BROAD, COMPOSED, FAMILIES, Fact, Method, MicroTopic
from infuser_core.prompts import templates as prompts

LETTERS = "ABCD"
WIDE = "nano-wide"
"""Prompt profile of the wide world."""
KEEP_REASON = "It states facts."
DROP_REASONS = {
    "title": "It is a title page.",
    "contents": "It is a list of contents.",
    "preface": "It is a preface.",
    "index": "It is an index.",
    "answers": "It is a list of answers.",
    "fragment": "It is a fragment.",
}
"""Reasons for which the judge drops a chunk, by kind of chunk."""

EDITION = ("First edition. All readers may share this book.", "A second edition is planned.")
"""Lines of a title page below title and author."""
PREFACE = (
    "This book is a set of notes from a small world.",
    "Each section states facts, one after the other.",
    "The author thanks all readers of the first edition.",
    "It was made for a test and may be shared.",
)
"""Sentences of a preface."""
TITLES = tuple(f"{kind} of a small world" for kind in ("Notes", "Laws", "Measures", "Readings"))
FRONT_MATTER = ("Preface", "Contents", "Index", "Answers", *PREFACE, *reversed(EDITION), *TITLES)
"""Sentences and titles of the front and back matter."""
AUTHORS = ("Ada Mill", "Ben Port", "Cora Farm", "Dan Tower")
PLACES = ("mill", "farm", "port", "school", "shop", "bridge", "tower", "garden", "market", "station")
TIMES = ("Morning", "Noon", "Evening", "Winter", "Summer", "Spring")


def fact_text(fact: Fact) -> str:
    """Sentence that states a fact in a textbook."""
    return fact.topic.fact.format(name=fact.name, a=fact.a, b=fact.b)


def question_text(fact: Fact) -> str:
    """Text of the question about a fact, which states the fact, so that a solver needs no document."""
    return f"{fact_text(fact)} {fact.topic.ask}"


def paragraph(facts: Sequence[Fact]) -> str:
    """Body of a section: the sentences of its facts."""
    return " ".join(fact_text(fact) for fact in facts)


def section_title(chapter: int, section: int, place: str) -> str:
    """Title of a section, in the outline and above its paragraph."""
    return f"{chapter}.{section} Notes from the {place}"


def chapter_title(chapter: int, time: str) -> str:
    """Title of a chapter."""
    return f"{chapter} {time} notes"


def generator_json(fact: Fact, method: Method, choices: Sequence[int]) -> str:
    """The generator's reply, a JSON object; its key (`ground_truth`) is the result of the reasoning before it."""
    return json.dumps(
        {
            "question_text": question_text(fact),
            "reasoning": method.working(fact.a, fact.b),
            "choices": [str(choice) for choice in choices],
            "ground_truth": str(method.value(fact.a, fact.b)),
        }
    )


def solver_answer(fact: Fact, method: Method, choices: Sequence[int]) -> str:
    """The solver's reply: a short calculation, then the letter of its result in a box."""
    letter = LETTERS[list(choices).index(method.value(fact.a, fact.b))]
    return f"{method.working(fact.a, fact.b)} \\boxed{{{letter}}}"


def judge_json(keep: bool, reason: str) -> str:
    """The judge's reply about a chunk, a JSON object: whether to keep the chunk, and the reason."""
    return json.dumps({"keep": keep, "reason": reason})


def generator_prompt(text: str) -> str:
    """User turn of the generator for a document."""
    return prompts.load_template("generate_mcq", profile="nano").messages(text=text)[0]["content"]


def solver_prompt(text: str, choices: Sequence[str]) -> str:
    """User turn of the solver for a question."""
    question = prompts.render_question(text, list(choices))
    return prompts.load_template("solve_mcq", profile="nano").messages(question=question)[0]["content"]


def judge_prompt(text: str) -> str:
    """User turn of the judge for a chunk."""
    return prompts.load_template("judge_chunk", profile="nano").messages(text=text)[0]["content"]


def free_form_prompt(text: str) -> str:
    """User turn of the solver for a question without choices."""
    return prompts.load_template("solve_free_form", profile=WIDE).messages(question=text)[0]["content"]


def challenge_prompt() -> str:
    """User turn of the generator that writes a question without a document."""
    return prompts.load_template("generate_challenge", profile=WIDE).messages()[0]["content"]


def program_prompt(task: str, examples: str = "") -> str:
    """User turn of the generator that writes a program for a task, preceded by example programs, if any."""
    turn = prompts.load_template(f"generate_{task}", profile=WIDE).messages()[0]["content"]
    if not examples:
        return turn
    preface = prompts.load_template("show_programs", profile=WIDE).messages(examples=examples)[0]["content"]
    return f"{preface}\n\n{turn}"


def inputs_prompt(text: str) -> str:
    """User turn of the generator that writes inputs for a program."""
    return prompts.load_template("generate_induction", profile=WIDE).messages(text=text)[0]["content"]


def examples_prompt(examples: str, text: str) -> str:
    """User turn of the generator for a document, preceded by example questions."""
    preface = prompts.load_template("show_questions", profile=WIDE).messages(examples=examples)[0]["content"]
    return f"{preface}\n\n{generator_prompt(text)}"


def aimed_prompt(percent: int, text: str) -> str:
    """User turn of the generator for a document, preceded by an accuracy to aim at."""
    preface = prompts.load_template("show_aim", profile=WIDE).messages(percent=str(percent))[0]["content"]
    return f"{preface}\n\n{generator_prompt(text)}"


def _compile_pattern(topic: MicroTopic) -> re.Pattern[str]:
    escaped = re.escape(f"{topic.fact} {topic.ask}")
    for slot, group in (("name", r"(?P<name>\w+)"), ("a", r"(?P<a>\d+)"), ("b", r"(?P<b>\d+)")):
        escaped = escaped.replace(re.escape("{" + slot + "}"), group)
    return re.compile(escaped)


_PATTERNS = [(topic, _compile_pattern(topic)) for topic in (*ALL_TOPICS, *COMPOSED, *BROAD, *FAMILIES)]


def parse_question(text: str) -> Fact | None:
    """Parse a question into the fact that it is about; None if the text is not a question of this world."""
    for topic, pattern in _PATTERNS:
        if match := pattern.fullmatch(text.strip()):
            return Fact(topic=topic, name=match["name"], a=int(match["a"]), b=int(match["b"]))
    return None
