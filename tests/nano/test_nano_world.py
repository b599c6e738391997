"""The micro-world: splits share no operand pair, questions are answered by the sound method."""

import dataclasses
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.errors import ConfigError
from infuser_core.nano import lab, language
from infuser_core.nano.topics import LIMIT, NAMES, TOPICS, Fact, choices_of
from infuser_core.nano.world import TARGET, WORLD, WorldConfig, notes, pairs_of, questions

SPLITS = ("train", "dev", "validation", "test")
topics = st.sampled_from(TOPICS)


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    topic = draw(topics)
    a, b = draw(st.sampled_from(topic.operands))
    return Fact(topic=topic, name=draw(st.sampled_from(NAMES)), a=a, b=b)


def test_splits_divide_the_operand_pairs_of_every_topic():
    for topic in TOPICS:
        pairs = [pair for split in SPLITS for pair in pairs_of(split, topic)]
        assert sorted(pairs) == sorted(topic.operands)
        assert len(pairs) == len(set(pairs))


def test_textbook_notes_hold_train_pairs_on_different_topics():
    for note in notes(3, 200):
        assert len({fact.topic.name for fact in note.facts}) == 4
        assert all((fact.a, fact.b) in pairs_of("train", fact.topic) for fact in note.facts)


@pytest.mark.parametrize(
    ("split", "topics", "count"),
    [("dev", TARGET, 64), ("validation", TARGET, 128), ("test", TARGET, 400), ("test", WORLD.transfer, 400)],
)
def test_every_split_has_enough_distinct_questions(split, topics, count):
    asked = questions(split, topics, count, 0)
    assert len({question.text for question in asked}) == count
    assert {question.subdomain for question in asked} == set(topics)
    assert asked == questions(split, topics, count, 0)


def test_the_answer_is_the_letter_of_the_sound_result():
    for question in questions("test", TARGET + WORLD.transfer, 200, 1):
        chosen = question.choices["ABCD".index(question.answer)]
        assert int(chosen) == lab.sound_answer(question.text)
        assert str(lab.tempting_answer(question.text)) in question.choices
        assert lab.topic_of(question.text) == question.subdomain
        assert question.choices == sorted(question.choices, key=int) and len(set(question.choices)) == 4


@given(facts())
def test_a_question_is_read_back_to_its_fact(fact):
    assert language.parse_question(language.question_text(fact)) == fact


@given(facts(), st.integers(0, 2**32))
def test_both_methods_differ_and_are_offered(fact, seed):
    choices = choices_of(fact, count=4, rng=Random(seed))
    assert fact.sound != fact.tempting
    assert {fact.sound, fact.tempting} <= set(choices)
    assert all(0 < choice < LIMIT for choice in choices)


def test_the_oracle_knows_no_answer_to_other_texts():
    assert lab.topic_of("What is the capital of Mira?") is None
    assert lab.sound_answer("The block Mira has 7 grams in 0 litres. What density?") is None
    assert lab.sound_answer("The gauge Mira reads 4 and then 7. What mean?") is None


def test_the_label_tells_sound_keys_from_others():
    for question in questions("test", TARGET, 20, 2):
        assert lab.label(question).key == "sound"
        wrong = dataclasses.replace(question, answer="ABCD"["ABCD".index(question.answer) - 1])
        assert lab.label(wrong).key == "unsound"
        assert lab.label(dataclasses.replace(question, text="Why?")).key == "unknown"


def test_a_world_larger_than_its_topics_is_refused():
    with pytest.raises(ConfigError, match="num_topics is 99"):
        WorldConfig(num_topics=99)
    with pytest.raises(ConfigError, match="no topic 'alchemy'"):
        questions("dev", ["alchemy"], 1, 0)
