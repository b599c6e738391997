"""Speed of the statistics against plain loops over the same numbers, measured in the same run.

A plain loop resamples question by question with the standard library; its time for 10,000 draws is that of
`--plain-draws` draws, scaled. Every line also says how far the two results are apart.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np

from infuser_core.evaluation.statistics.bootstrap import DRAWS, paired_difference
from infuser_core.evaluation.statistics.passk import pass_curve
from infuser_core.evaluation.statistics.tally import from_counts


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result and seconds of a call."""
    start = time.perf_counter()
    found = call()
    return found, time.perf_counter() - start


def plain_interval(gains: list[float], draws: int) -> list[float]:
    """2.5% and 97.5% quantiles of means over resampled questions, one draw after the other."""
    means = sorted(statistics.fmean(random.choices(gains, k=len(gains))) for _ in range(draws))
    return [means[int(0.025 * draws)], means[int(0.975 * draws)]]


def bootstrap(name: str, questions: int, samples: int, plain_draws: int) -> dict[str, Any]:
    """A paired interval of two solvers."""
    rng = np.random.default_rng(0)
    chance = rng.random(questions)
    first, second = (rng.binomial(samples, p) / samples for p in (chance, np.minimum(1, chance + 0.02)))
    fast, seconds = timed(lambda: paired_difference(first, second))
    gains = [float(gain) for gain in second - first]
    plain, plain_seconds = timed(lambda: plain_interval(gains, plain_draws))
    whole = plain_seconds * DRAWS / plain_draws
    return {
        "name": name,
        "questions": questions,
        "samples": samples,
        "draws": DRAWS,
        "seconds": round(seconds, 4),
        "plain_seconds": round(whole, 2),
        "ratio": round(whole / seconds, 1),
        "difference": round(max(abs(fast.low - plain[0]), abs(fast.high - plain[1])), 5),
        "width": round(fast.high - fast.low, 5),
    }


def plain_pass(right: dict[str, int], samples: int, ks: list[int]) -> list[float]:
    """pass@k by binomial coefficients, question by question."""
    return [statistics.fmean(1 - comb(samples - c, k) / comb(samples, k) for c in right.values()) for k in ks]


def passes(questions: int, samples: int) -> dict[str, Any]:
    """A curve from counts per question."""
    rng = np.random.default_rng(1)
    right = {f"question-{n}": int(rng.binomial(samples, p)) for n, p in enumerate(rng.random(questions))}
    ks = [2**power for power in range(samples.bit_length())]
    tally, counting = timed(lambda: from_counts(right, samples))
    curve, seconds = timed(lambda: pass_curve(tally, ks))
    plain, plain_seconds = timed(lambda: plain_pass(right, samples, ks))
    return {
        "name": f"pass@k, {questions} x {samples}",
        "questions": questions,
        "samples": samples,
        "points": len(ks),
        "counting_seconds": round(counting, 4),
        "curve_seconds": round(seconds, 5),
        "plain_curve_seconds": round(plain_seconds, 4),
        "curve_ratio": round(plain_seconds / seconds, 1),
        "difference": max(abs(point.value - value) for point, value in zip(curve, plain, strict=True)),
    }


def main() -> None:
    """Print one JSON line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain-draws", type=int, default=300, help="draws of the plain loop, scaled to 10,000")
    options = parser.parse_args()
    for name, questions, samples in (
        ("paired bootstrap, one sample", 12032, 1),
        ("paired bootstrap, 32 samples", 12032, 32),
        ("paired bootstrap, small", 198, 5),
    ):
        print(json.dumps(bootstrap(name, questions, samples, options.plain_draws)))
    print(json.dumps(passes(782, 128)))
    print(json.dumps(passes(100_000, 1)))


if __name__ == "__main__":
    main()
