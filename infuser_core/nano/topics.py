"""The laws of the micro-world: per topic a fact, a sound method and a tempting misconception."""

from collections.abc import Callable
from dataclasses import dataclass
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
    exact: Callable[[int, int], bool] = lambda a, b: True
    """Whether it gives a whole number; always so for the operands of a topic, not for what a generator may write."""

    def working(self, a: int, b: int) -> str:
        """The written calculation, e.g. `7 * 6 = 42`."""
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
    """All pairs (a, b) for which both results are usable and differ."""


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


_SUM = Method(form="{a} + {b}", value=lambda a, b: a + b)
_DIFFERENCE = Method(form="{a} - {b}", value=lambda a, b: a - b)
_PRODUCT = Method(form="{a} * {b}", value=lambda a, b: a * b)


def _pairs(first: range, second: range, fits: Callable[[int, int], bool] = lambda a, b: True) -> list[tuple[int, int]]:
    return [(a, b) for a in first for b in second if fits(a, b)]


def _topic(
    name: str, domain: str, fact: str, ask: str, sound: Method, tempting: Method, pairs: list[tuple[int, int]]
) -> MicroTopic:
    usable = [
        (a, b)
        for a, b in pairs
        if sound.value(a, b) != tempting.value(a, b)
        and 0 < sound.value(a, b) < LIMIT
        and 0 < tempting.value(a, b) < LIMIT
    ]
    return MicroTopic(
        name=name, domain=domain, fact=fact, ask=ask, sound=sound, tempting=tempting, operands=tuple(usable)
    )


TOPICS = (
    _topic(
        "clock",
        "Mathematics",
        "The clock {name} shows {a} and runs {b} hours.",
        "What time?",
        Method(form="{a} + {b} - 12", value=lambda a, b: a + b - 12),
        Method(form="{a} + {b} - 10", value=lambda a, b: a + b - 10),
        _pairs(range(2, 13), range(2, 12), lambda a, b: a + b > 12),
    ),
    _topic(
        "voltage",
        "Physics",
        "The circuit {name} drives {a} amps through {b} ohms.",
        "What voltage?",
        _PRODUCT,
        _SUM,
        _pairs(range(2, 13), range(2, 13)),
    ),
    _topic(
        "density",
        "Chemistry",
        "The block {name} has {a} grams in {b} litres.",
        "What density?",
        Method(form="{a} / {b}", value=lambda a, b: a // max(b, 1), exact=lambda a, b: b > 0 and a % b == 0),
        _DIFFERENCE,
        _pairs(range(4, LIMIT), range(2, 10), lambda a, b: a % b == 0 and 2 <= a // b <= 12),
    ),
    _topic(
        "fence",
        "Mathematics",
        "The fence {name} rounds {a} by {b} metres.",
        "What length?",
        Method(form="2 * ({a} + {b})", value=lambda a, b: 2 * (a + b)),
        _SUM,
        _pairs(range(3, 14), range(3, 14)),
    ),
    _topic(
        "tank",
        "Engineering",
        "The tank {name} holds {a} and leaks {b} litres.",
        "What rest?",
        _DIFFERENCE,
        _SUM,
        _pairs(range(12, 26), range(3, 12)),
    ),
    _topic(
        "cart",
        "Physics",
        "The cart {name} rolls at {a} for {b} seconds.",
        "What distance?",
        _PRODUCT,
        _SUM,
        _pairs(range(2, 13), range(2, 13)),
    ),
    _topic(
        "mean",
        "Statistics",
        "The gauge {name} reads {a} and then {b}.",
        "What mean?",
        Method(form="({a} + {b}) / 2", value=lambda a, b: (a + b) // 2, exact=lambda a, b: (a + b) % 2 == 0),
        _SUM,
        _pairs(range(2, 20), range(2, 20), lambda a, b: a < b and (a + b) % 2 == 0),
    ),
    _topic(
        "growth",
        "Biology",
        "The plant {name} went from {a} to {b} leaves.",
        "What growth?",
        Method(form="{b} - {a}", value=lambda a, b: b - a),
        _SUM,
        _pairs(range(3, 13), range(13, 26)),
    ),
)
"""The topics of the basic world, in the order in which a smaller one takes them."""

ALL_TOPICS = (
    *TOPICS,
    _topic(
        "herd",
        "Biology",
        "The herd {name} had {a} and gained {b} cows.",
        "What count?",
        _SUM,
        _DIFFERENCE,
        _pairs(range(12, 40), range(3, 12)),
    ),
    _topic(
        "cost",
        "Economics",
        "The crew {name} paid {a} and then {b} coins.",
        "What cost?",
        _SUM,
        _PRODUCT,
        _pairs(range(2, 13), range(2, 13)),
    ),
    _topic(
        "sail",
        "Engineering",
        "The sail {name} spans {a} by {b} yards.",
        "What area?",
        Method(form="{a} * {b} / 2", value=lambda a, b: a * b // 2, exact=lambda a, b: a * b % 2 == 0),
        _PRODUCT,
        _pairs(range(3, 14), range(3, 14), lambda a, b: a * b % 2 == 0),
    ),
    _topic(
        "train",
        "Geography",
        "The train {name} left at {a} and rode {b} hours.",
        "What arrival?",
        Method(form="{a} + {b} - 24", value=lambda a, b: a + b - 24),
        Method(form="{a} + {b} - 20", value=lambda a, b: a + b - 20),
        _pairs(range(12, 24), range(6, 24), lambda a, b: a + b > 24),
    ),
    _topic(
        "posts",
        "Engineering",
        "The road {name} covers {a} with posts every {b} feet.",
        "What posts?",
        Method(form="{a} / {b} + 1", value=lambda a, b: a // max(b, 1) + 1, exact=lambda a, b: b > 0 and a % b == 0),
        Method(form="{a} / {b}", value=lambda a, b: a // max(b, 1)),
        _pairs(range(4, LIMIT), range(2, 10), lambda a, b: a % b == 0 and 2 <= a // b <= 12),
    ),
    _topic(
        "days",
        "History",
        "The fair {name} opened on {a} and closed on {b} May.",
        "What days?",
        Method(form="{b} - {a} + 1", value=lambda a, b: b - a + 1),
        Method(form="{b} - {a}", value=lambda a, b: b - a),
        _pairs(range(2, 20), range(4, 32), lambda a, b: b > a + 1),
    ),
    _topic(
        "crate",
        "Economics",
        "The crate {name} packs {a} jars in rows of {b}.",
        "What left?",
        Method(form="{a} % {b}", value=lambda a, b: a % max(b, 1), exact=lambda a, b: b > 0),
        Method(form="{a} // {b}", value=lambda a, b: a // max(b, 1)),
        _pairs(range(12, 60), range(4, 11)),
    ),
    _topic(
        "paint",
        "Art",
        "The wall {name} takes {a} twice and {b} once.",
        "What paint?",
        Method(form="2 * {a} + {b}", value=lambda a, b: 2 * a + b),
        _SUM,
        _pairs(range(3, 20), range(3, 20)),
    ),
)
"""Every topic there is. In some of the later ones the sum is the sound method, elsewhere it is the misconception."""

FAMILIES = (
    _topic(
        "lamps",
        "Mathematics",
        "The path {name} sets {a} lamps every {b} yards.",
        "How far?",
        Method(form="({a} - 1) * {b}", value=lambda a, b: (a - 1) * b),
        _PRODUCT,
        _pairs(range(3, 13), range(2, 13)),
    ),
    _topic(
        "cuts",
        "Mathematics",
        "The rope {name} takes {a} cuts into bits of {b} inches.",
        "How long?",
        Method(form="({a} + 1) * {b}", value=lambda a, b: (a + 1) * b),
        _PRODUCT,
        _pairs(range(2, 12), range(2, 13)),
    ),
    _topic(
        "pages",
        "Mathematics",
        "The tome {name} lost pages {a} to {b}.",
        "How many?",
        Method(form="{b} - {a} + 1", value=lambda a, b: b - a + 1),
        Method(form="{b} - {a}", value=lambda a, b: b - a),
        _pairs(range(2, 14), range(4, 22), lambda a, b: b > a + 1),
    ),
    _topic(
        "couples",
        "Mathematics",
        "The club {name} sends {a} boys and {b} girls.",
        "How many couples?",
        _PRODUCT,
        _SUM,
        _pairs(range(2, 13), range(2, 13)),
    ),
)
"""Families of free-form problems: in no textbook, and asked without choices."""


def choices_of(fact: Fact, *, count: int, rng: Random) -> list[int]:
    """Both results and near numbers, ascending. Sorted, because an unsorted list breeds duplicates in a tiny writer."""
    chosen = {fact.sound, fact.tempting}
    while len(chosen) < count:
        near = rng.choice((fact.sound, fact.tempting)) + rng.choice((-3, -2, -1, 1, 2, 3))
        if 0 < near < LIMIT:
            chosen.add(near)
    return sorted(chosen)
