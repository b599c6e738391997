"""What is planted has the answer that it says, and each mode finds its share of it."""

import pytest
from corpus_rows import writer
from hypothesis import given
from hypothesis import strategies as st

from corpus.audit.audit import MODES, measure_recall
from corpus.audit.ngrams import grams, words
from corpus.audit.planted_controls import CHARS, LEAST_WORDS, Plant, plant_controls
from corpus.audit.scan import PoolText
from infuser_core.config.corpus import OverlapSettings

prose = writer(3)
POOL = [prose(400) for _ in range(12)]
LONG = st.lists(st.text("ab\u65e5.", min_size=1, max_size=9), min_size=20, max_size=120).map(" ".join)
TEXTS = LONG | st.text("ab \u65e5.", max_size=80)


def kinds(rows: list[Plant]) -> dict[str, list[Plant]]:
    return {kind: [row for row in rows if row.kind == kind] for kind in dict.fromkeys(row.kind for row in rows)}


def shared(row: Plant, n: int) -> float:
    """Larger of the two containments, the plain way."""
    ours, theirs = set(grams(words(POOL[row.document]), n)), set(grams(words(row.record), n))
    return len(ours & theirs) / min(len(ours), len(theirs))


def test_every_kind_is_planted_and_shares_what_it_says():
    found = kinds(plant_controls(POOL, per_kind=4))
    assert [kind for kind, rows in found.items() if not rows[0].expected] == ["unrelated words"]
    assert {f"verbatim {n} characters" for n in CHARS} < set(found)
    for kind in ("verbatim 300 characters", "a whole document in an answer"):
        assert {shared(row, 13) for row in found[kind]} == {1.0}
    assert all(0.5 < shared(row, 13) < 1 for row in found["200 words, one word changed"])
    assert {shared(row, 13) for row in found["unrelated words"]} == {0.0}


def test_the_texts_alone_decide():
    assert plant_controls(POOL) == plant_controls(POOL) != plant_controls(POOL[1:])


@given(st.lists(TEXTS, max_size=4))
def test_any_texts_give_plants_of_their_own_or_none(documents):
    for row in plant_controls(documents, per_kind=2):
        assert len(words(row.record)) >= LEAST_WORDS and 0 <= row.document < len(documents)


@pytest.mark.parametrize("mode", MODES)
def test_recall_stands_beside_every_mode(mode):
    pool = [PoolText(document_id=str(number), text=text) for number, text in enumerate(POOL)]
    rows = measure_recall(pool, OverlapSettings(mode="exact").with_defaults(), per_kind=3)
    assert [row.planted for row in rows if row.kind == "verbatim 300 characters"] == [3]
    hard = ("one word in ten changed", *(f"verbatim {n} characters inside 2000" for n in (150, 300)))
    expected = [row.shares[mode] for row in rows if row.expected and row.kind not in hard]
    assert (min(expected) == 1.0) == (mode != "paper") and {r.shares[mode] for r in rows if not r.expected} == {0.0}
