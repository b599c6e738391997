"""The folder is the registry: whatever file lies in it is a verifier that keeps the promises of all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_cases import CORRECT, NO_ANSWER, question

from infuser_core import plugins
from infuser_core.errors import ConfigError
from infuser_core.schemas import Verdict
from infuser_core.verifiers import bbeh, choice, exact, integer
from infuser_core.verifiers.parts.extract import PRESETS

TEXTUAL = (choice, exact, integer, bbeh)
"""Verifiers that compare text in this process, so that any response can be tried on them."""


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", plugins.VERIFIERS.names())
def test_every_verifier_says_when_there_is_no_answer(name: str, preset: str):
    verifier = plugins.verifier(name)
    for silent in ("", "no box", "no closed \\boxed{"):
        finding = verifier.check(silent, question("1", verifier=name), preset=preset)
        assert (finding.verdict, finding.extracted) == (NO_ANSWER, None)
        assert finding.reason


@pytest.mark.parametrize("name", plugins.VERIFIERS.names())
def test_every_verifier_refuses_an_unknown_preset(name: str):
    for response in ("no box", r"\boxed{1}"):
        with pytest.raises(ConfigError, match=r"'lucky'.*paper, official, strict-last"):
            plugins.verifier(name).check(response, question("1", verifier=name), preset="lucky")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("verifier", TEXTUAL)
def test_the_reference_in_a_box_is_right(verifier: plugins.Verifier, preset: str):
    answer = "A" if verifier is choice else "7"
    assert verifier.check(rf"so \boxed{{{answer}}}", question(answer), preset=preset).verdict == CORRECT


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
