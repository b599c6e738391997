"""Programs of the wide world: functions of two operators, and Absolute Zero's three tasks about them.

Each task has a sound method and a misconception. Deduction: the order of operations, or from left to right. Abduction:
the product is undone by division, or by taking away. Induction: the value for 1 is one step from that for 0, or is
taken for it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import add, floordiv, mul, sub
from random import Random
from typing import Literal, get_args

from infuser_core.errors import ConfigError
from infuser_core.nano.topics import LIMIT
from infuser_core.nano.world import Split, part_of
from infuser_core.prompts.function_questions import ask_arguments, ask_function, ask_value, render_call
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of
from infuser_core.verifiers.arguments import LIMITS
from infuser_core.verifiers.parts.code_tests import call_tests
from infuser_core.verifiers.parts.grading import Grading, as_text

Task = Literal["deduction", "abduction", "induction"]
Sign = Literal["+", "-"]
TASKS: tuple[Task, ...] = get_args(Task)
OPERATORS: Mapping[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "/": floordiv}
HEAD = "def f(x): return "
"""The start of every function."""
_CALL = re.compile(rf'\{{"program": "{re.escape(HEAD)}\d+ [+-] x \* \d+", "arguments": "\d+"\}}', re.ASCII)
_INPUTS = re.compile(r'\{"inputs": \["\d+", "\d+", "\d+", "\d+"\]\}', re.ASCII)
HIDDEN = (5, 8)
"""Arguments that a function which was found is tested with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One calculation."""

    left: int
    """First number."""
    sign: str
    """Operator."""
    right: int
    """Second number."""

    @property
    def value(self) -> int:
        """Its result."""
        return OPERATORS[self.sign](self.left, self.right)

    @property
    def text(self) -> str:
        """As it is written, e.g. `3 * 5 = 15`."""
        return f"{self.left} {self.sign} {self.right} = {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of the wide world: `base sign x * slope`."""

    base: int
    """First number."""
    sign: Sign
    """First operator."""
    slope: int
    """Second number."""

    @property
    def text(self) -> str:
        """Its source, e.g. `def f(x): return 7 + x * 5`."""
        return f"{HEAD}{self.base} {self.sign} x * {self.slope}"

    def value(self, x: int) -> int:
        """Its value for an argument."""
        return OPERATORS[self.sign](self.base, x * self.slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A task about a function."""

    task: Task
    """Deduction, abduction or induction."""
    function: Function
    """The function."""
    x: int
    """The call's argument; in induction 1, the first of the two that are shown."""

    @property
    def text(self) -> str:
        """The question as the task's route asks it."""
        if self.task == "deduction":
            return ask_value(self.function.text, str(self.x))
        if self.task == "abduction":
            return ask_arguments(self.function.text, self.function.value(self.x))
        return ask_function((str(x), self.function.value(x)) for x in (self.x, self.x + 1))

    @property
    def used(self) -> str:
        """The call as it is shown to who writes the next function."""
        return render_call(self.function.text, str(self.x))

    def steps(self, *, sound: bool) -> tuple[Step, ...]:
        """The calculations of the sound method, or of the misconception."""
        made, first = self.function, self.function.value(self.x)
        if self.task == "deduction" and sound:
            inner = Step(left=self.x, sign="*", right=made.slope)
            return inner, Step(left=made.base, sign=made.sign, right=inner.value)
        if self.task == "deduction":
            inner = Step(left=made.base, sign=made.sign, right=self.x)
            return inner, Step(left=inner.value, sign="*", right=made.slope)
        if self.task == "abduction":
            inner = _between(first, made.base)
            return inner, Step(left=inner.value, sign="/" if sound else "-", right=made.slope)
        inner = _between(first, made.value(self.x + 1))
        back = Step(left=first, sign="-" if made.sign == "+" else "+", right=inner.value)
        return (inner, back) if sound else (inner,)

    def answer(self, *, sound: bool) -> str:
        """The end of the method, as it is boxed."""
        steps, made = self.steps(sound=sound), self.function
        if self.task != "induction":
            return str(steps[-1].value)
        base = steps[1].value if len(steps) > 1 else made.value(self.x)
        return Function(base=base, sign=made.sign, slope=steps[0].value).text

    def reply(self, *, sound: bool) -> str:
        """The calculations, and the answer in its box."""
        workings = ", ".join(step.text for step in self.steps(sound=sound))
        return f"{workings} \\boxed{{{self.answer(sound=sound)}}}"

    @property
    def fits(self) -> bool:
        """Whether all numbers on both ways are those of this world, and the ways part."""
        steps = [step for sound in (True, False) for step in self.steps(sound=sound)]
        small = all(0 < number < LIMIT for step in steps for number in (step.left, step.right, step.value))
        return small and self.answer(sound=True) != self.answer(sound=False)

    def question(self, question_id: str) -> Question:
        """The question, answered by the sound method and judged as the task's route has it."""
        verifier, grading = "literal", Grading(program=self.function.text, arguments=str(self.x))
        if self.task == "abduction":
            verifier = "arguments"
        if self.task == "induction":
            calls = [((x,), self.function.value(x)) for x in HIDDEN]
            verifier, grading = "code", Grading(cases=call_tests("f", calls, seconds=LIMITS.seconds))
        return Question(
            question_id=question_id,
            text=self.text,
            choices=[],
            answer=self.answer(sound=True),
            verifier=verifier,
            domain="Mathematics",
            subdomain=self.task,
            grading=as_text(grading),
        )


def _between(one: int, other: int) -> Step:
    return Step(left=max(one, other), sign="-", right=min(one, other))


_BASES: Mapping[Sign, range] = {"+": range(2, 16), "-": range(9, 31)}
_SLOPES: Mapping[Sign, range] = {"+": range(2, 10), "-": range(2, 7)}
_FOUND: Mapping[Sign, range] = {"+": range(2, 40), "-": range(9, 40)}
"""First numbers of functions to be found: with one argument each there are few exercises otherwise."""


@cache
def exercises(split: Split, task: Task, sign: Sign) -> tuple[Exercise, ...]:
    """The task's exercises that belong to the split: disjoint between splits, fixed for good."""
    bases, arguments = _BASES[sign], _SLOPES[sign]
    if task == "induction":
        # From 0 on the misconception would be right, and a solver could learn but one of the two.
        bases, arguments = _FOUND[sign], range(1, 2)
    made = [
        Exercise(task=task, function=Function(base=base, sign=sign, slope=slope), x=x)
        for base, slope, x in product(bases, _SLOPES[sign], arguments)
    ]
    return tuple(part_of(split, [each for each in made if each.fits], task + sign))


@cache
def all_steps() -> tuple[Step, ...]:
    """Every calculation that an exercise of any split can need, each once."""
    made = {
        step.text: step
        for split, task, sign in product(get_args(Split), TASKS, _BASES)
        for exercise in exercises(split, task, sign)
        for sound in (True, False)
        for step in exercise.steps(sound=sound)
    }
    return tuple(made.values())


def drawn(rng: Random, task: Task) -> Exercise:
    """A random train exercise of the task."""
    return rng.choice(exercises("train", task, rng.choice(tuple(_BASES))))


def chosen(task: Task, split: Split, count: int, seed: int) -> list[Exercise]:
    """`count` distinct exercises of the task. Raises ConfigError where the split has fewer."""
    usable = [each for sign in _BASES for each in exercises(split, task, sign)]
    if count > len(usable):
        raise ConfigError(
            f"nano world: split {split!r} has {len(usable)} programs for {task}, {count} are asked for",
            hint="ask for fewer",
        )
    return Random(seed_of(seed, task, split)).sample(usable, k=count)


def questions(split: Split, count: int, seed: int) -> list[Question]:
    """`count` distinct questions about functions, spread evenly over the tasks."""
    tasks = {task: chosen(task, split, len(range(place, count, len(TASKS))), seed) for place, task in enumerate(TASKS)}
    made = [tasks[TASKS[number % len(TASKS)]][number // len(TASKS)] for number in range(count)]
    return [each.question(f"nano-program-{split}-{number:04d}") for number, each in enumerate(made)]


def well_formed(task: Task, text: str) -> bool:
    """Whether a generator's text has the form of the lessons: a function with a call, or four different inputs."""
    if task != "induction":
        return _CALL.fullmatch(text) is not None
    return _INPUTS.fullmatch(text) is not None and len(set(re.findall(r"\d+", text))) == 4
