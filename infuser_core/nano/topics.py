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
    """One way to get a number from two: how it is written and what it gives."""

    form: str
    """Expression with the slots {a} and {b}."""
    value: Callable[[int, int], int]
    """The number it gives."""
    exact: Callable[[int, int], bool]
    """Whether it gives a whole number; always so for the operands of a topic, not for what a generator may write."""
    steps: "tuple[Method, ...]" = ()
    """Two methods, of which the second takes the first one's result for its first number; empty for a single one."""

    def working(self, a: int, b: int) -> str:
        """The written calculation, e.g. `7 * 6 = 42`, or of two steps `7 * 6 = 42, 42 - 6 = 36`."""
        if self.steps:
            first, then = self.steps
            return f"{first.working(a, b)}, {then.working(first.value(a, b), b)}"
        return f"{self.form.format(a=a, b=b)} = {self.value(a, b)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroTopic:
    """A kind of fact with one question and two rival methods."""

    name: str
    """Topic word, as the taxonomy's subdomain."""
    domain: str
    """Broad area, as the taxonomy and the catalogue use it."""
    fact: str
    """Sentence with the slots {name}, {a} and {b}.

    The noun belongs to this topic alone and stands directly before the name: a writer commits to the topic first and
    finds name and numbers by what stood before them in the document.
    """
    ask: str
    """The question that follows the fact."""
    sound: Method
    """The method whose result is the truth."""
    tempting: Method
    """The misconception."""
    operands: tuple[tuple[int, int], ...]
    """All pairs (a, b) for which all results are usable and differ."""
    between: tuple[Method, ...] = ()
    """Of a composed method: the first step sound and the second not, and the other way round."""

    @property
    def methods(self) -> tuple[Method, ...]:
        """Every rival: the sound one, the misconception, and what lies between them."""
        return (self.sound, self.tempting, *self.between)

    def drawn(self, rng: Random, soundness: float) -> Method:
        """The sound method with this chance, else the misconception; of a composed one each step by itself."""
        if not self.between:
            return self.sound if rng.random() < soundness else self.tempting
        first, then = rng.random() < soundness, rng.random() < soundness
        if first == then:
            return self.sound if first else self.tempting
        return self.between[0 if first else 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One instance of a topic."""

    topic: MicroTopic
    """Kind of fact."""
    name: str
    """Invented name it is about."""
    a: int
    """First number."""
    b: int
    """Second number."""

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
        """Whether the sound method gives a whole number."""
        return self.topic.sound.exact(self.a, self.b)


# A generator may write a question with zero in it: a division by it has to give some number.
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


def _method(form: str) -> Method:
    if "; " in form:
        return _composed(*map(_method, form.split("; ")))
    return Method(form=form, value=_VALUES[form], exact=_EXACT.get(form, lambda a, b: True))


def _composed(first: Method, then: Method) -> Method:
    return Method(
        form=f"{first.form}; {then.form}",
        value=lambda a, b: then.value(first.value(a, b), b),
        exact=lambda a, b: first.exact(a, b) and then.exact(first.value(a, b), b),
        steps=(first, then),
    )


def _between(sound: Method, tempting: Method) -> tuple[Method, ...]:
    pairs = list(zip(sound.steps, tempting.steps, strict=True))
    return (_composed(pairs[0][0], pairs[1][1]), _composed(pairs[0][1], pairs[1][0])) if pairs else ()


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1)


def _topic(row: Mapping[str, str]) -> MicroTopic:
    sound, tempting, where = _method(row["sound"]), _method(row["tempting"]), _WHERE[row["where"]]
    between = _between(sound, tempting)

    def usable(a: int, b: int) -> bool:
        results = [method.value(a, b) for method in (sound, tempting, *between)]
        small = all(0 < result < LIMIT for result in results)
        return small and len(set(results)) == len(results) and sound.exact(a, b) and where(a, b)

    operands = tuple((a, b) for a in _range(row["a"]) for b in _range(row["b"]) if usable(a, b))
    texts = {name: row[name] for name in ("name", "domain", "fact", "ask")}
    return MicroTopic(**texts, sound=sound, tempting=tempting, operands=operands, between=between)


def _read() -> dict[str, tuple[MicroTopic, ...]]:
    with (files(__package__) / "topics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        kind: tuple(_topic(row) for row in rows if row["kind"] == kind)
        for kind in ("basic", "more", "problem", "composed", "broad")
    }


_TOPICS = _read()
TOPICS = _TOPICS["basic"]
"""The topics of the basic world, in the order in which a smaller one takes them."""
ALL_TOPICS = (*TOPICS, *_TOPICS["more"])
"""Every topic there is. In some of the later ones the sum is the sound method, elsewhere it is the misconception."""
FAMILIES = _TOPICS["problem"]
"""Families of free-form problems: in no textbook, and asked without choices."""


COMPOSED = _TOPICS["composed"]
"""Topics whose method takes two steps, each the method of another topic and told in its words."""
BROAD = _TOPICS["broad"]
"""Topics with hundreds of operand pairs in every split, under laws that no other topic has."""


def choices_of(fact: Fact, *, count: int, rng: Random) -> list[int]:
    """All results and near numbers, ascending. Sorted, because an unsorted list breeds duplicates in a tiny writer."""
    chosen = {method.value(fact.a, fact.b) for method in fact.topic.methods}
    while len(chosen) < count:
        near = rng.choice((fact.sound, fact.tempting)) + rng.choice((-3, -2, -1, 1, 2, 3))
        if 0 < near < LIMIT:
            chosen.add(near)
    return sorted(chosen)
