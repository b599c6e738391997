"""The share of planted overlaps that each mode of the audit finds, searched for in the same way as real ones."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corpus.minhash import PaperMatcher
from corpus.ngrams import words
from corpus.overlap import Mode, OverlapConfig, config_of
from corpus.pairs import Matcher, short_pairs
from corpus.plants import Plant, plant
from corpus.shardscan import PoolText
from infuser_core.seeding import seed_of

DOCUMENTS = 400
"""Documents that controls are planted from and searched in: recall does not depend on how many there are."""
MODES: tuple[Mode, ...] = ("exact", "paper", "loose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """One kind of control."""

    kind: str
    """What was planted."""
    planted: int
    """How many."""
    expected: bool
    """Whether they should be found."""
    found: dict[Mode, float]
    """Share found, by mode."""


def measure(documents: Sequence[PoolText], config: OverlapConfig) -> list[Recall]:
    """The share of planted records that each mode finds, the audit's own with its settings."""
    draw = random.Random(seed_of(config.seed, "overlap-documents"))
    texts = [row.text for row in draw.sample(list(documents), min(DOCUMENTS, len(documents)))]
    plants = plant(
        texts,
        chars=config.control_chars,
        per_kind=config.controls_per_kind,
        answer_words=config.control_answer_words,
        seed=config.seed,
    )
    hits = {mode: _found(texts, plants, config if mode == config.mode else config_of(mode)) for mode in MODES}
    rows = []
    for kind in dict.fromkeys(row.kind for row in plants):
        places = [place for place, row in enumerate(plants) if row.kind == kind]
        found = {mode: sum(place in hits[mode] for place in places) / len(places) for mode in MODES}
        rows.append(Recall(kind=kind, planted=len(places), expected=plants[places[0]].expected, found=found))
    return rows


def _found(texts: Sequence[str], plants: Sequence[Plant], config: OverlapConfig) -> set[int]:
    """Numbers of the plants that are matched with the document that they come from; for others, with any."""
    matcher: Matcher | PaperMatcher = (
        PaperMatcher(texts, config.rule, min_chars=config.paper_min_chars)
        if config.mode == "paper"
        else Matcher(texts, config.rule)
    )
    pairs = [pair for pair in matcher.pairs([row.record for row in plants]) if pair.rule]
    if config.mode != "paper":
        short = [place for place, row in enumerate(plants) if len(words(row.record)) < config.n]
        found = short_pairs(texts, [plants[place].record for place in short], config.rule)
        pairs += [replace(pair, scanned=short[pair.scanned]) for pair in found]
    return {p.scanned for p in pairs if p.item == plants[p.scanned].document or not plants[p.scanned].expected}
