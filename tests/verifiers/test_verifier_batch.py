"""Many responses at once equal one response at a time, in order."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import question

from infuser_core.errors import ConfigError
from infuser_core.verifiers.parts import batch
from infuser_core.verifiers.parts.batch import Job, check_all, find_verifier
from infuser_core.verifiers.parts.extract import PRESETS
from infuser_core.verifiers.parts.grading import Finding, Grading, as_text, correct

calls: list[tuple[int, str]] = []
"""Jobs and preset of every call of `check_many` below."""


class Together:
    """A verifier that repeats each response, all of them in one call."""

    @staticmethod
    def check(response: str, asked: object, *, preset: str = "paper") -> Finding:
        raise AssertionError("a verifier that offers check_many gets its jobs together")

    @staticmethod
    def check_many(jobs: list[Job], *, preset: str = "paper") -> list[Finding]:
        calls.append((len(jobs), preset))
        return [correct("together", job.response) for job in jobs]


OUTSIDE = f"{__name__}:Together"


jobs_of = st.lists(
    st.builds(
        Job,
        response=st.sampled_from(["", r"\boxed{A}", r"\boxed{7} \boxed{B}", r"\boxed{(B)}", r"\boxed{unknown?}"]),
        question=st.builds(
            question,
            st.sampled_from(["A", "B", "7", "unknown"]),
            verifier=st.sampled_from(["choice", "exact", "integer", "bbeh"]),
        ),
    ),
    max_size=30,
)


@given(jobs_of, st.sampled_from(PRESETS))
def test_a_batch_equals_one_at_a_time(jobs: list[Job], preset: str):
    plain = [find_verifier(job.question.verifier).check(job.response, job.question, preset=preset) for job in jobs]
    assert check_all(jobs, preset=preset) == plain


@given(jobs_of, st.lists(st.sampled_from(["A", "B", "7", "known"]), max_size=3), st.sampled_from(PRESETS))
def test_of_several_right_answers_the_best_finding_counts(jobs: list[Job], others: list[str], preset: str):
    grading = as_text(Grading(also_right=tuple(others)))
    both = [replace(job, question=replace(job.question, grading=grading)) for job in jobs]
    alone = [
        check_all(
            [job, *(replace(job, question=replace(job.question, answer=other)) for other in others)], preset=preset
        )
        for job in jobs
    ]
    expected = [
        next((each for rank in ("correct", "unverified") for each in found if each.verdict == rank), found[0])
        for found in alone
    ]
    assert [(found.verdict, found.extracted) for found in check_all(both, preset=preset)] == [
        (found.verdict, found.extracted) for found in expected
    ]


def test_a_verifier_with_its_own_machinery_gets_its_jobs_in_one_call():
    calls.clear()
    together = question("x", verifier=OUTSIDE)
    jobs = [
        Job(response=r"\boxed{A}", question=question("A", verifier="choice"))
        if place % 3
        else Job(response=str(place), question=together)
        for place in range(1200)
    ]
    found = check_all(jobs, preset="strict-last")
    assert calls == [(400, "strict-last")]
    assert [each.extracted for each in found] == ["A" if place % 3 else str(place) for place in range(1200)]


def test_progress_counts_jobs_and_ends_at_all_of_them():
    jobs = [Job(response="", question=question("A", verifier=name)) for name in ("choice", "exact") for _ in range(700)]
    seen: list[tuple[int, int, int]] = []
    check_all(jobs, progress=lambda *report: seen.append(report))
    assert [done for done, _, _ in seen] == [500, 700, 1200, 1400]
    assert {(total, tokens) for _, total, tokens in seen} == {(1400, 0)}
    assert batch.REPORT_EVERY == 500


def test_an_unknown_verifier_is_refused_before_any_work():
    calls.clear()
    jobs = [Job(response="x", question=question("x", verifier=name)) for name in (OUTSIDE, "zzz")]
    with pytest.raises(ConfigError, match="'zzz'"):
        check_all(jobs)
    assert calls == []
