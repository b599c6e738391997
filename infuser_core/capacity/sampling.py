"""Seconds of a sampling phase: lognormal response lengths, prefill, decoding under continuous batching.

A phase takes as long as the GPU that ends last. A decoding step reads the weights once and the cache of every response
under way (memory), or multiplies every response's token with the weights (matrix work) where that takes longer, and
costs a constant beyond that.
"""

import heapq
import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import NormalDist

from infuser_core.memory.hardware import Efficiency, Gpu
from infuser_core.memory.shape import Shape

_NORMAL = NormalDist()
_CELLS = 512
"""Cells of the integral: more change the fourth digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Lengths of one kind of response."""

    mean: float
    """Mean before the cut, tokens."""
    deviation: float
    """Standard deviation over the mean."""
    limit: float
    """Longest possible, tokens."""

    def quantile(self, share: float) -> float:
        """Length that a share of the responses does not exceed, at least one token."""
        location, scale = _parameters(self.mean, self.deviation)
        value = self.mean if scale == 0 else math.exp(location + scale * _NORMAL.inv_cdf(share))
        return min(self.limit, max(1.0, value))

    def lengths(self, count: int, *, of: int = 0) -> list[float]:
        """`count` equally likely lengths, in a fixed order without pattern; the longest is that of `of` responses."""
        ranked = [self.quantile((place + 0.5) / count) for place in range(count)]
        ranked[-1] = self.quantile(1 - 0.5 / max(count, of))
        # Steps of the golden ratio visit every place once and never run up or down for long.
        return [ranked[place] for place in sorted(range(count), key=lambda place: (place * 0.6180339887498949) % 1)]

    def longest(self, of: int, *, rows: float = 1) -> float:
        """Expected largest of `of` sums of `rows` responses, tokens."""
        return _longest(self.mean, self.deviation, self.limit, of, rows)

    def mean_cut(self) -> float:
        """Mean after the cut, tokens."""
        return _longest(self.mean, self.deviation, self.limit, 1, 1)

    def share_over(self, tokens: float) -> float:
        """Share of all tokens that are in responses longer than `tokens`."""
        if tokens >= self.limit or self.deviation == 0:
            return float(min(self.mean, self.limit) > tokens)
        if tokens <= 0:
            return 1.0
        location, scale = _parameters(self.mean, self.deviation)
        low, high = ((math.log(end) - location) / scale for end in (tokens, self.limit))
        within = self.mean * (_NORMAL.cdf(high - scale) - _NORMAL.cdf(low - scale))
        return min(1.0, (within + self.limit * (1 - _NORMAL.cdf(high))) / self.mean_cut())

    def times(self, rows: int) -> "Spread":
        """Lengths of so many responses together (see `_longest`)."""
        return Spread(mean=self.mean * rows, deviation=self.deviation / math.sqrt(rows), limit=self.limit * rows)


def _parameters(mean: float, deviation: float) -> tuple[float, float]:
    variance = math.log1p(deviation * deviation)
    return math.log(mean) - variance / 2, math.sqrt(variance)


@cache
def _longest(mean: float, deviation: float, limit: float, of: int, rows: float) -> float:
    """A sum of lognormals is taken as the lognormal of the same mean and variance (Fenton and Wilkinson)."""
    total, relative, top = mean * rows, deviation / math.sqrt(rows), limit * rows
    if relative == 0:
        return min(total, top)
    location, scale = _parameters(total, relative)
    # E[min(max, top)] = integral of 1 - F^of, over a grid that is fine where the lengths are.
    edges = [min(top, math.exp(location + scale * (12 * cell / _CELLS - 6))) for cell in range(_CELLS + 1)]
    result = edges[0]
    for low, high in pairwise(edges):
        middle = (low + high) / 2
        if high > low:
            result += (high - low) * (1 - _NORMAL.cdf((math.log(middle) - location) / scale) ** of)
    return result


MOST_SEQUENCES = 1024
"""Responses that an engine decodes at once, however much memory there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The share of a phase's responses that one engine samples."""

    groups: float
    """Different prompts; each is computed and kept once."""
    rows: int
    """Responses."""
    prompt: float
    """Prompt length, tokens."""
    response: Spread
    """Response lengths."""
    of: int
    """Responses of the phase, over all engines: the longest of them decides."""
    share: float = 1.0
    """Share of the responses that the phase waits for: no more tokens of any are drawn than this share of them has."""

    def segments(self) -> list[tuple[float, float]]:
        """Tokens that are there of every response under way, and those that are drawn of it.

        Iterations that go on with what is unfinished each draw as many first parts, second parts and so on as a
        response of an iteration has.
        """
        lengths = self.response.lengths(self.rows, of=self.of)
        most = max(lengths) if self.share == 1 else self.response.quantile(self.share)
        parts = [
            (place * most, min(most, length - place * most))
            for length in lengths
            for place in range(math.ceil(length / most))
        ]
        # What was begun earlier is given out first, as the sampler does.
        return parts if self.share == 1 else sorted(parts, key=lambda part: -part[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One sampling engine: a GPU, or several that share every layer."""

    shape: Shape
    """The model."""
    gpu: Gpu
    """Each of its GPUs."""
    parallel: int
    """GPUs of the engine."""
    cache_tokens: float
    """Tokens that its cache holds."""
    efficiency: Efficiency
    """Constants."""

    def matmul(self, tokens: float, pairs: float) -> float:
        """Seconds of a forward pass."""
        rate = self.gpu.flops * self.efficiency.memory * self.parallel
        return self.shape.forward_flops(tokens, pairs) / rate

    def moved(self, size: float) -> float:
        """Seconds to read so many bytes that the engine's GPUs share."""
        return size / (self.gpu.bandwidth * self.efficiency.memory * self.parallel)

    def joined(self, rows: float) -> float:
        """Seconds of the sums over the engine's GPUs in one step: two per layer, of one hidden state per row."""
        if self.parallel == 1:
            return 0.0
        moved = 2 * self.shape.layers * rows * self.shape.hidden * 2.0 * 2 * (self.parallel - 1) / self.parallel
        return moved / (self.gpu.link * self.efficiency.link)

    def step(self, rows: int) -> float:
        """Seconds of one decoding step without reading the cache."""
        weights = self.moved(2.0 * self.shape.matrix_parameters)
        return max(weights, self.matmul(rows, 0)) + self.joined(rows) + self.efficiency.decode_step

    def concurrency(self, batch: Batch) -> int:
        """Responses that the cache holds at once, on average; at least one."""
        spread = batch.response.deviation
        # Of a response seen at a random moment, half of the length-weighted mean length is written.
        written = batch.response.mean_cut() * (1 + spread * spread) / 2
        shared = batch.prompt * batch.groups / max(1, batch.rows)
        return max(1, min(batch.rows, MOST_SEQUENCES, int(self.cache_tokens / (shared + written))))


def sample(engine: Engine, batch: Batch) -> dict[str, float]:
    """Seconds by term of decoding a batch from its first to its last token; rows wait for room in the cache.

    `longest` is what the longest response would take alone, which more GPUs do not shorten; `crowd` is what the others
    add to it.
    """
    if batch.rows == 0:
        return {"prefill": 0.0, "longest": 0.0, "crowd": 0.0}
    parts = batch.segments()
    total = _decode(engine, parts, batch.prompt, engine.concurrency(batch))
    alone = _decode(engine, [max(parts, key=lambda part: (part[1], part[0]))], batch.prompt, 1)
    prefill = engine.matmul(batch.groups * batch.prompt, batch.groups * engine.shape.pairs(batch.prompt))
    begun = [batch.prompt + there for there, _ in parts if there]
    prefill += engine.matmul(sum(begun), sum(map(engine.shape.pairs, begun)))
    return {"prefill": prefill, "longest": alone, "crowd": max(0.0, total - alone)}


def _decode(engine: Engine, parts: list[tuple[float, float]], prompt: float, width: int) -> float:
    """From one finished response to the next: between them the batch is the same and its cache grows evenly."""
    per_token = engine.moved(engine.shape.cache_bytes)
    waiting = list(reversed(parts))
    ends: list[tuple[float, float]] = []
    seconds, now, begun = 0.0, 0.0, 0.0
    while waiting or ends:
        while waiting and len(ends) < width:
            there, drawn = waiting.pop()
            heapq.heappush(ends, (now + drawn, now - there))
            begun += now - there
        active = len(ends)
        end, start = heapq.heappop(ends)
        steps = end - now
        # Tokens in the cache: every prompt, and for every response the steps since it began.
        held = active * (prompt + now + steps / 2) - begun
        seconds += steps * (engine.step(active) + held * per_token)
        now, begun = end, begun - start
    return seconds
