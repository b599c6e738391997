"""The validation set: stratified quotas of benchmark questions, with or without leakage.

The rule: every (benchmark, domain, subdomain) gets its share of the sample in proportion to its size, rounded by
largest remainder, and gives the questions whose hash of (seed, identifier) comes first.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infuser_core import plugins
from infuser_core.benchmarks.parts.identity import key
from infuser_core.benchmarks.parts.spec import DataWarning
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, Quota
from infuser_core.errors import ConfigError
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of


def apportion(total: int, weights: Mapping[str, int], *, seed: int) -> dict[str, int]:
    """Whole numbers that sum to `total` in proportion to the weights, by largest remainder; equal ones by hash."""
    whole = sum(weights.values())
    if whole == 0:
        return dict.fromkeys(weights, 0)
    shares = {name: total * weight // whole for name, weight in weights.items()}
    rest = {name: total * weight % whole for name, weight in weights.items()}
    first = sorted(weights, key=lambda name: (-rest[name], seed_of(seed, name), name))
    for name in first[: total - sum(shares.values())]:
        shares[name] += 1
    return shares


def spread(wanted: Mapping[str, int], there: Mapping[str, int], *, seed: int) -> dict[str, int]:
    """What each gives when some have fewer than wanted: the others share the lack in proportion to their quotas."""
    given = {name: min(count, there[name]) for name, count in wanted.items()}
    while lack := sum(wanted.values()) - sum(given.values()):
        room = {name: there[name] - given[name] for name in wanted}
        open_ones = {name: wanted[name] for name in wanted if room[name] > 0}
        if not open_ones:
            break
        for name, more in apportion(lack, open_ones, seed=seed).items():
            given[name] += min(more, room[name])
    return given


def draw(pool: Sequence[Question], count: int, *, seed: int) -> list[Question]:
    """`count` questions of the pool, or all there are, ordered by stratum and identifier."""
    strata: dict[str, list[Question]] = {}
    for question in pool:
        strata.setdefault(stratum(question), []).append(question)
    sizes = {name: len(questions) for name, questions in sorted(strata.items())}
    shares = apportion(min(count, len(pool)), sizes, seed=seed)
    return [question for name in sizes for question in _first(strata[name], shares[name], seed=seed)]


def stratum(question: Question) -> str:
    """Benchmark, domain and subdomain; the benchmark is the part of the identifier before the colon."""
    return "\x1f".join([question.question_id.partition(":")[0], question.domain, question.subdomain])


def _first(questions: Sequence[Question], count: int, *, seed: int) -> list[Question]:
    ranked = sorted(questions, key=lambda question: (seed_of(seed, question.question_id), question.question_id))
    return sorted(ranked[:count], key=lambda question: question.question_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One quota with the questions it may draw from."""

    name: str
    """Its benchmarks, joined by `+`, and the subdomain where one is asked for."""
    wanted: int
    """Questions asked for."""
    pool: list[Question]
    """Questions that may be drawn."""


def sample(source: BenchmarkQuestions, evaluated: Sequence[BenchmarkSettings] = ()) -> list[Question]:
    """The validation set, quota by quota. Identifiers are `<benchmark>:<identifier>`.

    With `leak_free` no question that `evaluated` will ask is drawn. What a quota lacks is announced as a DataWarning
    and drawn from the others, or left lacking, as `source.shortfall` says. Raises ConfigError when nothing is left.
    """
    asked = _asked(evaluated) if source.leak_free else frozenset()
    sources = [_source(quota, source, asked) for quota in source.quotas]
    wanted = {each.name: each.wanted for each in sources}
    there = {each.name: len(each.pool) for each in sources}
    given = {name: min(count, there[name]) for name, count in wanted.items()}
    if source.shortfall == "spread":
        given = spread(wanted, there, seed=source.seed)
    if not sum(given.values()):
        raise ConfigError(
            "the validation set is empty: every question of its quotas is asked by evaluate.benchmarks",
            hint="leave benchmarks out of the evaluation, or name larger sets in data.validation.paths",
        )
    _announce(wanted, given, leak_free=source.leak_free)
    return [question for each in sources for question in draw(each.pool, given[each.name], seed=source.seed)]


def _asked(evaluated: Sequence[BenchmarkSettings]) -> frozenset[str]:
    return frozenset(key(question) for settings in evaluated for question in plugins.benchmark(settings.name)(settings))


def _source(quota: Quota, source: BenchmarkQuestions, asked: frozenset[str]) -> Source:
    name = "+".join(quota.benchmarks) + (f"/{quota.subdomain}" if quota.subdomain else "")
    pool = [
        replace(question, question_id=f"{benchmark}:{question.question_id}")
        for benchmark in quota.benchmarks
        for question in _questions(benchmark, source)
        if quota.subdomain in ("", question.subdomain)
    ]
    if not pool:
        raise ConfigError(
            f"data.validation.quotas: {name} has no questions", hint="check `subdomain`, or leave the quota out"
        )
    return Source(name=name, wanted=quota.count, pool=[one for one in pool if not asked or key(one) not in asked])


def _questions(benchmark: str, source: BenchmarkQuestions) -> list[Question]:
    return plugins.benchmark(benchmark)(BenchmarkSettings(name=benchmark, path=source.paths.get(benchmark, "")))


def _announce(wanted: dict[str, int], given: dict[str, int], *, leak_free: bool) -> None:
    short = [f"{name} {given[name]} of {count}" for name, count in wanted.items() if given[name] < count]
    more = [f"{name} {given[name]} instead of {count}" for name, count in wanted.items() if given[name] > count]
    if short:
        why = " outside the evaluated benchmarks" if leak_free else ""
        total = f"{sum(given.values()):,} of {sum(wanted.values()):,} questions"
        instead = f"; drawn instead: {', '.join(more)}" if more else ""
        text = f"validation set: {total}; quotas that lack questions{why}: {', '.join(short)}{instead}"
        warnings.warn(text, DataWarning, stacklevel=3)
