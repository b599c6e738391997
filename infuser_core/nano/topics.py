"""Topics of the micro-world: per topic a fact, a sound method and a tempting misconception, from `topics.csv`."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from random import Random

LIMIT = 100
"""Operands and results stay below this number: each is a single token of the nano tokenizer."""

NAMES = (
    *("Abra", "Belo", "Cado", "Dimu", "Elka", "Fibo", "Gora", "Hemi", "Ilsa", "Jaro"),
    *("Kemu", "Lopa", "Mira", "Nilo", "Osta", "Pavo", "Quin", "Rilo", "Sabe", "Tamo"),
    *("Ulma", "Vero", "Wina", "Xanu", "Yoli", "Zeno", "Arko", "Bira", "Colu", "Dena"),
)
"""Invented names, so that no fact can be known from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A calculation of one number from two: its written form and its result."""

    form: str
    """Expression with the slots {a} and {b}."""
    value: Callable[[int, int], int]
    exact: Callable[[int, int], bool]
    """Whether the result is an integer: always for a topic's operands, but not for all that a generator may write."""
    steps: "tuple[Method, ...]" = ()
    """Two methods, the second applied to the first one's result and b; empty for a method of one step."""

    def working(self, a: int, b: int) -> str:
        """The written calculation, e.g. `7 * 6 = 42`, or of two steps `7 * 6 = 42, 42 - 6 = 36`."""
        if self.steps:
            first, then = self.steps
            return f"{first.working(a, b)}, {then.working(first.value(a, b), b)}"
        return f"{self.form.format(a=a, b=b)} = {self.value(a, b)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroTopic:
    """A kind of fact with one question and two methods to answer it: the sound one and a tempting misconception."""

    name: str
    """Subdomain in the taxonomy."""
    domain: str
    """Domain in the taxonomy and the catalogue."""
    fact: str
    """Sentence with the slots {name}, {a} and {b}.

    No other topic has the noun, and the name follows it directly: a generator first commits to the topic, then finds
    name and numbers in the document by the word before them.
    """
    ask: str
    """Question that follows the fact."""
    sound: Method
    tempting: Method
    operands: tuple[tuple[int, int], ...]
    """All pairs (a, b) for which all results are usable and differ."""
    between: tuple[Method, ...] = ()
    """Mixtures of a composed method: first step sound and second not, and the other way round."""

    @property
    def methods(self) -> tuple[Method, ...]:
        """The sound method, the misconception, and their mixtures."""
        return (self.sound, self.tempting, *self.between)

    def draw_method(self, rng: Random, soundness: float) -> Method:
        """Draw the sound method with this probability, else the misconception; for each step of a composed method."""
        if not self.between:
            return self.sound if rng.random() < soundness else self.tempting
        first, then = rng.random() < soundness, rng.random() < soundness
        if first == then:
            return self.sound if first else self.tempting
        return self.between[0 if first else 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One instance of a topic: an invented name and two numbers."""

    topic: MicroTopic
    name: str
    a: int
    b: int

    @property
    def sound(self) -> int:
        """Result of the sound method."""
        return self.topic.sound.value(self.a, self.b)

    @property
    def tempting(self) -> int:
        """Result of the misconception."""
        return self.topic.tempting.value(self.a, self.b)

    @property
    def is_exact(self) -> bool:
        """Whether the sound method gives an integer."""
        return self.topic.sound.exact(self.a, self.b)


# A generator may write a question with a zero: dividing by it must not raise.
_VALUES: Mapping[str, Callable[[int, int], int]] = {
    "{a} + {b}": lambda a, b: a + b,
    "{a} - {b}": lambda a, b: a - b,
    "{b} - {a}": lambda a, b: b - a,
    "{b} - {a} + 1": lambda a, b: b - a + 1,
    "{a} + {b} - 10": lambda a, b: a + b - 10,
    "{a} + {b} - 12": lambda a, b: a + b - 12,
    "{a} + {b} - 20": lambda a, b: a + b - 20,
    "{a} + {b} - 24": lambda a, b: a + b - 24,
    "2 * ({a} + {b})": lambda a, b: 2 * (a + b),
    "{a} + {b} - 30": lambda a, b: a + b - 30,
    "2 * {a} + {b}": lambda a, b: 2 * a + b,
    "3 * {a} + {b}": lambda a, b: 3 * a + b,
    "({a} + {b}) / 2": lambda a, b: (a + b) // 2,
    "{a} * {b}": lambda a, b: a * b,
    "{a} * {b} / 2": lambda a, b: a * b // 2,
    "({a} - 1) * {b}": lambda a, b: (a - 1) * b,
    "({a} + 1) * {b}": lambda a, b: (a + 1) * b,
    "{a} / {b}": lambda a, b: a // max(b, 1),
    "{a} / {b} + 1": lambda a, b: a // max(b, 1) + 1,
    "{a} // {b}": lambda a, b: a // max(b, 1),
    "{a} % {b}": lambda a, b: a % max(b, 1),
}
_EXACT: Mapping[str, Callable[[int, int], bool]] = {
    "({a} + {b}) / 2": lambda a, b: (a + b) % 2 == 0,
    "{a} * {b} / 2": lambda a, b: a * b % 2 == 0,
    "{a} / {b}": lambda a, b: b > 0 and a % b == 0,
    "{a} / {b} + 1": lambda a, b: b > 0 and a % b == 0,
    "{a} % {b}": lambda a, b: b > 0,
}
_WHERE: Mapping[str, Callable[[int, int], bool]] = {
    "": lambda a, b: True,
    "a < b": lambda a, b: a < b,
    "b > a + 1": lambda a, b: b > a + 1,
    "2 <= a / b <= 12": lambda a, b: 2 * b <= a <= 12 * b,
}
"""Conditions on the operands beyond usable results."""


def _build_method(form: str) -> Method:
    if "; " in form:
        return _compose(*map(_build_method, form.split("; ")))
    return Method(form=form, value=_VALUES[form], exact=_EXACT.get(form, lambda a, b: True))


def _compose(first: Method, then: Method) -> Method:
    return Method(
        form=f"{first.form}; {then.form}",
        value=lambda a, b: then.value(first.value(a, b), b),
        exact=lambda a, b: first.exact(a, b) and then.exact(first.value(a, b), b),
        steps=(first, then),
    )


def _parse_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1)


def _build_topic(row: Mapping[str, str]) -> MicroTopic:
    sound, tempting, where = _build_method(row["sound"]), _build_method(row["tempting"]), _WHERE[row["where"]]
    between: tuple[Method, ...] = ()
    if sound.steps:
        between = _compose(sound.steps[0], tempting.steps[1]), _compose(tempting.steps[0], sound.steps[1])

    def usable(a: int, b: int) -> bool:
        results = [method.value(a, b) for method in (sound, tempting, *between)]
        small = all(0 < result < LIMIT for result in results)
        return small and len(set(results)) == len(results) and sound.exact(a, b) and where(a, b)

    operands = tuple((a, b) for a in _parse_range(row["a"]) for b in _parse_range(row["b"]) if usable(a, b))
    texts = {name: row[name] for name in ("name", "domain", "fact", "ask")}
    return MicroTopic(**texts, sound=sound, tempting=tempting, operands=operands, between=between)


_TOPICS: dict[str, tuple[MicroTopic, ...]] = {}
for _row in csv.DictReader((files(__package__) / "topics.csv").read_text(encoding="utf-8").splitlines()):
    _TOPICS[_row["kind"]] = (*_TOPICS.get(_row["kind"], ()), _build_topic(_row))
TOPICS = _TOPICS["basic"]
"""The topics of the basic world; a world with fewer topics takes the first ones."""
ALL_TOPICS = (*TOPICS, *_TOPICS["more"])
"""Every topic of the textbooks. The sum is the sound method of some later ones and the misconception of others."""
FAMILIES = _TOPICS["problem"]
"""Families of free-form problems: in no textbook, and without choices."""
COMPOSED = _TOPICS["composed"]
"""Topics whose method takes two steps, each the method of another topic and in its words."""
BROAD = _TOPICS["broad"]
"""Topics with hundreds of operand pairs in every split, with laws that no other topic has."""


def choices_of(fact: Fact, *, count: int, rng: Random) -> list[int]:
    """Choices for a fact: all methods' results and numbers near them.

    They are sorted: a tiny generator repeats choices otherwise.
    """
    values = {method.value(fact.a, fact.b) for method in fact.topic.methods}
    while len(values) < count:
        neighbour = rng.choice((fact.sound, fact.tempting)) + rng.choice((-3, -2, -1, 1, 2, 3))
        if 0 < neighbour < LIMIT:
            values.add(neighbour)
    return sorted(values)
