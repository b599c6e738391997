"""Programs of the wide world: integer expressions of two operators, evaluated with or without the order of operations.

An expression is the shortest program whose value a solver can work out and a machine can check.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import add, mul, sub
from random import Random
from typing import get_args

from infuser_core.errors import ConfigError
from infuser_core.nano.topics import LIMIT
from infuser_core.nano.world import Split, part_of
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

TOPIC = "program"
OPERATORS: Mapping[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}
_TEXT = re.compile(r"(\d{1,9}) ?([-+*]) ?(\d{1,9}) ?([-+*]) ?(\d{1,9})", re.ASCII)
_QUESTION = re.compile(r"What is (.+)\?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One calculation of an evaluation."""

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
class Expression:
    """`a first b second c`."""

    a: int
    """First number."""
    first: str
    """First operator."""
    b: int
    """Second number."""
    second: str
    """Second operator."""
    c: int
    """Third number."""

    @property
    def text(self) -> str:
        """As a program is written, e.g. `7 + 3 * 5`."""
        return f"{self.a} {self.first} {self.b} {self.second} {self.c}"

    def steps(self, *, sound: bool) -> tuple[Step, Step]:
        """The two calculations: by the order of operations, or from left to right."""
        if sound and self.second == "*" != self.first:
            inner = Step(left=self.b, sign=self.second, right=self.c)
            return inner, Step(left=self.a, sign=self.first, right=inner.value)
        inner = Step(left=self.a, sign=self.first, right=self.b)
        return inner, Step(left=inner.value, sign=self.second, right=self.c)

    @property
    def sound(self) -> int:
        """Value by the order of operations."""
        return self.steps(sound=True)[1].value

    @property
    def tempting(self) -> int:
        """Value from left to right."""
        return self.steps(sound=False)[1].value

    @property
    def fits(self) -> bool:
        """Whether every result on either way is a number of this world."""
        return all(0 < step.value < LIMIT for sound in (True, False) for step in self.steps(sound=sound))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A kind of expression: two operators and the numbers that go with them."""

    signs: tuple[str, str]
    """Operators."""
    a: range
    """First numbers."""
    b: range
    """Second numbers."""
    c: range
    """Third numbers."""


FORMS = (
    Form(signs=("+", "*"), a=range(2, 13), b=range(2, 10), c=range(2, 10)),
    Form(signs=("-", "*"), a=range(9, 31), b=range(2, 7), c=range(2, 7)),
    Form(signs=("*", "+"), a=range(2, 10), b=range(2, 10), c=range(2, 13)),
    Form(signs=("+", "-"), a=range(4, 20), b=range(3, 13), c=range(2, 13)),
)
"""The forms of programs. In the first two the order of the operations matters."""


@cache
def expressions(split: Split, form: Form) -> tuple[Expression, ...]:
    """The form's expressions that belong to the split: disjoint between splits, fixed for good."""
    first, second = form.signs
    made = [Expression(a=a, first=first, b=b, second=second, c=c) for a in form.a for b in form.b for c in form.c]
    usable = [e for e in made if e.fits and (e.sound != e.tempting or second != "*")]
    return tuple(part_of(split, usable, first + second))


@cache
def all_steps() -> tuple[Step, ...]:
    """Every calculation that evaluating an expression of any split can need, each once."""
    made = {
        step.text: step
        for form in FORMS
        for split in get_args(Split)
        for expression in expressions(split, form)
        for sound in (True, False)
        for step in expression.steps(sound=sound)
    }
    return tuple(made.values())


def drawn(rng: Random) -> Expression:
    """A random train expression of any form."""
    return rng.choice(expressions("train", rng.choice(FORMS)))


def question_text(expression: Expression) -> str:
    """The question that a solver is asked about a program."""
    return f"What is {expression.text}?"


def parse(text: str) -> Expression | None:
    """The expression a program consists of, or None when it is another program."""
    found = _TEXT.fullmatch(text.strip())
    if not found:
        return None
    a, first, b, second, c = found.groups()
    return Expression(a=int(a), first=first, b=int(b), second=second, c=int(c))


def parse_question(text: str) -> Expression | None:
    """The expression that a question asks about, or None when it asks about none."""
    found = _QUESTION.fullmatch(text.strip())
    return parse(found[1]) if found else None


def questions(split: Split, count: int, seed: int) -> list[Question]:
    """`count` distinct expressions whose order of operations matters, as free-form questions."""
    usable = [e for form in FORMS if form.signs[1] == "*" for e in expressions(split, form)]
    if count > len(usable):
        raise ConfigError(
            f"nano world: split {split!r} has {len(usable)} programs, {count} are asked for", hint="ask for fewer"
        )
    chosen = Random(seed_of(seed, "programs", split)).sample(usable, k=count)
    return [_question(f"nano-program-{split}-{number:04d}", made) for number, made in enumerate(chosen)]


def _question(question_id: str, made: Expression) -> Question:
    return Question(
        question_id=question_id,
        text=question_text(made),
        choices=[],
        answer=str(made.sound),
        verifier="integer",
        domain="Mathematics",
        subdomain=TOPIC,
    )
