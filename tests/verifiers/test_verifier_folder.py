"""Every verifier of the folder: one interface, batches, cases by rule, long answers, one from another package."""

import itertools
import json
import time
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher import ROOT, Launcher
from places import DATA
from verifier_cases import CORRECT, NO_ANSWER, WRONG, question

from infuser_core.config.run import BenchmarkSettings
from infuser_core.cotrain.phases.parsing import ParsedQuestion, parse, to_question
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.evaluation.benchmarks.parts.question_sets import question_of
from infuser_core.plugins import VERIFIERS
from infuser_core.schemas import Document, Question, Verdict
from infuser_core.verifiers import bbeh, choice, code, exact, integer
from infuser_core.verifiers.code import extract_program
from infuser_core.verifiers.parts import batch, extract
from infuser_core.verifiers.parts.batch import Job, check_all, find_verifier
from infuser_core.verifiers.parts.code_tests import CodeCase, is_root, same_output, same_value
from infuser_core.verifiers.parts.extract import PRESETS
from infuser_core.verifiers.parts.grading import Finding, Grading, Reason, as_text, correct

TEXTUAL = (choice, exact, integer, bbeh)
"""Verifiers that compare text in this process, so that any response can be tried on them."""


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", VERIFIERS.names())
def test_every_verifier_says_when_there_is_no_answer(name: str, preset: str):
    verifier = find_verifier(name)
    for silent in ("", "no box", "no closed \\boxed{"):
        finding = verifier.check(silent, question("1", verifier=name), preset=preset)
        assert (finding.verdict, finding.extracted) == (NO_ANSWER, None)
        assert finding.reason


@pytest.mark.parametrize("name", VERIFIERS.names())
def test_every_verifier_refuses_an_unknown_preset(name: str):
    for response in ("no box", r"\boxed{1}"):
        with pytest.raises(ConfigError, match=r"'lucky'.*paper, official, strict-last"):
            find_verifier(name).check(response, question("1", verifier=name), preset="lucky")


anything = st.text(alphabet=st.characters(exclude_categories=()), max_size=80)
mathematical = st.text(alphabet="\\boxed{}()[]$.,:'\"?*^% \n0123456789-+eABCIisnaf\u0130\u0131\ud800\x00", max_size=40)
PARTS = [
    "\\boxed{", "}", "{", "\\text{", "answer is ", "Answer: ", "Final Answer: ", "option ", "(A)", "B", ". ", "1e999",
    "nan", "-inf", "1,000", "\n", "^\\circ", "**", "\\",
]  # fmt: skip
responses = st.one_of(
    anything,
    mathematical,
    anything.map(r"\boxed{{{}}}".format),
    mathematical.map(r"\boxed{{{}}}".format),
    st.lists(st.sampled_from(PARTS), max_size=10).map("".join),
)
references = st.sampled_from(["A", "7", "unknown", "", "inf", "1,000"])
routes = st.sampled_from(["", "mmlu_pro", "medqa"])


@given(responses, references, routes)
def test_no_response_makes_a_verifier_raise(response: str, reference: str, route: str):
    asked = question(reference, route=route)
    for verifier in TEXTUAL:
        for preset in PRESETS:
            finding = verifier.check(response, asked, preset=preset)
            assert finding.verdict in Verdict
            assert (finding.extracted is None) == (finding.verdict == NO_ANSWER)
            assert verifier.check(response, asked, preset=preset) == finding


HOSTILE = [
    "{", "}", "\\", "\\boxed{", "\\boxed{A}", "\\text{", "$", "(", "[", "'", " ", "\n", "a) ", "answer ", "0", "0,",
    "^ ", "A", "A:", "final answer is ", "Answer: ", "\u0130", "\ud800", "\x00", "1,000",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_run_of_anything_is_read_in_one_pass(piece: str):
    run = piece * (25_000 // len(piece))
    for response in (run, f"\\boxed{{{run}}}", f"\\boxed{{A. {run}x}}", f"\\boxed{{option {run}x}}"):
        for route in ("", "mmlu_pro", "medqa"):
            asked = question("5", route=route)
            for verifier in TEXTUAL if not route else (choice,):
                assert all(verifier.check(response, asked, preset=preset).verdict in Verdict for preset in PRESETS)


@given(st.text(alphabet="aAbB01.,()[]'\"? *", max_size=10), st.text(alphabet="aAbB01.,()[]'\"? *", max_size=10))
def test_the_match_has_no_direction(left: str, right: str):
    assert bbeh.agreement(left, right) == bbeh.agreement(right, left)
    assert bbeh.agreement(left, left) == Reason.TEXT


@given(st.integers(-(10**30), 10**30))
def test_thousands_separators_do_not_change_a_number(number: int):
    assert exact.parse_number(f"{number:,}") == exact.parse_number(str(number)) == Fraction(number)


@given(st.text(max_size=12), st.text(max_size=12))
def test_equality_has_no_direction(left: str, right: str):
    assert exact.agreement(left, left)
    assert exact.agreement(left, right) == exact.agreement(right, left)


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 4), st.integers(0, 3))
def test_leading_and_trailing_zeros_alone_do_not_matter(found: int, reference: int, zeros: int, decimals: int):
    text = "0" * zeros + str(found) + ("." + "0" * decimals if decimals else "")
    verdict = integer.check(rf"\boxed{{{text}}}", question(str(reference))).verdict
    assert verdict == (CORRECT if found == reference else WRONG)


@given(st.text(alphabet="ABab.():,$ or", max_size=10))
def test_what_paper_reads_strict_last_reads_as_well(content: str):
    response = rf"\boxed{{{content}}}"
    found = choice.check(response, question("B"))
    if found.verdict != NO_ANSWER and found.reason != Reason.NO_LETTER:
        assert choice.check(response, question("B"), preset="strict-last") == found


@given(st.text(alphabet="abcdABCD.():,$ orn", max_size=12))
def test_no_box_is_right_for_two_letters(content: str):
    for preset in ("paper", "strict-last"):
        verdicts = [choice.check(rf"\boxed{{{content}}}", question(letter), preset=preset).verdict for letter in "ABCD"]
        assert verdicts.count(CORRECT) <= 1


def row(**fields: object) -> Question:
    return question_of({"question_id": "q", "question_text": "Q", **fields}, "here")


DISPATCHED = [
    # row of a question file, response, what was extracted, verdict: the same under every preset
    ({"choices": ["x", "y", "z"], "ground_truth": "B"}, r"\boxed{\text{B}}", "B", CORRECT),
    ({"choices": ["x", "y", "z"], "ground_truth": "A"}, r"\boxed{C}", "C", WRONG),
    ({"choices": ["4", "5", "6", "7"], "ground_truth": "5"}, r"\boxed{B}", "B", CORRECT),
    ({"choices": [4, 5, 6, 7], "ground_truth": 5}, r"\boxed{B}", "B", CORRECT),
    ({"ground_truth": "proved"}, "no box", None, NO_ANSWER),
    ({"ground_truth": "42", "data_source": "aime"}, r"\boxed{042}", "042", CORRECT),
    ({"ground_truth": "42", "data_source": "aime"}, "no box", None, NO_ANSWER),
]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("fields", "response", "extracted", "verdict"), DISPATCHED)
def test_a_row_finds_its_verifier(
    fields: dict[str, object], response: str, extracted: str | None, verdict: str, preset: str
):
    asked = row(**fields)
    finding = find_verifier(asked.verifier).check(response, asked, preset=preset)
    assert (finding.extracted, finding.verdict) == (extracted, verdict)


@pytest.mark.parametrize("source", ["mmlu_pro", "medqa", "aime", "no such benchmark"])
@pytest.mark.parametrize(("prompt_type", "verifier"), [("mcq", "choice"), ("free_form", "math")])
def test_a_data_source_that_a_model_wrote_chooses_nothing(source: str, prompt_type: str, verifier: str):
    written = {"question_text": "Q", "choices": list("wxyz"), "ground_truth": "x", "data_source": source}
    route = "mcq" if prompt_type == "mcq" else "free_form"
    parsed = parse(json.dumps({**written, "benchmark_type": source}), route=route)
    assert isinstance(parsed, ParsedQuestion)
    document = Document(
        document_id="d", source_id="s", header_path="", start=0, end=1, text="t", num_tokens=1, domain="",
        prompt_type=prompt_type,
    )  # fmt: skip
    asked = to_question(parsed, rollout_id="r", document=document)
    assert (asked.verifier, asked.grading) == (verifier, "")
    assert choice.check("the answer is B", asked, preset="official").verdict == NO_ANSWER


# Many responses at once equal one response at a time, in order


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


# The table of hand-made cases: what each preset reads in a response, says and why; also what the authors' code does


ROWS = [json.loads(line) for line in (DATA / "verifier_cases.jsonl").read_text().splitlines()]
READERS = {"boxed": extract.boxed, "program": extract_program}
RULES: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)


for each in ROWS:
    RULES[each["asked"], each["rule"]].append(each)


def found(row: dict[str, Any], preset: str) -> object:
    """What the code under test makes of a row."""
    asked, response = row["asked"], row["response"]
    if asked in READERS:
        return READERS[asked](response, preset=preset)
    if asked in ("unwrap", "phrase"):
        return extract.unwrap(response) if asked == "unwrap" else extract.official_bbeh(response)
    grading, choices = Grading(**row.get("grading", {})), row.get("choices", 0)
    asks = question(row["answer"], choices=choices, verifier=asked, text=row.get("text", "?"), grading=grading)
    finding = find_verifier(asked).check(response, asks, preset=preset)
    return [finding.verdict, finding.extracted, finding.reason]


@pytest.mark.parametrize(("asked", "rule"), RULES)
def test_every_row_is_read_and_judged_as_the_table_says(asked: str, rule: str):
    rows = RULES[asked, rule]
    wanted = [(row, preset, said) for row in rows for key, said in row["found"].items() for preset in key.split(",")]
    assert wanted
    assert [(row, preset) for row, preset, said in wanted if found(row, preset) != said] == []


def test_the_table_covers_every_verifier_reader_and_preset():
    asked = {row["asked"] for row in ROWS}
    assert asked == {*VERIFIERS.names(), "boxed", "unwrap", "phrase", "program"} - {"code"}
    for name in asked - {"unwrap", "phrase"}:
        presets = {preset for row in ROWS if row["asked"] == name for key in row["found"] for preset in key.split(",")}
        assert presets == set(extract.PRESETS), name


# A verifier of one's own is one small file, named by the questions that it decides


FOLDER = ROOT / "examples" / "my_verifier"
NAME = "examples.my_verifier.my_verifier:load"


def test_it_reads_durations_in_any_unit():
    (tide, *_) = find_benchmark(NAME)(BenchmarkSettings(name=NAME, path=str(FOLDER / "durations.jsonl")))
    check = find_verifier(tide.verifier).check
    said = {text: check(text, tide).verdict for text in (r"\boxed{6.25 h}", r"\boxed{6 h}", r"\boxed{long}", "6.25 h")}
    assert list(said.values()) == ["correct", "wrong", "wrong", "no_answer"]


def test_a_model_s_answers_are_verified_by_it(launch: Launcher, tmp_path: Path):
    ended = launch(
        *("eval", "--model", "nano-wide", "--benchmarks", f"{NAME}={FOLDER / 'durations.jsonl'}", "--json"),
        *("--prompts", "paper", "--prompt-tokens", "4096"),
        store=tmp_path / "store",
    )
    assert ended.code == 0, ended.err
    row = json.loads(ended.out)["benchmarks"]["my_verifier"]
    assert row["questions"] == 3 and row["unverified"] == 0


# Long and large answers: the time that one takes grows with its length, and none ends a batch


LENGTH = 20_000
SECONDS = 0.25
"""CPU time of one text; a quadratic pattern takes 4 s and more."""
ATTEMPTS = 3
"""Runs of a slow text: a collection of garbage may fall into one."""
PIECES = ("1", "a", " ", "~", "`", "\n", "[]", "1,", "\\text", "\\boxed{", "~~~\n", ".", "A ", "(")
HEADS = ("", "\\boxed{", "\\boxed{\\text{", "\\boxed{~~~", "\\boxed{\\begin{verbatim}", "```", "a:")
TAILS = ("x!", "`", "}")
LONG_READERS = {
    "strict-last": lambda text: code.extract_program(text, preset="strict-last", entry="f"),
    "official": lambda text: code.extract_program(text, preset="official", entry="f"),
    "scanned": lambda text: list(code._scan_lines(text)),
    "output": lambda text: same_output(text.replace("\n", ""), "49"),
    "exact": lambda text: exact.agreement(text, "49"),
    "integer": integer.parse_integer,
    "choice": choice._read_choice,
    "bbeh": lambda text: bbeh.agreement(text, "a"),
}


def seconds_of(name: str, text: str) -> float:
    start = time.process_time()
    LONG_READERS[name](text)
    return time.process_time() - start


@pytest.mark.parametrize("name", LONG_READERS)
def test_the_time_of_an_answer_grows_with_its_length(name: str):
    for head, piece, tail in itertools.product(HEADS, PIECES, TAILS):
        text = head + (piece * LENGTH)[:LENGTH] + tail
        assert any(seconds_of(name, text) < SECONDS for _ in range(ATTEMPTS)), (head, piece, tail)


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [(10**400, 2, False), (10**400, 2.0, False), (-(10**400), float("inf"), False), (10**400 + 1, 10**400, True),
     (2 * 10**400, 10**400, False), (1e308 + 1e308j, 10**400, False), (1, 10**400, False), (10**400, 1j, False)],
)  # fmt: skip
def test_numbers_beyond_the_floats_are_compared_too(found: complex, expected: complex, equal: bool):
    assert same_value(found, expected, atol=0.1) is equal
    assert not is_root(found, CodeCase(args=([-4, 0, 1],), expected=2.0), atol=1e-4)


def test_decimals_beyond_any_exponent_are_compared_too():
    assert not same_output("9" * 1_000_001, "-1", atol=0.5)
    assert same_output("9" * 1_000_001 + ".2", "9" * 1_000_001 + ".1", atol=0.5)
