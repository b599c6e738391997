"""Planted overlaps of known kind: without their recall, "no match" is no evidence."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from infuser_core.schemas import Document, Question
from infuser_core.seeding import seed_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A pair of texts with a known answer."""

    kind: str
    """What was planted, such as `verbatim_500`."""
    name: str
    """`control:<kind>:<n>`."""
    document_id: str
    """Pool chunk that the pair concerns."""
    document: str
    """Text on the document's side."""
    reference: str
    """Text on the reference's side."""
    expected: bool
    """Whether the audit must report a match."""


def plant(
    documents: Sequence[Document],
    references: Sequence[Question],
    *,
    chars: Sequence[int],
    per_kind: int,
    answer_words: int,
    seed: int,
) -> list[Control]:
    """Controls of every kind that the texts are long enough for; a pure function of its arguments."""
    draw = random.Random(seed_of(seed, "overlap-controls"))
    result: list[Control] = []
    for length in chars:
        result += _verbatim(documents, length, per_kind, draw)
    result += _edited(documents, per_kind, draw)
    result += _quoted(documents, references, per_kind, answer_words, draw)
    result += _unrelated(documents, per_kind, draw)
    return result


def _sample(items: Sequence[Document], number: int, draw: random.Random) -> list[Document]:
    return draw.sample(items, min(number, len(items)))


def _verbatim(documents: Sequence[Document], length: int, number: int, draw: random.Random) -> list[Control]:
    """A passage copied from a chunk, cut at word ends."""
    long_enough = [document for document in documents if len(document.text) >= length]
    kind = f"verbatim_{length}"
    controls = []
    for place, document in enumerate(_sample(long_enough, number, draw)):
        start = draw.randint(0, len(document.text) - length)
        passage = document.text[start : start + length]
        inner = passage.split(" ")[1:-1] if start else passage.split(" ")[:-1]
        controls.append(_control(kind, place, document, document.text, " ".join(inner), expected=True))
    return controls


def _edited(documents: Sequence[Document], number: int, draw: random.Random) -> list[Control]:
    """A whole chunk with one word in a hundred, at least one, replaced; the first half stays for short chunks."""
    controls = []
    for place, document in enumerate(_sample(documents, number, draw)):
        tokens = document.text.split()
        for _ in range(max(1, len(tokens) // 100)):
            # In the last tenth: an edit in the middle of a short chunk would touch most of its n-grams.
            position = draw.randrange(len(tokens) * 9 // 10, len(tokens)) if len(tokens) < 100 else None
            position = draw.randrange(len(tokens)) if position is None else position
            tokens[position] = f"edited{draw.randrange(10**6)}"
        controls.append(_control("edited", place, document, document.text, " ".join(tokens), expected=True))
    return controls


def _quoted(
    documents: Sequence[Document], references: Sequence[Question], number: int, size: int, draw: random.Random
) -> list[Control]:
    """A chunk that quotes a question word for word and goes on with a long answer of unrelated words."""
    if not documents:
        return []
    controls = []
    for place, question in enumerate(draw.sample(references, min(number, len(references)))):
        document = draw.choice(documents)
        text = f"{_noise(documents, size // 2, draw)} {question.text} {_noise(documents, size, draw)}"
        controls.append(_control("quoted_question", place, document, text, question.text, expected=True))
    return controls


def _unrelated(documents: Sequence[Document], number: int, draw: random.Random) -> list[Control]:
    """The pool's own words in random order: what chance alone shares."""
    sample = _sample(documents, number, draw)
    return [
        _control("unrelated", place, document, document.text, _noise(documents, 100, draw), expected=False)
        for place, document in enumerate(sample)
    ]


def _noise(documents: Sequence[Document], size: int, draw: random.Random) -> str:
    pool = [word for document in _sample(documents, 20, draw) for word in document.text.split()]
    return " ".join(draw.choices(pool, k=size)) if pool else ""


def _control(kind: str, place: int, document: Document, text: str, reference: str, *, expected: bool) -> Control:
    return Control(
        kind=kind,
        name=f"control:{kind}:{place}",
        document_id=document.document_id,
        document=text,
        reference=reference,
        expected=expected,
    )
