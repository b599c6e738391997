"""Programs of the wide world: functions of two operators, and Absolute Zero's three tasks about them.

Each task has a sound method and a misconception. Deduction: the order of operations, or from left to right. Abduction:
undo the product by division, or by subtraction. Induction: extrapolate from the values for 1 and 2 to the value for 0,
or mistake the value for 1 for it.
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
"""Start of every function."""
_CALL = re.compile(rf'\{{"program": "{re.escape(HEAD)}\d+ [+-] x \* \d+", "arguments": "\d+"\}}', re.ASCII)
_INPUTS = re.compile(r'\{"inputs": \["\d+", "\d+", "\d+", "\d+"\]\}', re.ASCII)
HIDDEN = (5, 8)
"""Hidden arguments on which the function in an answer is tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One calculation: two numbers and an operator."""

    left: int
    sign: str
    right: int

    @property
    def value(self) -> int:
        return OPERATORS[self.sign](self.left, self.right)

    @property
    def text(self) -> str:
        """The written calculation, e.g. `3 * 5 = 15`."""
        return f"{self.left} {self.sign} {self.right} = {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of the wide world: `base sign x * slope`."""

    base: int
    sign: Sign
    slope: int

    @property
    def text(self) -> str:
        """Source code, e.g. `def f(x): return 7 + x * 5`."""
        return f"{HEAD}{self.base} {self.sign} x * {self.slope}"

    def value(self, x: int) -> int:
        return OPERATORS[self.sign](self.base, x * self.slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """An exercise: a task about a function, with the argument of its call."""

    task: Task
    function: Function
    x: int
    """The call's argument; for induction, the first of two consecutive ones."""

    @property
    def text(self) -> str:
        """The question as the task's route asks it."""
        if self.task == "deduction":
            return ask_value(self.function.text, str(self.x))
        if self.task == "abduction":
            return ask_arguments(self.function.text, self.function.value(self.x))
        return ask_function((str(x), self.function.value(x)) for x in (self.x, self.x + 1))

    @property
    def example(self) -> str:
        """The function and its call, as an example for the generator."""
        return render_call(self.function.text, str(self.x))

    def steps(self, *, sound: bool) -> tuple[Step, ...]:
        """The calculations of the sound method, or of the misconception."""
        function, first = self.function, self.function.value(self.x)
        if self.task == "deduction" and sound:
            inner = Step(left=self.x, sign="*", right=function.slope)
            return inner, Step(left=function.base, sign=function.sign, right=inner.value)
        if self.task == "deduction":
            inner = Step(left=function.base, sign=function.sign, right=self.x)
            return inner, Step(left=inner.value, sign="*", right=function.slope)
        if self.task == "abduction":
            inner = _subtract(first, function.base)
            return inner, Step(left=inner.value, sign="/" if sound else "-", right=function.slope)
        inner = _subtract(first, function.value(self.x + 1))
        back = Step(left=first, sign="-" if function.sign == "+" else "+", right=inner.value)
        return (inner, back) if sound else (inner,)

    def answer(self, *, sound: bool) -> str:
        """Answer by the sound method, or by the misconception, as in the box."""
        steps, function = self.steps(sound=sound), self.function
        if self.task != "induction":
            return str(steps[-1].value)
        base = steps[1].value if len(steps) > 1 else function.value(self.x)
        return Function(base=base, sign=function.sign, slope=steps[0].value).text

    def reply(self, *, sound: bool) -> str:
        """A solver's reply: the calculations, then the answer in a box."""
        workings = ", ".join(step.text for step in self.steps(sound=sound))
        return f"{workings} \\boxed{{{self.answer(sound=sound)}}}"

    @property
    def is_usable(self) -> bool:
        """Whether both methods use only numbers of this world and differ in their results."""
        steps = [step for sound in (True, False) for step in self.steps(sound=sound)]
        small = all(0 < number < LIMIT for step in steps for number in (step.left, step.right, step.value))
        return small and self.answer(sound=True) != self.answer(sound=False)

    def question(self, question_id: str) -> Question:
        """The exercise as a Question with the sound answer, checked by the same verifier as in the task's route."""
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


def _subtract(one: int, other: int) -> Step:
    return Step(left=max(one, other), sign="-", right=min(one, other))


_BASES: Mapping[Sign, range] = {"+": range(2, 16), "-": range(9, 31)}
_SLOPES: Mapping[Sign, range] = {"+": range(2, 10), "-": range(2, 7)}
_INDUCTION_BASES: Mapping[Sign, range] = {"+": range(2, 40), "-": range(9, 40)}
"""Wider than `_BASES`: with one argument per function there would be few exercises."""


@cache
def exercises_of(split: Split, task: Task, sign: Sign) -> tuple[Exercise, ...]:
    """Usable exercises of a task and sign that belong to a split; splits are disjoint and never change."""
    bases, arguments = _BASES[sign], _SLOPES[sign]
    if task == "induction":
        # From 0 on the misconception would be right, and a solver could learn only one of the two.
        bases, arguments = _INDUCTION_BASES[sign], range(1, 2)
    candidates = [
        Exercise(task=task, function=Function(base=base, sign=sign, slope=slope), x=x)
        for base, slope, x in product(bases, _SLOPES[sign], arguments)
    ]
    return tuple(part_of(split, [exercise for exercise in candidates if exercise.is_usable], task + sign))


@cache
def all_steps() -> tuple[Step, ...]:
    """Every calculation of the exercises of all splits, without repetition."""
    steps = {
        step.text: step
        for split, task, sign in product(get_args(Split), TASKS, _BASES)
        for exercise in exercises_of(split, task, sign)
        for sound in (True, False)
        for step in exercise.steps(sound=sound)
    }
    return tuple(steps.values())


def draw_exercise(rng: Random, task: Task) -> Exercise:
    """Draw a random exercise of the task from the train split."""
    return rng.choice(exercises_of("train", task, rng.choice(tuple(_BASES))))


def sample_exercises(task: Task, split: Split, count: int, seed: int) -> list[Exercise]:
    """Draw `count` distinct exercises of the task. Raises ConfigError if the split has fewer."""
    exercises = [exercise for sign in _BASES for exercise in exercises_of(split, task, sign)]
    if count > len(exercises):
        raise ConfigError(
            f"nano world: split {split!r} has {len(exercises)} programs for {task}, {count} are requested",
            hint="request fewer",
        )
    return Random(seed_of(seed, task, split)).sample(exercises, k=count)


def draw_questions(split: Split, count: int, seed: int) -> list[Question]:
    """Draw `count` distinct questions about functions, spread evenly over the tasks."""
    counts = [len(range(place, count, len(TASKS))) for place in range(len(TASKS))]
    samples = [sample_exercises(task, split, n, seed) for task, n in zip(TASKS, counts, strict=True)]
    return [
        samples[number % len(TASKS)][number // len(TASKS)].question(f"nano-program-{split}-{number:04d}")
        for number in range(count)
    ]


def is_well_formed(task: Task, text: str) -> bool:
    """Whether a generator's reply has the lessons' form: a function with a call, or four different inputs."""
    if task != "induction":
        return _CALL.fullmatch(text) is not None
    return _INPUTS.fullmatch(text) is not None and len(set(re.findall(r"\d+", text))) == 4
