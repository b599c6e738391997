"""Seconds of training work: micro-batches of matrix products, collectives between ranks, and AdamW.

A group's prompt counts once, micro-batches are filled to a token budget, ranks are balanced by tokens, and a scored
question stays on one rank.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infuser_core.capacity.sampling import Spread
from infuser_core.memory.hardware import Cluster, Efficiency
from infuser_core.memory.parts import Layout
from infuser_core.memory.shape import Shape
from infuser_core.memory.sizes import between_products, kept_tokens

HOP_INSIDE, HOP_OUTSIDE = 3e-6, 12e-6
"""Seconds for a message to the next GPU of a ring, in a node and between nodes."""
HASHED, CACHED = 0.9e9, 2e9
"""Bytes/s that a core hashes, and that a process copies to or from files in memory (here .6 to 7.6, median 3)."""
FILE, HASHERS = 5e9, 16
"""Bytes of a checkpoint's files, and files hashed at a time."""
HOST_SWEEP = 25e9
"""Bytes/s at which one rank's share of a host updates AdamW's state there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Groups of responses that a pass goes over."""

    groups: float
    """Prompts."""
    rows: int
    """Responses of each."""
    prompt: float
    """Prompt length, tokens."""
    response: Spread
    """Response lengths."""
    steps: int
    """Optimizer steps they are divided into, or 1."""

    @property
    def tokens(self) -> float:
        """Tokens with every prompt counted once."""
        return self.groups * (self.prompt + self.rows * self.response.mean_cut())


Terms = dict[str, float]
"""Seconds by term (see `phases.TERMS`)."""


def added(*parts: Mapping[str, float]) -> Terms:
    """The sum of several parts, term by term."""
    return {name: sum(part.get(name, 0.0) for part in parts) for name in {key: 0 for part in parts for key in part}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainers:
    """The GPUs that train together."""

    shape: Shape
    """The model."""
    cluster: Cluster
    """Those GPUs."""
    layout: Layout
    """Division of state and work."""
    efficiency: Efficiency
    """Constants."""

    @property
    def ranks(self) -> int:
        """Data-parallel ranks."""
        return self.cluster.ranks

    @property
    def passes(self) -> int:
        """Forward passes of forward and backward, which is two, or one beside adapters; recomputing is one more."""
        return (2 if self.shape.adapters else 3) + int(self.layout.gradient_checkpointing is True)

    def matmul(self, tokens: float, sequences: float) -> float:
        """Seconds of one forward pass over equally long sequences on one rank."""
        if sequences <= 0:
            return 0.0
        pairs = sequences * self.shape.pairs(tokens / sequences)
        return self.products(self.shape.forward_flops(tokens, pairs))

    def products(self, flops: float) -> float:
        """Seconds of so many FLOPs of matrix products on one rank."""
        return flops / (self.cluster.gpu.flops * self.efficiency.matmul)

    def collective(self, size: float, *, messages: int) -> float:
        """Seconds in which every rank gets, or gives, its part of `size` bytes in so many messages."""
        gpu, inside, nodes = self.cluster.gpu, self.cluster.per_node, self.cluster.nodes
        share = self.efficiency.link
        seconds = size * (inside - 1) / inside / (gpu.link * share)
        if nodes > 1:
            seconds = max(seconds, size * (nodes - 1) / nodes / (gpu.network * inside * share))
        return seconds + messages * (HOP_INSIDE * (inside - 1) + HOP_OUTSIDE * (nodes - 1))

    def sweep(self, size: float) -> float:
        """Seconds to read or write so many bytes of one GPU's memory."""
        return size / (self.cluster.gpu.bandwidth * self.efficiency.memory)

    def copied(self, size: float) -> float:
        """Seconds to move so many bytes between one GPU and its host."""
        return size / (self.cluster.gpu.host * self.efficiency.link)

    @property
    def beside_disk(self) -> bool:
        """Whether ranks of one machine write to its page cache, and the commit alone waits for the disk."""
        return self.layout.zero_stage > 0 and self.cluster.nodes == 1

    def cached(self, size: float) -> float:
        """Seconds in which all ranks copy their parts of so many bytes to or from the page cache."""
        return size / self.ranks / CACHED

    def laid(self, size: float) -> float:
        """Seconds in which the ranks of each node lay all of so many bytes in its memory, gathered where nodes are
        several."""
        gathered = self.collective(size, messages=self.shape.layers) if self.cluster.nodes > 1 else 0.0
        return gathered + size / min(self.ranks, self.cluster.per_node) / CACHED

    def micro_batches(
        self, tokens: float, fair: float, sequences: float, *, passes: int, count: float, exchange: float
    ) -> Terms:
        """`count` micro-batches whose largest has `tokens` where a fair one would have `fair`.

        The `exchange` seconds of collectives run beside the layers' work; only what is longer shows.
        """
        work = passes * self.matmul(fair, sequences)
        uneven = max(0.0, passes * self.matmul(tokens, sequences) - work)
        launches = passes * self.shape.layers * self.efficiency.layer_pass
        shown = max(0.0, exchange - work - uneven - launches)
        terms = {"matmul": work, "uneven": uneven, "launches": launches, "collectives": shown}
        return {name: count * seconds for name, seconds in terms.items()}

    def exchange(self, passes: int) -> float:
        """Seconds of the collectives of one micro-batch: weights before use, gradients after."""
        seconds = self.gathers(1 if passes == 1 else 2)
        if self.ranks > 1 and passes > 1 and self.layout.zero_stage >= 2:
            seconds += self.collective(4.0 * self.shape.parameters, messages=self.shape.layers)
        return seconds

    def probe_exchange(self) -> float:
        """Seconds of the collectives of a scoring micro-batch: weights, and once v and the reference; no reduction."""
        if self.ranks == 1 or self.layout.zero_stage == 0:
            return 0.0
        return self.gathers(2) + self.collective(8.0 * self.shape.parameters, messages=self.shape.layers)

    def gathers(self, times: int) -> float:
        """Seconds in which divided weights reach every rank so many times: the embedding as it is held, others as they
        are multiplied."""
        if self.ranks == 1 or self.layout.zero_stage < 3:
            return 0.0
        layout, shape = self.layout, self.shape
        looked_up = float(shape.vocabulary * shape.hidden)
        multiplied = min(layout.bytes_sent, layout.bytes_per_weight) * (shape.parameters - looked_up)
        return times * self.collective(layout.bytes_sent * looked_up + multiplied, messages=shape.layers)

    def optimizer_step(self) -> Terms:
        """One AdamW step: masters and moments read and written, gradients read, new weights shared."""
        layout, parameters = self.layout, self.shape.trained
        own = parameters / (self.ranks if layout.zero_stage else 1)
        sweeps, collectives = self.sweep(28 * own), 0.0
        if layout.offload_optimizer:
            sweeps = 28 * own / HOST_SWEEP + self.copied(6 * own)
        products = self.products(self.shape.newton_schulz_flops) if layout.optimizer == "muon" else 0.0
        if self.ranks > 1 and layout.zero_stage < 2:
            collectives += 2 * self.collective(4.0 * parameters, messages=self.shape.layers)
        if self.ranks > 1 and layout.zero_stage in (1, 2):
            collectives += self.collective(layout.bytes_sent * parameters, messages=self.shape.layers)
        return {"matmul": products, "sweeps": sweeps, "collectives": collectives}


def packed(trainers: Trainers, work: Work, *, backward: bool = True) -> Terms:
    """Rows balanced over ranks by tokens, prompts shared by a group's rows on a rank."""
    groups, ranks = work.groups / work.steps, trainers.ranks
    rows, mean = groups * work.rows, work.response.mean_cut()
    prompts = min(rows, max(groups, float(ranks)))
    fair = (prompts * work.prompt + rows * mean) / ranks
    longest = work.prompt + work.response.longest(max(1, round(rows)))
    if not backward:
        budget = trainers.layout.token_budget
        return _filled(trainers, fair, longest, rows / ranks, 1, trainers.exchange(1), budget=budget, times=work.steps)
    over, exchange = _over(trainers, work, rows=1), trainers.exchange(trainers.passes)
    return _trained(trainers, fair, longest, rows / ranks, exchange, over=over, times=work.steps)


def packed_questions(trainers: Trainers, work: Work) -> Terms:
    """Scoring: a question stays on one rank; weights, v and reference come to it."""
    ranks = trainers.ranks
    if trainers.layout.one_by_one:
        return _one_by_one(trainers, work)
    fair = work.groups * (work.prompt + work.rows * work.response.mean_cut()) / ranks
    longest = work.prompt + work.response.longest(max(1, round(work.groups)), rows=work.rows)
    sequences, over = work.groups * work.rows / ranks, _over(trainers, work, rows=work.rows)
    done = _trained(trainers, fair, longest, sequences, trainers.probe_exchange(), over=over, times=1)
    # Each question's gradient is held piece by piece against v and the reference: six fp32 streams.
    own = math.ceil(work.groups / ranks)
    return added(done, {"sweeps": own * trainers.sweep(6 * 4.0 * trainers.shape.trained)})


def _one_by_one(trainers: Trainers, work: Work) -> Terms:
    """Scoring by the reference probe: all ranks share every question, which is backward by itself."""
    shape, ranks = trainers.shape, trainers.ranks
    fair, longest = work.prompt + work.rows * work.response.mean_cut() / ranks, work.prompt + work.response.longest(1)
    groups, exchange, over = math.ceil(work.groups), trainers.exchange(trainers.passes), _over(trainers, work, rows=1)
    done = _trained(trainers, fair, longest, work.rows / ranks, exchange, over=over, times=groups)
    # The gradient is cleared, added to, and read with the reference, the moments and the direction that comes of them.
    sweeps = groups * trainers.sweep(9 * 4.0 * shape.trained / ranks)
    if trainers.layout.optimizer == "muon":
        done["matmul"] += groups * trainers.products(shape.newton_schulz_flops)
    return added(done, {"sweeps": sweeps})


def _over(trainers: Trainers, work: Work, *, rows: int) -> float:
    """Share of the tokens in micro-batches that are computed again, of pieces of so many rows."""
    return work.response.times(rows).share_over(kept_tokens(trainers.layout.gradient_checkpointing) - work.prompt)


def _trained(
    trainers: Trainers, fair: float, longest: float, sequences: float, exchange: float, *, over: float, times: int
) -> Terms:
    """Forward and backward. Where short micro-batches keep their products, a share `over` is computed again, and of the
    rest what lies between products, by as many launches."""
    layout, passes, budget = trainers.layout, trainers.passes, trainers.layout.token_budget
    if isinstance(layout.gradient_checkpointing, bool):
        return _filled(trainers, fair, longest, sequences, passes, exchange, budget=budget, times=times)
    budget = min(budget, layout.gradient_checkpointing)
    done = _filled(trainers, fair, longest, sequences, passes, exchange, budget=budget, times=times)
    written = (1 - over) * fair * between_products(trainers.shape, width=layout.bytes_per_weight)
    again = {
        "matmul": times * trainers.matmul(over * fair, over * sequences),
        "launches": done["launches"] / passes,
        # What is written is read as well.
        "sweeps": times * trainers.sweep(2 * written),
    }
    return added(done, again)


def _filled(
    trainers: Trainers,
    fair: float,
    longest: float,
    sequences: float,
    passes: int,
    exchange: float,
    *,
    budget: float,
    times: int,
) -> Terms:
    """`times` optimizer steps; in each a rank's tokens, or a single long piece, fill micro-batches to the budget."""
    tokens = max(fair, longest)
    count = math.ceil(tokens / budget)
    return trainers.micro_batches(
        tokens / count, fair / count, sequences / count, passes=passes, count=times * count, exchange=exchange
    )
