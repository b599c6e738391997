"""Make planted controls: artificial overlaps of known kinds, which measure the recall of a contamination audit.

A disguise changes a passage but not its meaning, so that a plain comparison of characters would not find it.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from corpus.audit.ngrams import words
from infuser_core.seeding import seed_of

CHARS = (150, 300, 500, 1000, 1500)
"""Lengths of the verbatim passages, characters."""
PER_KIND = 20
"""Number of planted pairs of each kind."""
ANSWER_WORDS = 300
"""Length of the unrelated text after a quotation, words."""
LEAST_WORDS = 5
"""Least length of a control, words; an audit compares shorter texts only with whole texts."""
SURROUNDED = 2000
"""Length of a passage together with the unrelated text around it, characters."""
DISGUISED = 500
"""Length of the passages that are disguised, characters."""
_VOCABULARY_DOCUMENTS = 50

Disguise = Callable[[str, random.Random], str]
"""Changes a passage at random without changing its meaning."""
INVISIBLE = "\u00ad\u200b\u200d\u2060\ufeff"
"""Soft hyphen, zero-width space and joiner, word joiner, byte order mark."""
LOOK_ALIKES = dict(zip("aceopxyiABEHKMOPTX", "асеорхуіАВЕНКМОРТХ", strict=True))
"""Latin letters to the Cyrillic letters that look the same."""
_LETTER = re.compile(r"[^\W\d_]")
_LONG_WORD = re.compile(r"[a-z]{6,}")
_FORMULA = re.compile(r"\$[^$\n]+\$|\\\([^\n]+?\\\)|:math:`[^`]+`")
_OPERATOR = re.compile(r"\s*([=<>+*,()\[\]])\s*")
_SINGLE_SCRIPT = re.compile(r"([\^_])([A-Za-z0-9])")
_PHRASES = (
    ("for example", "for instance"),
    ("such as", "like"),
    ("in order to", "to"),
    ("is called", "is known as"),
    ("we have", "one has"),
    ("because", "since"),
    ("therefore", "thus"),
    ("however", "but"),
    ("does not", "doesn't"),
    ("is not", "isn't"),
    ("cannot", "can not"),
    ("must", "has to"),
    ("show", "prove"),
    ("find", "determine"),
    ("also", "too"),
    ("large", "big"),
    ("use", "employ"),
    ("each", "every"),
    ("which", "that"),
    ("may", "might"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A planted control: a document, and a record that the audit should or should not match with it."""

    kind: str
    """Kind of planted passage, such as `verbatim 500 characters`."""
    document: int
    """Number of the document among the documents given."""
    record: str
    """A part of the document, perhaps changed or inside other text; unrelated words if no match is expected."""
    expected: bool
    """Whether the pair should match."""


def plant_controls(documents: Sequence[str], *, per_kind: int = PER_KIND) -> list[Plant]:
    """Make controls of every kind for which documents are long enough; the same documents give the same controls."""
    draw = random.Random(seed_of(0, "overlap-plants"))
    sample = draw.sample(documents, min(_VOCABULARY_DOCUMENTS, len(documents)))
    vocabulary = [word for text in sample for word in text.split()]
    plants: list[Plant] = []

    def add(kind: str, least: int, make: Callable[[str], str], *, expected: bool = True) -> None:
        able = [n for n, text in enumerate(documents) if len(text) >= least and len(text.split()) >= 20]
        for number in draw.sample(able, min(per_kind, len(able))):
            row = Plant(kind=kind, document=number, record=make(documents[number]), expected=expected)
            if len(words(row.record)) >= LEAST_WORDS:
                plants.append(row)

    def quoted(text: str) -> str:
        return f"{_noise(vocabulary, ANSWER_WORDS // 3, draw)} {text} {_noise(vocabulary, ANSWER_WORDS, draw)}"

    def surrounded(text: str, chars: int) -> str:
        half = max(SURROUNDED - chars, 0) // 2
        before, after = (_noise(vocabulary, half // 2, draw) for _ in range(2))
        return f"{before[:half]} {_passage(text, chars, draw)} {after[:half]}"

    for length in CHARS:
        add(f"verbatim {length} characters", length, partial(_passage, chars=length, draw=draw))
    add("200 words, one word changed", 1000, lambda text: _edited(_words(text, 200, draw), 0.0, draw))
    add("half a document", 600, lambda text: _passage(text, len(text) // 2, draw))
    add("1 % of the words changed", 1000, lambda text: _edited(text, 0.01, draw))
    add("60 words quoted in an answer", 400, lambda text: quoted(_words(text, 60, draw)))
    add("a whole document in an answer", 150, quoted)
    add("unrelated words", 1, lambda text: _noise(vocabulary, ANSWER_WORDS, draw), expected=False)
    for length in CHARS:
        add(f"verbatim {length} characters inside {SURROUNDED}", length, partial(surrounded, chars=length))
    for kind, disguise in DISGUISES.items():
        add(kind, DISGUISED, lambda text, disguise=disguise: disguise(_passage(text, DISGUISED, draw), draw))  # type: ignore[misc]
    return plants


def _passage(text: str, chars: int, draw: random.Random) -> str:
    """A random passage of the text, cut at blanks, or anywhere if the text has too few."""
    start = draw.randint(0, max(len(text) - chars, 0))
    piece = text[start : start + chars]
    parts = piece.split(" ")
    inner = parts[1 if start else 0 : -1 if start + chars < len(text) else None]
    return " ".join(inner) if len(inner) >= LEAST_WORDS else piece


def _words(text: str, size: int, draw: random.Random) -> str:
    """`size` neighbouring words of the text, at a random place; empty if it has fewer."""
    tokens = [token for token in text.split() if words(token)]
    start = draw.randint(0, max(len(tokens) - size, 0))
    return " ".join(tokens[start : start + size]) if len(tokens) >= size else ""


def _edited(text: str, share: float, draw: random.Random) -> str:
    tokens = text.split()
    if not tokens:
        return ""
    for place in draw.sample(range(len(tokens)), max(1, int(len(tokens) * share))):
        tokens[place] = f"edited{draw.randrange(10**6)}"
    return " ".join(tokens)


def _noise(vocabulary: Sequence[str], size: int, draw: random.Random) -> str:
    return " ".join(draw.choices(vocabulary, k=size)) if vocabulary else ""


def other_case(text: str, draw: random.Random) -> str:
    """Put a random third of the words in capitals, curl quotation marks and remove the punctuation after words."""
    tokens = [word.upper() if draw.random() < 1 / 3 else word for word in text.split(" ")]
    return re.sub(r"[,.;:!?](?=\s|$)", "", " ".join(tokens)).replace("'", "\u2019").replace('"', "\u201d")


def look_alikes(text: str, draw: random.Random) -> str:
    """Replace a random fifth of the letters that have a Cyrillic look-alike."""
    return "".join(LOOK_ALIKES[c] if c in LOOK_ALIKES and draw.random() < 0.2 else c for c in text)


def invisible(text: str, draw: random.Random) -> str:
    """Insert an invisible character after one letter in ten, and make one blank in ten non-breaking."""
    marked = _LETTER.sub(lambda m: m[0] + (draw.choice(INVISIBLE) if draw.random() < 0.1 else ""), text)
    return re.sub(" ", lambda m: "\u00a0" if draw.random() < 0.1 else " ", marked)


def rehyphenated(text: str, draw: random.Random) -> str:
    """Hyphenate a random fifth of the long words, with a line break after the hyphen."""

    def hyphenate(match: re.Match[str]) -> str:
        place = draw.randint(2, len(match[0]) - 2)
        return match[0] if draw.random() >= 0.2 else f"{match[0][:place]}-\n{match[0][place:]}"

    return _LONG_WORD.sub(hyphenate, text)


def latex_spacing(text: str, draw: random.Random) -> str:
    """Change blanks, spacing commands and braces of single scripts in LaTeX formulas; empty if nothing changes."""

    def respace(match: re.Match[str]) -> str:
        formula = _SINGLE_SCRIPT.sub(r"\1{\2}", match[0])
        return _OPERATOR.sub(lambda m: draw.choice([m[1], f" {m[1]} ", f"\\,{m[1]}\\;"]), formula)

    changed = _FORMULA.sub(respace, text)
    return changed if changed != text else ""


def paraphrased(text: str, draw: random.Random) -> str:
    """Replace phrases by synonymous ones, from a fixed list."""
    for old, new in _PHRASES:
        text = re.sub(rf"\b{old}\b", new, text)
    return text


DISGUISES: dict[str, Disguise] = {
    "one word in ten changed": lambda text, draw: _edited(text, 0.1, draw),
    "other case and punctuation": other_case,
    "look-alike letters": look_alikes,
    "invisible characters": invisible,
    "hyphenated anew": rehyphenated,
    "LaTeX spacing": latex_spacing,
    "paraphrased by rules": paraphrased,
}
"""Kinds of controls that are disguised copies of a passage, with the function that disguises."""
