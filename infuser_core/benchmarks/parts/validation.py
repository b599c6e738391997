"""The validation set: stratified draws from benchmarks, what it has seen of them, and digests of question sets."""

import hashlib
import json
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

from infuser_core import plugins
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, Quota
from infuser_core.errors import ConfigError, DataWarning
from infuser_core.schemas import Leak, Question
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.grading import as_text, grading_of

_NAMES = [field.name for field in fields(Question)]


def content(questions: Sequence[Question]) -> str:
    """sha256 over everything the questions say, in order; where a problem's tests lie is not part of it."""
    total = hashlib.sha256()
    for question in questions:
        grading = grading_of(question)
        if grading.tests:
            question = replace(question, grading=as_text(replace(grading, tests="")))
        # What `asdict` makes, which copies every list first: this is called for every question of every benchmark.
        plain = {name: getattr(question, name) for name in _NAMES}
        total.update(json.dumps(plain, sort_keys=True).encode() + b"\n")
    return total.hexdigest()


MANY_WORDS = 12
"""A text of so many words is a question of its own; below, `which of these is true` needs its choices to tell."""


def key(question: Question) -> str:
    """Key of equal questions: letters and digits of the text, case and compatibility forms aside.

    Choices count, in any order, where the text alone could be another question's.
    """
    words = _words(question.text)
    if len(words) >= MANY_WORDS or not question.choices:
        return " ".join(words) or question.text.strip()
    return "\x1f".join([" ".join(words), *sorted(" ".join(_words(choice)) or choice for choice in question.choices)])


def identity(question: Question) -> tuple[str, str]:
    """Equal for questions of one text, as `key` has it, whose formulas have the same operators: 5 + 3 is not 5 - 3.

    A hyphen between two letters is no operator, and neither is `=`, which some copies of `2 + 2 = ?` have not.
    """
    text = unicodedata.normalize("NFKC", question.text)
    found = []
    for place, sign in enumerate(text):
        if unicodedata.category(sign) == "Pd" or sign == "\N{MINUS SIGN}":
            if not (text[place - 1 : place].isalpha() and text[place + 1 : place + 2].isalpha()):
                found.append("-")
        elif sign != "=" and (sign in "*/^" or unicodedata.category(sign) == "Sm"):
            found.append(sign)
    return key(question), "".join(found)


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign if sign.isalnum() else " " for sign in plain).split()


def leaks(validation: Sequence[Question], benchmarks: Mapping[str, Sequence[Question]]) -> list[Leak]:
    """One row per benchmark, in order: its questions, and those of them that the validation set contains."""
    seen = {key(question) for question in validation}
    found = []
    for label, questions in benchmarks.items():
        count = sum(key(question) in seen for question in questions)
        share = count / len(questions) if questions else 0.0
        found.append(Leak(benchmark=label, num_questions=len(questions), num_seen=count, share=share))
    return found


def sentence(found: Sequence[Leak]) -> str:
    """The warning that stands beside the checkpoint's choice; empty when nothing leaks."""
    seen, asked = sum(leak.num_seen for leak in found), sum(leak.num_questions for leak in found)
    if not seen:
        return ""
    entire = [leak.benchmark for leak in found if 0 < leak.num_questions == leak.num_seen]
    text = f"{seen:,} of {asked:,} benchmark questions are in the validation set that chooses the checkpoint"
    return f"{text}; it contains {', '.join(entire)} whole" if entire else text


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
    """Counts when some have fewer than wanted: the others share the lack in proportion to their quotas."""
    given = {name: min(count, there[name]) for name, count in wanted.items()}
    while lack := sum(wanted.values()) - sum(given.values()):
        room = {name: there[name] - given[name] for name in wanted}
        open_ones = {name: wanted[name] for name in wanted if room[name] > 0}
        if not open_ones:
            break
        for name, more in apportion(lack, open_ones, seed=seed).items():
            given[name] += min(more, room[name])
    return given


def stratum(question: Question) -> str:
    """Benchmark, domain and subdomain; the benchmark is the part of the identifier before the colon."""
    return "\x1f".join([question.question_id.partition(":")[0], question.domain, question.subdomain])


def draw(
    pool: Sequence[Question],
    count: int,
    *,
    seed: int,
    scope: Sequence[str] = (),
    by: Callable[[Question], str] = stratum,
) -> list[Question]:
    """`count` questions of the pool, or all there are, every stratum with its share, by stratum and identifier.

    The draw depends on the seed, the scope and what is drawn from, never on its order.
    """
    strata: dict[str, list[Question]] = {}
    for question in pool:
        strata.setdefault(by(question), []).append(question)
    sizes = {name: len(questions) for name, questions in sorted(strata.items())}
    shares = apportion(min(count, len(pool)), sizes, seed=seed)

    def rank(question: Question) -> tuple[int, str]:
        return seed_of(seed, *scope, question.question_id), question.question_id

    chosen = {name: sorted(strata[name], key=rank)[: shares[name]] for name in sizes}
    return [one for name in sizes for one in sorted(chosen[name], key=lambda question: question.question_id)]


def sample(source: BenchmarkQuestions, evaluated: Sequence[BenchmarkSettings] = ()) -> list[Question]:
    """The validation set, quota by quota. Identifiers are `<benchmark>:<identifier>`.

    With `leak_free` no question that `evaluated` will ask is drawn. What a quota lacks is announced as a DataWarning
    and drawn from the others, or left lacking, as `source.shortfall` says. Raises ConfigError when nothing is left.
    """
    settled = evaluated if source.leak_free else ()
    asked = frozenset(key(question) for settings in settled for question in plugins.benchmark(settings.name)(settings))
    wanted = {_name(quota): quota.count for quota in source.quotas}
    pools = {_name(quota): _pool(quota, source, asked) for quota in source.quotas}
    there = {name: len(pool) for name, pool in pools.items()}
    given = {name: min(count, there[name]) for name, count in wanted.items()}
    if source.shortfall == "spread":
        given = spread(wanted, there, seed=source.seed)
    if not sum(given.values()):
        raise ConfigError(
            "the validation set is empty: every question of its quotas is asked by evaluate.benchmarks",
            hint="leave benchmarks out of the evaluation, or name larger sets in data.validation.paths",
        )
    _announce(wanted, given, leak_free=source.leak_free)
    return [question for name, pool in pools.items() for question in draw(pool, given[name], seed=source.seed)]


def _name(quota: Quota) -> str:
    return "+".join(quota.benchmarks) + (f"/{quota.subdomain}" if quota.subdomain else "")


def _pool(quota: Quota, source: BenchmarkQuestions, asked: frozenset[str]) -> list[Question]:
    """The questions that a quota may draw from."""
    pool = []
    for benchmark in quota.benchmarks:
        settings = BenchmarkSettings(name=benchmark, path=source.paths.get(benchmark, ""))
        pool += [
            replace(question, question_id=f"{benchmark}:{question.question_id}")
            for question in plugins.benchmark(benchmark)(settings)
            if quota.subdomain in ("", question.subdomain)
        ]
    if not pool:
        raise ConfigError(
            f"data.validation.quotas: {_name(quota)} has no questions", hint="check `subdomain`, or leave the quota out"
        )
    return [one for one in pool if not asked or key(one) not in asked]


def _announce(wanted: dict[str, int], given: dict[str, int], *, leak_free: bool) -> None:
    short = [f"{name} {given[name]} of {count}" for name, count in wanted.items() if given[name] < count]
    more = [f"{name} {given[name]} instead of {count}" for name, count in wanted.items() if given[name] > count]
    if short:
        why = " outside the evaluated benchmarks" if leak_free else ""
        total = f"{sum(given.values()):,} of {sum(wanted.values()):,} questions"
        instead = f"; drawn instead: {', '.join(more)}" if more else ""
        text = f"validation set: {total}; quotas that lack questions{why}: {', '.join(short)}{instead}"
        warnings.warn(text, DataWarning, stacklevel=3)
