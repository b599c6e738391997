"""The fast path gives the n-grams of the plain one: same words, same hashes, same signatures as datasketch."""

import random

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given
from hypothesis import strategies as st

from corpus.audit import index as gramindex
from corpus.audit import shingles
from corpus.audit.index import Matcher
from corpus.audit.lsh import minhash
from corpus.audit.ngrams import compare, grams, longest_run, places, words
from corpus.audit.shingles import signatures, sizes
from infuser_core.config.corpus import OverlapSettings

ALPHABET = "abAB .,-(^\\\\!\u00ad\u2010\u00b2\u0430\n\t\x1c\x85\u00a0\u2003\u0301\u00e9\ufb01\u0130\u65e5\u672c\u304b\u3099\u1fef\ud800\U00020000\xff"
TEXTS = st.lists(st.text(ALPHABET, max_size=40), max_size=6)
WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def hashes(text: str, n: int) -> list[int]:
    return sorted({shingles.hash64(gram.encode("utf-8", "surrogatepass")) for gram in grams(words(text), n)})


@given(TEXTS, st.integers(1, 4))
def test_keys_are_the_hashes_of_the_plain_n_grams(texts, n):
    found = [keys.tolist() for keys in shingles.gram_keys(shingles.batch_of(texts), n)]
    assert found == [hashes(text, n) for text in texts]
    assert sizes(texts, n).tolist() == [len(hashes(text, n)) for text in texts]


def test_long_texts_and_long_words_hash_like_short_ones():
    draw = random.Random(1)
    long = " ".join("".join(draw.choices("abcdef", k=draw.randint(1, 30))) for _ in range(30_000))
    for text in (long, f"x {'y' * 200_000} z {'y' * 200_000} w", "e\u0301" * 3000):
        (found,) = shingles.gram_keys(shingles.batch_of([text]), 3)
        assert found.tolist() == hashes(text, 3)


@given(TEXTS, st.integers(1, 4))
def test_signatures_are_datasketchs_bit_for_bit(texts, n):
    ours = signatures(texts, n)
    for text, values in zip(texts, ours, strict=True):
        theirs = MinHash(num_perm=128, seed=1, scheme="affine32", hashfunc=shingles.hash32)
        theirs.update_batch([gram.encode("utf-8", "surrogatepass") for gram in grams(words(text), n)])
        assert np.array_equal(values, theirs.hashvalues) and values.dtype == theirs.hashvalues.dtype
        assert minhash(values).jaccard(theirs) == 1.0


@given(WORDS, WORDS, st.integers(1, 3))
def test_the_longest_run_is_the_longest(first, second, least):
    span = longest_run(first, second, least)
    common = [
        (size, i, j)
        for size in range(least, 13)
        for i in range(len(first) - size + 1)
        for j in range(len(second) - size + 1)
        if first[i : i + size] == second[j : j + size]
    ]
    assert span.length == max((size for size, _, _ in common), default=0)
    if span.length:
        assert (span.length, span.first, span.second) in common


@given(st.lists(st.text("ab ", max_size=30), max_size=5), st.lists(st.text("ab ", max_size=30), max_size=5))
def test_the_index_finds_every_pair_that_shares_an_n_gram(indexed, scanned):
    rule = OverlapSettings(n=3, containment=0.5, run_words=5, min_words=1)
    found = {(p.scanned, p.item): p.shared for p in Matcher(indexed, rule).pairs(scanned, every=True)}
    for i, text in enumerate(scanned):
        for j, other in enumerate(indexed):
            shared = compare(words(text), words(other), 3)
            # Short texts inside longer ones are looked for from the other side: see short_pairs.
            if shared.num_common and len(words(text)) >= min(3, len(words(other))):
                assert found.pop((i, j)) == shared
    assert not found


def test_a_saved_index_answers_like_the_one_in_memory(tmp_path):
    draw = random.Random(2)
    texts = [" ".join(draw.choices("abcdefgh", k=50)) for _ in range(40)] + ["a b", ""]
    index = gramindex.build_index(texts, 4)
    index.save(tmp_path)
    batch = shingles.batch_of(texts[::-1])
    both = [list(one.scan(batch)) for one in (index, gramindex.load_index(tmp_path, 4))]
    shown = [[(h.text, h.num_grams, h.items.tolist(), h.counts.tolist()) for h in hits] for hits in both]
    assert shown[0] == shown[1] and shown[0]


@pytest.mark.parametrize("text", ["Hello,  (World)! -- x", "\u65e5\u672c\u8a9e ok.", "\n e\u0301 b \ufb01 "])
def test_places_point_at_the_words(text):
    spans = places(text)
    assert [words(text[start:end]) for start, end in spans] == [[word] for word in words(text)]
