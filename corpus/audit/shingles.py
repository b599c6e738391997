"""Hash all word n-grams of many texts at once, without one string per n-gram, and compute MinHash signatures.

Normalised words are separated by one blank, so an n-gram is a slice of a buffer, and its hash follows from prefix sums.
The hash of bytes b_0 ... b_k is the sum of b_j P^(j+1) modulo 2^64, mixed once; `hash64` computes it directly.

Signatures are bit-identical to datasketch's scheme `affine32`: a 32-bit hash h (`hash32` of an n-gram) is mixed by
MurmurHash3's finaliser, then permuted as a h + b modulo 2^32; the signature is the minimum over the n-grams for each of
the permutations. Signatures of another scheme, seed, hash or normaliser are not comparable; `NAME` names all four.
"""

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from corpus.audit.ngrams import GLUED, LONG_WORD, NORMALISER, PARTING, normalise, words

BASE = 0xD1342543DE82EF95
MIXER = 0x9FB21C651E98DF25
MASK = (1 << 64) - 1
BLANK, MARK = 0x20, 0xFF
# The mark ends a text. This byte does not occur in UTF-8, so an n-gram that spans two texts never equals another one.
_JOINT = b" \xff "
_SPACES = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
_PARTING = PARTING.encode() + _SPACES
_FOLD = bytes.maketrans(
    string.ascii_uppercase.encode() + _PARTING, string.ascii_lowercase.encode() + b" " * len(_PARTING)
)
_DROPPED = GLUED.encode()
BATCH_BYTES = 1 << 16
"""Text hashed at once, bytes: intermediate results stay in the processor's cache."""
_WINDOW = 1 << 17
"""Size of a window over a longer text, bytes; far more than n words of any length."""
PERMUTATIONS = 128
SEED = 1
# datasketch 2 changed its default, so the name is fixed here.
SCHEME = "affine32"
NAME = f"{SCHEME}-{PERMUTATIONS}-seed{SEED}-polynomial64/{NORMALISER}"
"""Name of the signature scheme; contains everything on which signatures depend."""
EMPTY = np.uint32(0xFFFFFFFF)
"""Every value in the signature of a text without words."""
_BLOCK = 512
"""Number of n-grams permuted at once: their values under all permutations fit in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBatch:
    """Several texts, normalised, in one byte buffer."""

    buffer: np.ndarray
    """uint8: one blank, then words, each followed by one blank; every text ends with the mark as a separate word."""
    blanks: np.ndarray
    """int64: positions of the blanks; word i is between blank i and blank i+1."""
    marks: np.ndarray
    """int64: word number of each text's mark."""

    @property
    def num_words(self) -> int:
        """Number of words, including the marks."""
        return len(self.blanks) - 1

    def owners(self, places: np.ndarray) -> np.ndarray:
        """Number of the text to which each word belongs; `places` are word numbers."""
        return np.searchsorted(self.marks, places, side="left")

    def lengths(self) -> np.ndarray:
        """Number of words of each text."""
        return np.diff(self.marks, prepend=-1) - 1


def batch_of(texts: Sequence[str]) -> TextBatch:
    """Normalise texts into one buffer, with exactly the words that `ngrams.words` gives."""
    # `_pack` folds the case of ASCII letters.
    raw = [normalise(text).encode() if text.isascii() else _encode(normalise(text).casefold()) for text in texts]
    batch = _pack(raw)
    if len(batch.blanks) > 1 and int(np.max(np.diff(batch.blanks))) > LONG_WORD:
        return _pack([_encode(" ".join(words(text))) for text in texts])
    return batch


def _encode(text: str) -> bytes:
    # Lone surrogates occur in some data sets and must not stop an audit.
    return text.encode("utf-8", "surrogatepass")


def _pack(parts: Sequence[bytes]) -> TextBatch:
    joined = b" " + _JOINT.join(parts) + (_JOINT if parts else b" ")
    raw = np.frombuffer(joined.translate(_FOLD, _DROPPED), dtype=np.uint8)
    is_blank = raw == BLANK
    keep = np.ones(len(raw), dtype=bool)
    np.logical_not(is_blank[1:] & is_blank[:-1], out=keep[1:])
    buffer = raw[keep]
    blanks = np.flatnonzero(buffer == BLANK)
    marks = np.flatnonzero(buffer[blanks[:-1] + 1] == MARK)
    return TextBatch(buffer=buffer, blanks=blanks, marks=marks)


def keys(batch: TextBatch, n: int) -> np.ndarray:
    """Hash the n words that begin at each word: uint64. Across the end of a text, the hash equals no n-gram's."""
    count = max(batch.num_words - n + 1, 0)
    if not count:
        return np.empty(0, dtype=np.uint64)
    firsts, lasts = batch.blanks[:count] + 1, batch.blanks[n : n + count]
    if len(batch.buffer) <= _WINDOW:
        return _hashes(batch.buffer, firsts, lasts)
    result = np.empty(count, dtype=np.uint64)
    begin = 0
    while begin < count:
        offset = int(firsts[begin])
        end = max(int(np.searchsorted(lasts, offset + _WINDOW, side="right")), begin + 1)
        piece = batch.buffer[offset : int(lasts[end - 1])]
        result[begin:end] = _hashes(piece, firsts[begin:end] - offset, lasts[begin:end] - offset)
        begin = end
    return result


def whole_keys(batch: TextBatch, texts: np.ndarray) -> np.ndarray:
    """Hash each of `texts` (indices of texts with fewer than n words) as a single n-gram: uint64."""
    ends = batch.blanks[batch.marks[texts]]
    starts = np.concatenate([[0], batch.marks + 1])[texts]
    firsts = batch.blanks[starts] + 1
    return np.array(
        [_hashes(batch.buffer[a:b], np.array([0]), np.array([b - a]))[0] for a, b in zip(firsts, ends, strict=True)],
        dtype=np.uint64,
    )


def gram_keys(batch: TextBatch, n: int) -> Iterator[np.ndarray]:
    """Yield the distinct n-gram hashes of each text; a text of fewer than n words has one hash, of the whole text."""
    hashes = keys(batch, n)
    lengths = batch.lengths()
    small = np.flatnonzero((lengths > 0) & (lengths < n))
    whole = dict(zip(small.tolist(), whole_keys(batch, small), strict=True)) if len(small) else {}
    begin = 0
    for number, (mark, length) in enumerate(zip(batch.marks.tolist(), lengths.tolist(), strict=True)):
        if number in whole:
            yield np.array([whole[number]], dtype=np.uint64)
        else:
            yield np.unique(hashes[begin : begin + max(length - n + 1, 0)])
        begin = mark + 1


def hash64(data: bytes) -> int:
    """Reference implementation of the n-gram hash, byte by byte."""
    total, power = 0, 1
    for byte in data:
        power = power * BASE & MASK
        total = total + byte * power & MASK
    total ^= total >> 32
    return total * MIXER & MASK


def hash32(data: bytes) -> int:
    """Upper half of the n-gram hash; as `hashfunc` of a datasketch MinHash it gives the same signatures."""
    return hash64(data) >> 32


def batches(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Split the texts into ranges (begin, end) of about BATCH_BYTES characters each."""
    begin, size = 0, 0
    for number, text in enumerate(texts):
        size += len(text)
        if size >= BATCH_BYTES:
            yield begin, number + 1
            begin, size = number + 1, 0
    if begin < len(texts):
        yield begin, len(texts)


@cache
def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers P^(j+1) and P^-j modulo 2^64 of the hash's base, for all j < `size`."""
    inverse = pow(BASE, -1, 1 << 64)
    with np.errstate(over="ignore"):
        up = np.cumprod(np.full(size, BASE, dtype=np.uint64))
        down = np.cumprod(np.full(size, inverse, dtype=np.uint64)) * np.uint64(BASE)
    return up, down


def _hashes(buffer: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    size = 1 << max(len(buffer) + 1, 1 << 12).bit_length()
    up, down = _powers(size)
    sums = np.empty(len(buffer) + 1, dtype=np.uint64)
    sums[0] = 0
    terms = buffer.astype(np.uint64)
    terms *= up[: len(buffer)]
    np.cumsum(terms, out=sums[1:])
    hashes = sums[lasts]
    hashes -= sums[firsts]
    hashes *= down[firsts]
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(MIXER)
    return hashes


@cache
def permutations() -> tuple[np.ndarray, np.ndarray]:
    """Factors a and offsets b of the MinHash permutations, as columns."""
    # Imported here because it loads scipy and redis, and recipes only need the scheme's name.
    from datasketch import MinHash

    a, b = MinHash(num_perm=PERMUTATIONS, seed=SEED, scheme=SCHEME).permutations
    return a[:, None], b[:, None]


def signatures(texts: Sequence[str], n: int) -> np.ndarray:
    """MinHash signature of each text's word n-grams: uint32 array of shape (texts, PERMUTATIONS)."""
    result = np.full((len(texts), PERMUTATIONS), EMPTY, dtype=np.uint32)
    for begin, end in batches(texts):
        _sign_batch(batch_of(texts[begin:end]), n, out=result[begin:end])
    return result


def _sign_batch(batch: TextBatch, n: int, *, out: np.ndarray) -> None:
    hashes = _mix(keys(batch, n))
    lengths = batch.lengths()
    scratch = np.empty(PERMUTATIONS * _BLOCK, dtype=np.uint32)
    begin = 0
    for number, (mark, length) in enumerate(zip(batch.marks.tolist(), lengths.tolist(), strict=True)):
        if length >= n:
            _minimum(hashes[begin : begin + length - n + 1], scratch, out[number])
        elif length:
            _minimum(_mix(whole_keys(batch, np.array([number]))), scratch, out[number])
        begin = mark + 1


def _minimum(hashes: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
    a, b = permutations()
    for begin in range(0, len(hashes), _BLOCK):
        block = hashes[begin : begin + _BLOCK]
        permuted = scratch[: PERMUTATIONS * len(block)].reshape(PERMUTATIONS, len(block))
        np.multiply(a, block, out=permuted)
        permuted += b
        np.minimum(out, permuted.min(axis=1), out=out)


def _mix(keys: np.ndarray) -> np.ndarray:
    """Apply MurmurHash3's 32-bit finaliser to the upper halves of the keys."""
    h = (keys >> np.uint64(32)).astype(np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h


def estimate(first: np.ndarray, second: np.ndarray) -> float:
    """Estimate the Jaccard similarity of two non-empty texts from their signatures."""
    return float(np.count_nonzero(first == second)) / PERMUTATIONS


def sizes(texts: Sequence[str], n: int) -> np.ndarray:
    """Number of distinct n-grams of each text."""
    counts = [len(keys) for begin, end in batches(texts) for keys in gram_keys(batch_of(texts[begin:end]), n)]
    return np.array(counts, dtype=np.int64)
