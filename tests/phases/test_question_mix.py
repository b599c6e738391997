"""A mixed set joins question sources: as many of each as wanted, drawn by a seed of its own, every identifier once."""

import json
from pathlib import Path
from typing import Any

import pytest

from infuser_core.config.sources import FileQuestions, MixPart, MixQuestions, NanoQuestions
from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, is_seeded, load_questions, values_of


def exam(path: Path, names: list[str], **extra: Any) -> FileQuestions:
    rows = [{"question_id": name, "question_text": f"Find {name}.", "ground_truth": "42", **extra} for name in names]
    path.write_text(json.dumps(rows))
    return FileQuestions(type="file", path=str(path))


def mix(*parts: MixPart) -> MixQuestions:
    return MixQuestions(type="mix", parts=list(parts))


def names(source: MixQuestions, seed: int = 0) -> list[str]:
    return [question.question_id for question in load_questions(source, seed=seed)]


def test_parts_follow_one_another_each_with_its_verifier(tmp_path: Path):
    putnam, aime = exam(tmp_path / "a.json", ["p"]), exam(tmp_path / "b.json", ["a"], data_source="aime")
    science = NanoQuestions(split="dev", size=2)
    found = load_questions(mix(MixPart(source=science), MixPart(source=aime), MixPart(source=putnam)), seed=0)
    assert [question.verifier for question in found] == ["choice", "choice", "integer", "math"]


def test_an_identifier_of_two_parts_gets_the_later_parts_number(tmp_path: Path):
    one, other = exam(tmp_path / "a.json", ["q1", "q2"]), exam(tmp_path / "b.json", ["q2", "q3"])
    assert names(mix(MixPart(source=one), MixPart(source=other))) == ["q1", "q2", "1-q2", "q3"]


def test_a_part_is_drawn_by_its_seed_and_keeps_its_order(tmp_path: Path):
    every = [f"q{n:02d}" for n in range(40)]
    source = exam(tmp_path / "a.json", every)
    one, same, other = (names(mix(MixPart(source=source, count=10, seed=seed)), seed=run) for run, seed in
                        ((0, 1), (9, 1), (0, 2)))  # fmt: skip
    assert one == same != other
    assert one == sorted(one) and len(set(one)) == 10 and set(one) <= {*every}


def test_more_than_a_part_has_is_refused(tmp_path: Path):
    with pytest.raises(DocumentError, match="part 0 of a mixed set has 1 questions, and its `count` is 2"):
        names(mix(MixPart(source=exam(tmp_path / "a.json", ["q"]), count=2)))


def test_files_of_a_mix_enter_by_content_and_not_by_place(tmp_path: Path):
    here, there = (
        mix(MixPart(source=exam(tmp_path / "a.json", ["q"]))),
        mix(MixPart(source=exam(tmp_path / "b.json", ["q"]))),
    )
    assert (values_of(here), content_of(here)) == (values_of(there), content_of(there))
    assert str(tmp_path) not in json.dumps(values_of(here))
    assert content_of(here) != content_of(mix(MixPart(source=exam(tmp_path / "c.json", ["r"]))))
    assert values_of(here) != values_of(mix(MixPart(source=here.parts[0].source, count=1)))


def test_the_runs_seed_enters_where_a_part_is_of_the_micro_world(tmp_path: Path):
    files = MixPart(source=exam(tmp_path / "a.json", ["q"]))
    assert not is_seeded(mix(files))
    assert is_seeded(mix(files, MixPart(source=NanoQuestions(split="dev", size=1))))
