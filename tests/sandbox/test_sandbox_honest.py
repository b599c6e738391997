"""Programs that do what they are asked, in all the ways that programs do."""

import sandbox_corpus
from contained import needs_sandbox
from sandbox_corpus import ProgramJudgement

pytestmark = needs_sandbox


def test_the_collection_is_large_and_every_program_says_what_it_shows():
    assert len(sandbox_corpus.HONEST) >= 40
    assert [path.name for path in sandbox_corpus.HONEST if not path.read_text().startswith("# Shows: ")] == []


def test_no_honest_program_is_rejected():
    found = sandbox_corpus.judged(sandbox_corpus.honest())
    assert {
        name: each for name, each in found.items() if not isinstance(each, ProgramJudgement) or not each.passed
    } == {}


def test_an_honest_program_with_one_wrong_expectation_is_wrong():
    # Shows that the acceptances above are not for free.
    entries = {entry.name: entry for entry in sandbox_corpus.honest()}
    swapped = [
        sandbox_corpus.Entry(name=name, source=entries[name].source, tests=entries[other].tests)
        for name, other in (
            ("plain_function", "many_calls"),
            ("fast_input", "flushed_output"),
            ("text_output", "threads"),
        )
    ]
    assert [each.passed for each in sandbox_corpus.judged(swapped).values()] == [False] * 3
