"""A model labels questions, synonyms become one, failures keep their reason, and no word of a question gets out."""

import json
from collections.abc import Callable
from dataclasses import asdict

import pytest
from corpus_rows import question
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.find.queries import Librarian
from corpus.find.topics import WINDOW, Taxonomy, extract_topics, merge_labels
from infuser_core.engines.fake import ScriptedChat
from infuser_core.errors import DocumentError
from infuser_core.prompts.templates import load_template
from infuser_core.protocols import Messages
from infuser_core.schemas import Topic

PROMPTS = {name: load_template(name, profile="paper") for name in ("assign_topic", "merge_topics")}
NOTHING = json.dumps({"groups": []})


def label(domain: str, subdomain: str) -> str:
    return f"Thinking aloud. {json.dumps({'domain': domain, 'subdomain': subdomain})}"


def librarian(
    labels: Callable[[str], str],
    merges: Callable[[str], str] = lambda prompt: NOTHING,
) -> tuple[Librarian, list[str]]:
    """Replies by the prompt's text; the prompts that were seen."""
    seen: list[str] = []

    def reply(messages: Messages) -> str:
        prompt = messages[-1]["content"]
        seen.append(prompt)
        return merges(prompt) if "Entries:" in prompt else labels(prompt)

    return Librarian(model=ScriptedChat(reply=reply), prompts=PROMPTS), seen


def pairs(taxonomy: Taxonomy) -> list[tuple[str, str, int]]:
    return [(topic.domain, topic.subdomain, topic.num_questions) for topic in taxonomy.topics]


def by_text(table: dict[str, str]) -> Callable[[str], str]:
    return lambda prompt: next(reply for text, reply in table.items() if text in prompt)


def test_questions_are_labelled_and_spellings_become_one():
    table = {
        "lens": label("Physics", "Optics"),
        "mirror": label("physics", "optics"),
        "prism": label("Physics", "Optics"),
        "gene": label("Biology", "Genetics"),
    }
    found = extract_topics([question(text, text) for text in table], librarian(by_text(table))[0])
    assert pairs(found) == [("Biology", "Genetics", 1), ("Physics", "Optics", 3)]
    assert [(m.level, m.label, m.into, m.num_questions, m.decided_by) for m in found.merges] == [
        ("domain", "physics", "Physics", 1, "rule"),
        ("subdomain", "optics", "Optics", 1, "rule"),
    ]
    assert [row.decided_by for row in found.assignments] == ["rule-based: scripted"] * 4


def test_synonyms_become_one_when_the_model_says_so():
    table = {
        "a1": label("Medicine", "Heart Disease"),
        "b2": label("Medicine", "Cardiology"),
        "c3": label("Law", "Contracts"),
    }

    def merges(prompt: str) -> str:
        if "Cardiology" in prompt:
            assert 'specialisations within "Medicine"' in prompt
            return json.dumps({"groups": [{"keep": "Cardiology", "merge": ["Heart Disease"]}]})
        return NOTHING

    found = extract_topics([question(text, text) for text in table], librarian(by_text(table), merges)[0])
    assert pairs(found) == [("Law", "Contracts", 1), ("Medicine", "Cardiology", 2)]
    (row,) = found.merges
    assert (row.within, row.label, row.into, row.decided_by) == (
        "Medicine",
        "Heart Disease",
        "Cardiology",
        "rule-based: scripted",
    )


def test_labels_of_the_data_set_are_kept_and_others_join_them():
    rows = [question("a", "lens", domain="Science", subdomain="Optics"), question("b", "mirror")]

    def merges(prompt: str) -> str:
        groups = [{"keep": "Natural Science", "merge": ["Science"]}]
        turned = [{"keep": "Science", "merge": ["Natural Science"]}]
        if "areas of study" in prompt:
            return json.dumps({"groups": turned if "must be kept" in prompt else groups})
        return NOTHING

    found = extract_topics(rows, librarian(lambda prompt: label("Natural Science", "Optics"), merges)[0])
    assert pairs(found) == [("Science", "Optics", 2)]
    assert [row.decided_by for row in found.assignments] == ["labels", "rule-based: scripted"]
    assert any("must be kept" in call.problem for call in found.calls)


def test_a_set_with_all_labels_asks_no_model():
    helper, seen = librarian(lambda prompt: "")
    rows = [
        question("a", "x", domain="Law", subdomain="Torts"),
        question("b", "y", domain="Biology", subdomain="Genes"),
        question("c", "z", domain=" Law ", subdomain="Torts"),
    ]
    assert pairs(extract_topics(rows, helper)) == [("Biology", "Genes", 1), ("Law", "Torts", 2)] and seen == []


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot say.", "no JSON object"),
        ('{"domain": "Physics"}', '"subdomain" is no text'),
        ('{"domain": "Physics", "subdomain": 7}', '"subdomain" is no text'),
        ('{"domain": "...", "subdomain": "Optics"}', '"domain" is no text'),
        (label("Physics", "one two three four five six seven"), "longer than 6 words"),
        (label("Physics", "x" * 61), "60 characters"),
        (label("Physics", "Lens of 7 cm"), "holds a number"),
        (label("Physics", "the thin glass lens"), "repeats words of the question"),
    ],
)
def test_a_question_that_cannot_be_labelled_keeps_its_reason(reply, reason):
    rows = [question("bad", "Where does the thin glass lens focus?"), *(question(f"q{n}", f"q{n}") for n in range(9))]
    helper, seen = librarian(lambda prompt: reply if "glass" in prompt else label("Law", "Torts"))
    found = extract_topics(rows, helper)
    bad = found.assignments[0]
    assert reason in bad.reason and (bad.domain, bad.subdomain) == ("", "")
    assert pairs(found) == [("Law", "Torts", 9)]
    asked = [prompt for prompt in seen if "glass" in prompt]
    assert len(asked) == 3 and "An earlier reply to this could not be used" in asked[1]


def test_a_second_reply_may_be_usable():
    helper, _ = librarian(lambda prompt: label("Law", "Torts") if "An earlier reply" in prompt else "sorry")
    found = extract_topics([question("a", "x")], helper)
    assert pairs(found) == [("Law", "Torts", 1)] and [
        call.attempt for call in found.calls if call.task == "assign"
    ] == [1, 2]


def test_too_many_failures_are_an_error_that_names_one():
    helper, _ = librarian(lambda prompt: "no")
    with pytest.raises(
        DocumentError, match=r"3 of 3 questions could not be labelled, e\.g\. 'q0': the reply has no JSON"
    ):
        extract_topics([question(f"q{n}", "x") for n in range(3)], helper)


@pytest.mark.parametrize(("domain", "subdomain"), [("", ""), ("", "Optics"), ("Physics", " ")])
def test_without_a_model_an_unlabelled_question_is_an_error(domain, subdomain):
    with pytest.raises(DocumentError, match="q-17"):
        extract_topics([question("q-17", "x", domain=domain, subdomain=subdomain)])


@settings(max_examples=20)
@given(st.lists(st.text(alphabet="abcdefgh ", min_size=12, max_size=40), min_size=1, max_size=6))
def test_no_word_of_a_question_leaves_the_stage(texts):
    """Even a model that answers with the question itself: what it says is checked, and replies are not kept."""
    marked = [
        question(f"id-{n}", f"SECRET{n} {text} SECRETS whose words are telling {text}") for n, text in enumerate(texts)
    ]
    marked += [question(f"more-{n}", f"SECRETS and plain words {n}") for n in range(10)]

    def echo(prompt: str) -> str:
        asked = prompt.partition("Question:")[2].partition("Reply with")[0].strip()
        return label("Science", asked) if "SECRET0" in prompt else label("Science", "Physics")

    found = extract_topics(marked, librarian(echo)[0])
    assert found.assignments[0].reason
    assert "SECRET" not in json.dumps(
        [asdict(row) for row in [*found.topics, *found.assignments, *found.merges, *found.calls]]
    )
    assert all(type(topic) is Topic for topic in found.topics)


def groups(*rows: tuple[str, list[str]]) -> str:
    return json.dumps({"groups": [{"keep": keep, "merge": merged} for keep, merged in rows]})


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (groups(("Cardiology", ["Hearts"])), "'Hearts' is not in the list"),
        (groups(("Cardiology", ["Cardiology"])), "used more than once"),
        (groups(("Cardiology", ["Torts"]), ("Torts", [])), "used more than once"),
        ('{"groups": [1]}', "no list of objects"),
        ('{"groups": [{"keep": 1, "merge": []}]}', "needs"),
        ('{"merge": []}', "no list of objects"),
    ],
)
def test_merges_outside_the_list_are_refused(reply, problem):
    chat = ScriptedChat(reply=lambda messages: reply)
    names, merges, calls = merge_labels({"Cardiology": 2, "Torts": 1}, Librarian(model=chat, prompts=PROMPTS))
    assert merges == [] and names == {"Cardiology": "Cardiology", "Torts": "Torts"}
    assert len(calls) == 3 and all(problem in call.problem for call in calls)


def test_synonyms_far_apart_in_a_long_list_meet():
    counts = {f"{letter}{n:03}x": 1 for letter in "az" for n in range(WINDOW)}

    def reply(messages: Messages) -> str:
        listed = {line[2:] for line in messages[-1]["content"].splitlines() if line.startswith("- ")}
        assert len(listed) <= WINDOW
        wanted = [("a000x", "z000x"), ("a001x", "a002x"), ("z000x", "z079x")]
        return groups(
            *[(keep, [other]) for keep, other in wanted[: 1 if "a000x" in listed else 3] if {keep, other} <= listed]
        )

    names, merges, _ = merge_labels(counts, Librarian(model=ScriptedChat(reply=reply), prompts=PROMPTS))
    assert names["z000x"] == names["z079x"] == "a000x"
    assert [row.label for row in merges].count("z000x") == 1


@given(
    st.dictionaries(st.text(alphabet="abAB -s", min_size=1, max_size=8), st.integers(1, 9), max_size=12),
    st.integers(0, 2**31),
)
def test_every_label_goes_to_one_that_stays_whatever_the_model_says(counts, seed):
    """The result is closed: no new label, and what stands for a label stands for itself."""
    import random

    rng = random.Random(seed)

    def reply(messages: Messages) -> str:
        listed = [line[2:] for line in messages[-1]["content"].splitlines() if line.startswith("- ")]
        rng.shuffle(listed)
        return groups((listed[0], listed[1 : rng.randrange(1, 4)]))

    fixed = frozenset(sorted(counts)[:2])
    names, _, _ = merge_labels(counts, Librarian(model=ScriptedChat(reply=reply), prompts=PROMPTS), fixed=fixed)
    assert {names[label] for label in fixed} == set(fixed)
    assert set(names) == set(counts) and set(names.values()) <= set(counts)
    assert all(names[kept] == kept for kept in names.values())
