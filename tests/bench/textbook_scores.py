"""Compares the text that a tool read from a PDF with the chapter's source.

| score | how it is computed |
|---|---|
| headings | titles without `Chapter` and numbers, by letters and digits; recall and precision of the tool's Markdown headings |
| formulas | a formula of 4 characters or more is right if its signs, scripts, fractions and roots occur in the text, as often as in the source; built-up ones have a script, fraction or root |
| listings | non-empty lines that are a line of the text, with and without indentation |
| tables | non-empty cells that are in the same column of the most similar row of a Markdown table |
| order | longest run of paragraphs in the order of the source, as a share of those found |
| characters | edit distance of prose paragraphs (40 letters or more, no formula or reference) to the closest passage, per character of the source; one that is not found is all wrong |
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_SIGNS = 4
GRAM = 12
"""Letters that a paragraph and the text share where the paragraph is looked for."""
SLACK = 60
"""Characters around a paragraph's place in which its end may be."""
MARK = re.compile(r"<!--.*?-->", re.DOTALL)
SAME = {"-": "−–—‐‑", "*": "∗⋆", "·": "⋅∙•", "···": "⋯", "...": "…", "|": "∣", "'": "′’‘‛ˊ", '"': "“”„", "~": "∼˜", "Δ": "∆",
        "Σ": "∑", "Π": "∏", "^": "ˆ", "<": "⟨〈", ">": "⟩〉", "\\": "∖⧵", "¯": "ˉ", "": "\u200b\u00ad\u2061\u2062\u2063"}  # fmt: skip
"""Signs that fonts and sources write differently, by the one that is compared."""
PLAIN = {ord(other): sign for sign, others in SAME.items() for other in others}
FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.DOTALL | re.MULTILINE)
ESCAPE = re.compile(r"\\([^\w\s])")
SUPER = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿⁱ]+")
SUB = re.compile("[₀-₉₊₋]+")
SWAPPED = re.compile(r"(\^\{[^{}]*\})(_\{[^{}]*\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A chapter as its source says it."""

    headings: Sequence[str]
    paragraphs: Sequence[str]
    """Prose without formulas and references, in reading order."""
    formulas: Sequence[str]
    """Formulas in the notation of `formula_key`."""
    lines: Sequence[str]
    """Lines of listings."""
    rows: Sequence[Sequence[str]]
    """Cells of each table row."""


def score(text: str, truth: Truth) -> Counter[str]:
    """Count what is right in a tool's Markdown or plain text of one chapter, and, as `NAME of`, of how many.

    `headings read` are the text's; `marks` are formulas that the tool itself marks as not read.
    """
    # A comment of a listing is no heading.
    headings = [key for line in FENCED.sub("", text).splitlines() if line.startswith("#") and (key := title_key(line))]
    wanted = [key for title in truth.headings if (key := title_key(title))]
    signs = formula_key(text)
    formulas = Counter(key for key in truth.formulas if len(key) >= LEAST_SIGNS)
    right = Counter({key: min(count, signs.count(key)) for key, count in formulas.items()})
    # Listings that a tool writes as prose have Markdown's escapes.
    lines = Counter(map(str.rstrip, text.splitlines())) | Counter(map(str.rstrip, ESCAPE.sub(r"\1", text).splitlines()))
    source_lines = [line.rstrip() for line in truth.lines if line.strip()]
    places, errors = compare_paragraphs(truth.paragraphs, text)
    return Counter(
        {
            "headings": count_common(wanted, headings),
            "headings of": len(wanted),
            "headings read": len(headings),
            "formulas": right.total(),
            "formulas of": formulas.total(),
            "built": sum(count for key, count in right.items() if is_built(key)),
            "built of": sum(count for key, count in formulas.items() if is_built(key)),
            "marks": len(MARK.findall(text)),
            "lines": count_common(source_lines, lines.elements()),
            "lines unindented": count_common(map(str.strip, source_lines), map(str.strip, lines.elements())),
            "lines of": len(source_lines),
            "cells": count_cells(truth.rows, table_rows(text)),
            "cells of": sum(bool(cell) for row in truth.rows for cell in row),
            "order": longest_increasing(places),
            "order of": len(places),
            "errors": errors,
            "characters": sum(len(plain(paragraph)) for paragraph in truth.paragraphs),
        }
    )


def count_common(first: Iterable[str], second: Iterable[str]) -> int:
    return (Counter(first) & Counter(second)).total()


def title_key(title: str) -> str:
    """Letters and digits of a heading, without `Chapter` or `Appendix` and its number."""
    title = re.sub(r"^[#\s*]*((chapter|appendix)\s+\w+\b)?[\s*.:]*(\d+(\.\d+)*)?", "", plain(title).casefold())
    return "".join(filter(str.isalnum, title))


def plain(text: str) -> str:
    """Text with one space between words, plain quotes and dashes, and without Markdown's signs."""
    text = unicodedata.normalize("NFKC", MARK.sub("", text)).translate(PLAIN)
    return re.sub(r"\s+", " ", re.sub(r"[*_`#|\\]", "", text)).strip()


def formula_key(text: str) -> str:
    r"""Signs without spaces; scripts as `_{i}^{2}`, fractions as `frac{a}{b}`, roots as `sqrt{a}`.

    The key of a whole text contains the keys of its formulas.
    """
    text = re.sub(r"<sup>(.*?)</sup>", r"^{\1}", re.sub(r"<sub>(.*?)</sub>", r"_{\1}", MARK.sub("", text)))
    text = SUB.sub(lambda found: f"_{{{found[0]}}}", SUPER.sub(lambda found: f"^{{{found[0]}}}", text))
    text = unicodedata.normalize("NFKC", text).translate(PLAIN)
    text = unicodedata.normalize("NFD", re.sub(r"_(?!\{)|[\s*`$\\]", "", text))
    return SWAPPED.sub(r"\2\1", re.sub(r"\^\{('*)\}|_\{\}", r"\1", text))


def is_built(key: str) -> bool:
    return any(sign in key for sign in ("^{", "_{", "frac{", "sqrt"))


def table_rows(text: str) -> list[list[str]]:
    """Cells of the rows of pipe tables."""
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in text.splitlines() if line.startswith("|")]
    return [[formula_key(cell) for cell in row] for row in rows]


def count_cells(wanted: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> int:
    """Count the non-empty cells that the most similar row of the text has in the same place."""
    return sum(
        max((sum(bool(a) and a == b for a, b in zip(cells, row, strict=False)) for row in rows), default=0)
        for cells in wanted
    )


def compare_paragraphs(paragraphs: Sequence[str], text: str) -> tuple[list[int], int]:
    """Find each paragraph in a text; returns the places of those found, in their order, and the wrong characters."""
    text = plain(text)
    offsets = [place for place, sign in enumerate(text) if sign.isalnum()]
    letters = "".join(text[place] for place in offsets).casefold()
    grams: dict[str, list[int]] = {}
    for place in range(len(letters) - GRAM + 1):
        grams.setdefault(letters[place : place + GRAM], []).append(place)
    places, errors = [], 0
    for paragraph in map(plain, paragraphs):
        own = "".join(filter(str.isalnum, paragraph)).casefold()
        votes = [
            place - start
            for start in range(0, len(own) - GRAM + 1, GRAM // 2)
            for place in grams.get(own[start : start + GRAM], ())
        ]
        if not votes:
            errors += len(paragraph)
            continue
        counts = Counter(vote // SLACK for vote in votes)
        # The first of the most voted places: a repeated paragraph is found at its first repetition.
        part = min(part for part, count in counts.items() if count == max(counts.values()))
        start = min(vote for vote in votes if vote // SLACK == part)
        places.append(start)
        end = offsets[min(start + len(own) + 2 * SLACK, len(offsets) - 1)] + SLACK
        window = text[offsets[max(start - SLACK, 0)] : end]
        errors += min(len(paragraph), closest_distance(paragraph, window))
    return places, errors


def closest_distance(pattern: str, text: str) -> int:
    """Least edit distance between a pattern and any passage of a text (Myers 1999, with integers as bit vectors)."""
    masks: dict[str, int] = {}
    for place, sign in enumerate(pattern):
        masks[sign] = masks.get(sign, 0) | 1 << place
    full, top = (1 << len(pattern)) - 1, 1 << (len(pattern) - 1)
    plus, minus, distance = full, 0, len(pattern)
    least = distance
    for sign in text:
        equal = masks.get(sign, 0)
        zero = (((equal & plus) + plus) ^ plus) | equal | minus
        right, left = minus | ~(zero | plus) & full, plus & zero
        distance += bool(right & top) - bool(left & top)
        least = min(least, distance)
        # A passage may begin anywhere: the row above the matrix is zero.
        right, left = right << 1 & full, left << 1 & full
        plus, minus = left | ~(zero | right) & full, right & zero
    return least


def longest_increasing(places: Sequence[int]) -> int:
    """Length of the longest subsequence that does not fall."""
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place + 1)
        ends[at : at + 1] = [place]
    return len(ends)
