"""Disguises of a copied passage: changes that leave its meaning and hide it from a plain comparison of characters."""

import random
import re
from collections.abc import Callable

Disguise = Callable[[str, random.Random], str]
"""A passage, changed by draws."""
INVISIBLE = "\u00ad\u200b\u200d\u2060\ufeff"
"""Soft hyphen, zero-width space and joiner, word joiner, byte order mark."""
LOOK_ALIKES = dict(zip("aceopxyiABEHKMOPTX", "асеорхуіАВЕНКМОРТХ", strict=True))
"""Latin letters and the Cyrillic ones that look the same."""
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


def other_case(text: str, draw: random.Random) -> str:
    """Every third word in capitals, curly quotation marks, and no commas or full stops behind words."""
    tokens = [word.upper() if draw.random() < 1 / 3 else word for word in text.split(" ")]
    return re.sub(r"[,.;:!?](?=\s|$)", "", " ".join(tokens)).replace("'", "\u2019").replace('"', "\u201d")


def look_alikes(text: str, draw: random.Random) -> str:
    """One in five of the letters that have a Cyrillic twin is that twin."""
    return "".join(LOOK_ALIKES[c] if c in LOOK_ALIKES and draw.random() < 0.2 else c for c in text)


def invisible(text: str, draw: random.Random) -> str:
    """A character without width behind one letter of ten, and blanks that do not break."""
    marked = _LETTER.sub(lambda m: m[0] + (draw.choice(INVISIBLE) if draw.random() < 0.1 else ""), text)
    return re.sub(" ", lambda m: "\u00a0" if draw.random() < 0.1 else " ", marked)


def rehyphenated(text: str, draw: random.Random) -> str:
    """One in five of the long words is broken at a line's end."""

    def broken(match: re.Match[str]) -> str:
        place = draw.randint(2, len(match[0]) - 2)
        return match[0] if draw.random() >= 0.2 else f"{match[0][:place]}-\n{match[0][place:]}"

    return _LONG_WORD.sub(broken, text)


def latex_spacing(text: str, draw: random.Random) -> str:
    """Formulas with other blanks, spacing commands and braces about single scripts; empty where there is no formula."""

    def respaced(match: re.Match[str]) -> str:
        formula = _SINGLE_SCRIPT.sub(r"\1{\2}", match[0])
        return _OPERATOR.sub(lambda m: draw.choice([m[1], f" {m[1]} ", f"\\,{m[1]}\\;"]), formula)

    changed = _FORMULA.sub(respaced, text)
    return changed if changed != text else ""


def paraphrased(text: str, draw: random.Random) -> str:
    """Phrases replaced by others of the same meaning."""
    for old, new in _PHRASES:
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def one_in_ten(text: str, draw: random.Random) -> str:
    """One word in ten is another."""
    tokens = text.split()
    for place in draw.sample(range(len(tokens)), len(tokens) // 10):
        tokens[place] = f"edited{draw.randrange(10**6)}"
    return " ".join(tokens)


DISGUISES: dict[str, Disguise] = {
    "one word in ten changed": one_in_ten,
    "other case and punctuation": other_case,
    "look-alike letters": look_alikes,
    "invisible characters": invisible,
    "hyphenated anew": rehyphenated,
    "LaTeX spacing": latex_spacing,
    "paraphrased by rules": paraphrased,
}
"""Kinds of plants that are changed copies of a passage."""
