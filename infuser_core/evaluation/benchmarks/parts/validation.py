"""Draw the validation set from benchmarks by strata, count its overlap with benchmarks, and digest question sets."""

import hashlib
import json
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import BenchmarkQuestions, Quota
from infuser_core.errors import ConfigError, DataWarning
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.schemas import Leak, Question
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.grading import as_text, grading_of

_NAMES = [field.name for field in fields(Question)]


def content_digest(questions: Sequence[Question]) -> str:
    """SHA-256 digest of questions in order, without the paths of their tests."""
    total = hashlib.sha256()
    for question in questions:
        grading = grading_of(question)
        if grading.tests:
            question = replace(question, grading=as_text(replace(grading, tests="")))
        # Like `asdict`, which copies every list first: this is called for every question of every benchmark.
        plain = {name: getattr(question, name) for name in _NAMES}
        total.update(json.dumps(plain, sort_keys=True).encode() + b"\n")
    return total.hexdigest()


MANY_WORDS = 12
"""Number of words from which a text identifies its question; a shorter one (`which of these is true`) does not."""


def question_key(question: Question) -> str:
    """Key that equal questions share: letters and digits of the text, without case and compatibility forms.

    A text too short to identify its question is extended by the choices, in any order.
    """
    words = _words(question.text)
    if len(words) >= MANY_WORDS or not question.choices:
        return " ".join(words) or question.text.strip()
    return "\x1f".join([" ".join(words), *sorted(" ".join(_words(choice)) or choice for choice in question.choices)])


def question_identity(question: Question) -> tuple[str, str]:
    """Key of equal questions that also compares the operators in their formulas: 5 + 3 is not 5 - 3.

    A hyphen between two letters is not an operator, and neither is `=`, which some copies of `2 + 2 = ?` lack.
    """
    text = unicodedata.normalize("NFKC", question.text)
    operators = []
    for place, sign in enumerate(text):
        if unicodedata.category(sign) == "Pd" or sign == "\N{MINUS SIGN}":
            if not (text[place - 1 : place].isalpha() and text[place + 1 : place + 2].isalpha()):
                operators.append("-")
        elif sign != "=" and (sign in "*/^" or unicodedata.category(sign) == "Sm"):
            operators.append(sign)
    return question_key(question), "".join(operators)


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign if sign.isalnum() else " " for sign in plain).split()


def count_leaks(validation: Sequence[Question], benchmarks: Mapping[str, Sequence[Question]]) -> list[Leak]:
    """Count overlap: one row per benchmark, with the number of its questions and of those in the validation set."""
    keys = {question_key(question) for question in validation}
    rows = []
    for label, questions in benchmarks.items():
        count = sum(question_key(question) in keys for question in questions)
        share = count / len(questions) if questions else 0.0
        rows.append(Leak(benchmark=label, num_questions=len(questions), num_seen=count, share=share))
    return rows


def apportion(total: int, weights: Mapping[str, int], *, seed: int) -> dict[str, int]:
    """Divide `total` into whole numbers in proportion to weights, by largest remainder; equal ones ordered by hash."""
    whole = sum(weights.values())
    if whole == 0:
        return dict.fromkeys(weights, 0)
    shares = {name: total * weight // whole for name, weight in weights.items()}
    rest = {name: total * weight % whole for name, weight in weights.items()}
    first = sorted(weights, key=lambda name: (-rest[name], seed_of(seed, name), name))
    for name in first[: total - sum(shares.values())]:
        shares[name] += 1
    return shares


def spread_shortfall(quotas: Mapping[str, int], sizes: Mapping[str, int], *, seed: int) -> dict[str, int]:
    """Counts to draw if pools are smaller than their quotas: the others add the rest in proportion to their quotas."""
    counts = {name: min(quota, sizes[name]) for name, quota in quotas.items()}
    while lack := sum(quotas.values()) - sum(counts.values()):
        room = {name: sizes[name] - counts[name] for name in quotas}
        open_quotas = {name: quotas[name] for name in quotas if room[name] > 0}
        if not open_quotas:
            break
        for name, more in apportion(lack, open_quotas, seed=seed).items():
            counts[name] += min(more, room[name])
    return counts


def stratum(question: Question) -> str:
    """A question's stratum: benchmark (the identifier before the colon), domain and subdomain."""
    return "\x1f".join([question.question_id.partition(":")[0], question.domain, question.subdomain])


def draw_stratified(
    pool: Sequence[Question],
    count: int,
    *,
    seed: int,
    scope: Sequence[str] = (),
    by: Callable[[Question], str] = stratum,
) -> list[Question]:
    """Draw at most `count` questions with every stratum's share, sorted by stratum and identifier.

    The draw depends on the seed, the scope and the questions of the pool, not on their order.
    """
    strata: dict[str, list[Question]] = {}
    for question in pool:
        strata.setdefault(by(question), []).append(question)
    sizes = {name: len(questions) for name, questions in sorted(strata.items())}
    shares = apportion(min(count, len(pool)), sizes, seed=seed)

    def rank(question: Question) -> tuple[int, str]:
        return seed_of(seed, *scope, question.question_id), question.question_id

    draws = {name: sorted(strata[name], key=rank)[: shares[name]] for name in sizes}
    return [one for name in sizes for one in sorted(draws[name], key=lambda question: question.question_id)]


def sample_questions(source: BenchmarkQuestions, evaluated: Sequence[BenchmarkSettings] = ()) -> list[Question]:
    """Draw the validation set, quota by quota. Identifiers are `<benchmark>:<identifier>`.

    With `leak_free` no question of the `evaluated` benchmarks is drawn. If a quota lacks questions, a DataWarning says
    so, and other quotas replace them if `source.shortfall` is `spread`. Raises ConfigError for a quota without any
    questions, or if nothing is left.
    """
    excluded = frozenset(
        question_key(question)
        for settings in (evaluated if source.leak_free else ())
        for question in find_benchmark(settings.name)(settings)
    )
    quotas = {_name(quota): quota.count for quota in source.quotas}
    pools = {_name(quota): _pool(quota, source, excluded) for quota in source.quotas}
    sizes = {name: len(pool) for name, pool in pools.items()}
    counts = {name: min(quota, sizes[name]) for name, quota in quotas.items()}
    if source.shortfall == "spread":
        counts = spread_shortfall(quotas, sizes, seed=source.seed)
    if not sum(counts.values()):
        raise ConfigError(
            "the validation set is empty: every question of its quotas is asked by evaluate.benchmarks",
            hint="leave benchmarks out of the evaluation, or name larger sets in data.validation.paths",
        )
    short = [f"{name} {counts[name]} of {quota}" for name, quota in quotas.items() if counts[name] < quota]
    more = [f"{name} {counts[name]} instead of {quota}" for name, quota in quotas.items() if counts[name] > quota]
    if short:
        why = " outside the evaluated benchmarks" if source.leak_free else ""
        total = f"{sum(counts.values()):,} of {sum(quotas.values()):,} questions"
        instead = f"; drawn instead: {', '.join(more)}" if more else ""
        text = f"validation set: {total}; quotas that lack questions{why}: {', '.join(short)}{instead}"
        warnings.warn(text, DataWarning, stacklevel=2)
    return [each for name, pool in pools.items() for each in draw_stratified(pool, counts[name], seed=source.seed)]


def _name(quota: Quota) -> str:
    return "+".join(quota.benchmarks) + (f"/{quota.subdomain}" if quota.subdomain else "")


def _pool(quota: Quota, source: BenchmarkQuestions, excluded: frozenset[str]) -> list[Question]:
    """The questions that a quota may draw from."""
    pool = []
    for benchmark in quota.benchmarks:
        settings = BenchmarkSettings(name=benchmark, path=source.paths.get(benchmark, ""))
        pool += [
            replace(question, question_id=f"{benchmark}:{question.question_id}")
            for question in find_benchmark(benchmark)(settings)
            if quota.subdomain in ("", question.subdomain)
        ]
    if not pool:
        raise ConfigError(
            f"data.validation.quotas: {_name(quota)} has no questions", hint="check `subdomain`, or leave the quota out"
        )
    return [each for each in pool if not excluded or question_key(each) not in excluded]
