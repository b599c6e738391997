"""Question sets from files: their columns, their mix, and problems in the document pool."""

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.problems import blank_rows, problem_rows
from infuser_core.config.recorded import recorded
from infuser_core.config.roles import ProblemSettings
from infuser_core.config.run import BenchmarkSettings
from infuser_core.config.sources import FileQuestions, MixPart, MixQuestions, NanoQuestions
from infuser_core.errors import DataWarning, DocumentError
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.evaluation.benchmarks.parts.question_sets import (
    content_of,
    is_seeded,
    load_questions,
    question_of,
    values_of,
)
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading, grading_of

ROW = {
    "question_id": "q1",
    "question_text": "What is 6 * 7?",
    "choices": ["41", "42", "43"],
    "ground_truth": "42",
    "field": "Mathematics",
    "subfield": "Arithmetic",
}
STRUCTURES = st.one_of(
    st.none(), st.booleans(), st.just(float("nan")), st.lists(st.integers(), min_size=2),
    st.dictionaries(st.text(), st.text()), st.just([{"role": "user", "content": "1 + 1?"}]),
)  # fmt: skip


def read(tmp_path: Path, rows: list[dict[str, Any]] | str, size: int | None = None, **columns: str):
    path = tmp_path / "set.json"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return load_questions(FileQuestions(type="file", path=str(path), size=size, columns=columns), seed=0)


def test_a_row_becomes_a_question(tmp_path: Path):
    (question,) = read(tmp_path, [ROW])
    assert (question.question_id, question.text, question.choices) == ("q1", "What is 6 * 7?", ["41", "42", "43"])
    assert (question.answer, question.verifier) == ("B", "choice")
    assert (question.domain, question.subdomain) == ("Mathematics", "Arithmetic")


def test_a_list_and_a_file_of_lines_say_the_same(tmp_path: Path):
    rows = [ROW, {**ROW, "question_id": "q2", "question_text": "And 5 * 5?", "ground_truth": "A"}]
    listed = read(tmp_path, rows)
    assert read(tmp_path, "\n".join(json.dumps(row) for row in rows)) == listed
    assert [question.answer for question in listed] == ["B", "A"]


@pytest.mark.parametrize(
    ("truth", "choices", "letter"),
    [
        ("42", ["41", "42"], "B"),
        ("B", ["41", "42"], "B"),
        (1, ["41", "42"], "B"),
        (42, ["41", "42"], "B"),
        # A choice's text comes first: choices may themselves be letters or small numbers.
        ("A", ["B", "A"], "B"),
        (1, ["1", "0"], "A"),
        ("42", {"A": "41", "B": "42"}, "B"),
        ("42", {"B": "42", "A": "41"}, "B"),
        ("B", {"A": "41", "B": "42", "C": None}, "B"),
        (["42"], ["41", "42"], "B"),
        ("B", {"text": ["41", "42"], "label": ["A", "B"]}, "B"),
        ("2", {"text": ["41", "42"], "label": ["1", "2"]}, "B"),
        (1, {"text": ["41", "42"], "label": ["1", "2"]}, "A"),
        ("b", [{"label": "b", "text": "42"}, {"label": "a", "text": "41"}], "B"),
        # CSV has no lists: a cell holds one as JSON, or as Python prints it.
        ("42", '["41", "42"]', "B"),
        ("42", "['41', '42']", "B"),
        ("B", '{"A": "41", "B": "42"}', "B"),
    ],
)
def test_the_answer_is_found_as_text_then_as_letter_or_index(tmp_path: Path, truth: Any, choices: Any, letter: str):
    (question,) = read(tmp_path, [{**ROW, "choices": choices, "ground_truth": truth}])
    assert question.answer == letter


@pytest.mark.parametrize(("source", "verifier"), [("aime", "integer"), ("math500", "math"), (None, "math")])
def test_a_question_without_choices_is_answered_freely(tmp_path: Path, source: str | None, verifier: str):
    row = {**ROW, "choices": None, "ground_truth": 42, "data_source": source}
    (question,) = read(tmp_path, [row])
    assert (question.answer, question.choices, question.verifier) == ("42", [], verifier)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{**ROW, "ground_truth": "44"}], "{path}, row 1: the answer '44' is none of the choices"),
        ([ROW, {**ROW, "question_id": ""}], "{path}, row 2: no question_id"),
        ([{**ROW, "question_text": None}], "{path}, row 1: no question_text"),
        ([{key: ROW[key] for key in ROW if key != "ground_truth"}], "{path}, row 1: no ground_truth"),
        ([{**ROW, "choices": "41|42"}], "{path}, row 1: field choices: expected choices as a list"),
        # An array of numpy as pandas prints it: Python joins texts without commas.
        ([{**ROW, "choices": "['41' '42']", "ground_truth": "A"}], "{path}, row 1: 1 choices"),
        (
            [{**ROW, "choices": None, "ground_truth": "['41' '42']"}],
            "{path}, row 1: field ground_truth: expected an answer",
        ),
        ([{**ROW, "choices": "", "ground_truth": '["42"]'}], "{path}, row 1: field ground_truth: expected an answer"),
        ([{**ROW, "choices": ["41", "42", None]}], "{path}, row 1: field choices: expected choices as a list"),
        ([{**ROW, "choices": [["41"], ["42"]]}], "{path}, row 1: field choices: expected choices as a list"),
        ([{**ROW, "choices": {"A": "41", "C": "42"}}], "{path}, row 1: field choices: expected choices as a list"),
        ([{**ROW, "choices": [{"label": "A", "text": "42"}] * 2}], "{path}, row 1: field choices: expected choices"),
        (
            [{**ROW, "choices": {"text": ["2", "42"], "label": ["1", "2"]}, "ground_truth": "2"}],
            "{path}, row 1: the answer '2' is a choice and the label of another",
        ),
        ([{**ROW, "ground_truth": 3}], "{path}, row 1: the answer 3 is none of the choices"),
        ([{**ROW, "choices": list("abcdefghijk")}], "{path}, row 1: 11 choices"),
        ([ROW, ROW], "{path}: question_id q1 twice"),
        ([], "{path} holds no rows"),
        ("[1, 2]", "{path}, row 1 is no object"),
        ("{not json", "{path} is not JSON: "),
    ],
)
def test_a_wrong_file_is_refused_with_its_row(tmp_path: Path, rows: Any, message: str):
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, rows)
    assert caught.value.message.startswith(message.format(path=tmp_path / "set.json"))
    assert caught.value.hint


@pytest.mark.parametrize("field", ["question_id", "question_text", "ground_truth"])
@given(value=STRUCTURES)
def test_a_value_of_another_type_is_never_printed_into_a_question(field: str, value: Any):
    with pytest.raises(DocumentError, match=f"(no|field) {field}"):
        question_of({**ROW, "choices": None, field: value}, "row 1")


def test_a_structure_that_a_table_fills_with_null_is_no_choices(tmp_path: Path):
    (question,) = read(tmp_path, [{**ROW, "choices": {"A": None, "B": None}}])
    assert (question.choices, question.answer) == ([], "42")


def test_a_row_without_a_column_names_those_that_are_there():
    with pytest.raises(DocumentError, match="no question_id; there are prompt, answer"):
        question_of({"prompt": "1 + 1?", "answer": "2"}, "row 1")


CHAT = [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "It is \\boxed{5}."}]
VERL = {
    "data_source": "somebody/sums", "prompt": CHAT[:1], "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "5"}, "extra_info": {"index": 7, "split": "train"},
}  # fmt: skip
VERL_COLUMNS = {"question_text": "prompt", "ground_truth": "reward_model.ground_truth"}
SOLUTION = "Two and three are added. " * 8 + "So the sum is \\boxed{5}."
LAYOUTS = {
    "verl": (VERL, VERL_COLUMNS),
    "verl, the index as identifier": (VERL, {**VERL_COLUMNS, "question_id": "extra_info.index"}),
    "TRL, a plain prompt": (
        {"prompt": "What is 2 + 3?", "answer": "5"}, {"question_text": "prompt", "ground_truth": "answer"},
    ),
    "TRL, a prompt of turns": (
        {"prompt": CHAT[:1], "completion": CHAT[1:]}, {"question_text": "prompt", "ground_truth": "completion"},
    ),
    "TRL, a worked solution": (
        {"problem": "What is 2 + 3?", "solution": SOLUTION}, {"question_text": "problem", "ground_truth": "solution"},
    ),
    "TRL, a chat": ({"messages": CHAT}, {"question_text": "messages", "ground_truth": "messages"}),
    "a chat with reasoning": (
        {"messages": [*CHAT[:1], {"role": "assistant", "content": "5</think>The answer is 5. <think>\\boxed{6}?"}]},
        {"question_text": "messages", "ground_truth": "messages"},
    ),
    "turns by speaker": (
        {"conversations": [{"from": "human", "value": "What is 2 + 3?"}, {"from": "gpt", "value": "The answer is 5."}]},
        {"question_text": "conversations.0.value", "ground_truth": "conversations.1.value"},
    ),
    "turns of parts": (
        {"messages": [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in CHAT]},
        {"question_text": "messages", "ground_truth": "messages"},
    ),
    "TTRL": (
        {"prompt": "What is 2 + 3?", "answer": "5", "source": "sums", "id": "7"},
        {"question_text": "prompt", "ground_truth": "answer", "question_id": "id"},
    ),
    "a list of one answer in a text": (
        {"prompt": CHAT[:1], "reward_model": {"ground_truth": '["5"]'}}, VERL_COLUMNS,
    ),
    "DeepScaleR": (
        {"problem": "What is 2 + 3?", "answer": "5", "solution": SOLUTION},
        {"question_text": "problem", "ground_truth": "answer"},
    ),
    "a solution with its answer behind a mark": (
        {"question": "What is 2 + 3?", "answer": "2 + 3 = <<2+3=5>>5 apples.\n#### 5"},
        {"question_text": "question", "ground_truth": "answer"},
    ),
    "a solution with a framed answer": (
        {"problem": "What is 2 + 3?", "solution": "We add: \\fbox{5}."},
        {"question_text": "problem", "ground_truth": "solution"},
    ),
    "a list of one solution": (
        {"problem": "What is 2 + 3?", "solutions": ["We add: \\boxed{5}."]},
        {"question_text": "problem", "ground_truth": "solutions"},
    ),
    "a place in a list": (
        {"turns": ["What is 2 + 3?", "5"]}, {"question_text": "turns.0", "ground_truth": "turns.-1"},
    ),
    "a column with a dot in its name": (
        {"q.text": "What is 2 + 3?", "q.key": 5}, {"question_text": "q.text", "ground_truth": "q.key"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("suffix", [".json", ".parquet", ".csv"])
def test_columns_read_the_layouts_of_other_trainers(tmp_path: Path, name: str, suffix: str):
    row, columns = LAYOUTS[name]
    path = tmp_path / f"set{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    elif suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerow({key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()})
    else:
        path.write_text(json.dumps([row]))
    (question,) = load_questions(FileQuestions(type="file", path=str(path), columns=columns), seed=0)
    identifier = "7" if "question_id" in columns else "1"
    assert (question.question_id, question.text, question.answer) == (identifier, "What is 2 + 3?", "5")
    assert (question.verifier, question.choices) == ("math", [])


@pytest.mark.parametrize("answer", ['["a"]', '["a", "b"]', '[{"a": 1}]'])
def test_a_list_in_a_mapped_text_stays_a_text_where_it_is_one(answer: str):
    row = {"prompt": f"{answer}[0]?", "output": answer, "verifier": "literal"}
    question = question_of(row, "row 1", name="1", columns={"question_text": "prompt", "ground_truth": "output"})
    assert (question.text, question.answer, question.verifier) == (f"{answer}[0]?", answer, "literal")
    columns = {"question_text": "list", "ground_truth": "output"}
    listed = question_of({"list": answer, "output": "1"}, "row 1", name="1", columns=columns)
    assert listed.text == answer


@pytest.mark.parametrize(
    ("row", "columns", "message"),
    [
        (
            VERL, {**VERL_COLUMNS, "ground_truth": "reward_model.answer"},
            "{path}, row 1: no reward_model.answer; there are data_source, prompt, ability, "
            "reward_model.style, reward_model.ground_truth, extra_info.index, extra_info.split",
        ),
        ({"messages": CHAT * 2}, {"question_text": "messages"}, "{path}, row 1: messages has 2 turns of the user"),
        ({"messages": CHAT[1:]}, {"question_text": "messages"}, "{path}, row 1: messages has 0 turns of the user"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "image": "x.png"}]}]},
            {"question_text": "messages"}, "{path}, row 1: field content: expected a turn of text alone",
        ),
        (
            {"problem": "1 + 1?", "solution": SOLUTION.replace("\\boxed{5}", "five")},
            {"question_text": "problem", "ground_truth": "solution"}, "{path}, row 1: field solution: expected an",
        ),
        (
            {"problem": "1 + 1?", "answer": {"value": 2}},
            {"question_text": "problem", "ground_truth": "answer"}, "{path}, row 1: field ground_truth: expected a",
        ),
        (
            {"problem": "1 + 1?", "answer": None},
            {"question_text": "problem", "ground_truth": "answer"}, "{path}, row 1: no ground_truth",
        ),
        (VERL, {**VERL_COLUMNS, "question": "prompt"}, "{path}, row 1: columns.question: no field of a question"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, row: Any, columns: dict[str, str], message: str):
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, [row], **columns)
    assert caught.value.message.startswith(message.format(path=tmp_path / "set.json"))
    assert caught.value.hint


def test_one_of_several_turns_is_named_by_its_place(tmp_path: Path):
    row = {"messages": [*CHAT, {"role": "user", "content": "And 2 + 2?"}], "answer": "4"}
    (question,) = read(tmp_path, [row], question_text="messages.-1.content", ground_truth="answer")
    assert question.text == "And 2 + 2?"


def test_system_turns_are_left_out_and_counted(tmp_path: Path):
    row = {**VERL, "prompt": [{"role": "system", "content": "Use a box."}, *CHAT[:1]]}
    with pytest.warns(DataWarning, match="system turns of 1 rows are left out"):
        questions = read(tmp_path, [VERL, row], **VERL_COLUMNS)
    assert [question.text for question in questions] == ["What is 2 + 3?"] * 2


def test_a_refusal_proposes_the_columns(tmp_path: Path):
    with pytest.raises(DocumentError, match="no question_text") as caught:
        read(tmp_path, [VERL])
    assert "columns: {question_text: prompt, ground_truth: reward_model.ground_truth}" in str(caught.value.hint)


def test_columns_at_their_default_change_no_setting():
    plain = FileQuestions(type="file", path="x.json")
    assert values_of(plain) == {"type": "file", "size": None}
    assert "columns" not in recorded(BenchmarkSettings(name="released"))
    mapped = FileQuestions(type="file", path="x.json", columns=VERL_COLUMNS)
    assert values_of(mapped) == {"type": "file", "size": None, "columns": VERL_COLUMNS}


def test_a_benchmark_reads_other_columns_too(tmp_path: Path):
    path = tmp_path / "aime.json"
    path.write_text(json.dumps([{"prompt": "What is 20 + 22?", "key": {"value": "42"}}]))
    columns = {"problem": "prompt", "answer": "key.value"}
    with pytest.warns(DataWarning, match="1 questions, expected 30"):
        (question,) = find_benchmark("aime2024")(BenchmarkSettings(name="aime2024", path=str(path), columns=columns))
    assert (question.text, question.answer) == ("What is 20 + 22?", "42")
    columns = {"question_text": "prompt", "ground_truth": "key.value"}
    settings = BenchmarkSettings(name="released", path=str(path), columns=columns)
    assert [question.answer for question in find_benchmark("released")(settings)] == ["42"]


@pytest.mark.parametrize("others", [["four", 5], '["four", 5]'])
def test_a_row_may_have_further_right_answers(tmp_path: Path, others: Any):
    row = {"question": "2 + 2?", "gold": {"value": "4", "aliases": others}}
    columns = {"question_text": "question", "ground_truth": "gold.value", "also_right": "gold.aliases"}
    (question,) = read(tmp_path, [row], **columns)
    assert (question.answer, grading_of(question).also_right) == ("4", ("four", "5"))
    (question,) = read(tmp_path, [{**ROW, "also_right": ["42", 0]}])
    assert (question.answer, grading_of(question).also_right) == ("B", ("A",))
    with pytest.raises(DocumentError, match="the answer 'four' is none of the choices"):
        read(tmp_path, [{**ROW, "also_right": ["four"]}])
    with pytest.raises(DocumentError, match="field also_right: expected a list"):
        read(tmp_path, [{**ROW, "also_right": "four"}])


def test_another_number_of_rows_than_expected_is_refused(tmp_path: Path):
    assert len(read(tmp_path, [ROW], size=1)) == 1
    with pytest.raises(DocumentError, match="has 1 questions, expected 2"):
        read(tmp_path, [ROW], size=2)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(DocumentError, match="cannot read"):
        load_questions(FileQuestions(type="file", path=str(tmp_path), size=None), seed=0)


@pytest.mark.parametrize(
    ("source", "verifier"), [("bbeh", "bbeh"), ("BBEH-open", "bbeh"), ("aime2025", "integer"), ("hmmt", "math")]
)
def test_the_data_source_of_a_published_row_chooses_its_verifier(tmp_path: Path, source: str, verifier: str):
    (question,) = read(tmp_path, [{**ROW, "choices": [], "data_source": source}])
    assert question.verifier == verifier


@pytest.mark.parametrize(
    ("labels", "route"),
    [
        ({"data_source": "mmlu_pro"}, "mmlu_pro"),
        ({"data_source": "MMLU-Pro"}, "mmlu_pro"),
        ({"data_source": "supergpqa", "domain": "Science"}, "supergpqa"),
        ({"domain": "OlympiadBench_Physics", "field": ""}, "olympiadbench_phys"),
        ({"data_source": "somebody"}, ""),
    ],
)
def test_a_published_row_says_which_benchmark_it_is_from(tmp_path: Path, labels: dict[str, str], route: str):
    (question,) = read(tmp_path, [{**ROW, **labels}])
    assert grading_of(question).route == route


def test_published_gpqa_rows_are_shuffled_by_their_identifier(tmp_path: Path):
    row = {**ROW, "question_id": "q0", "choices": ["right", "b", "c", "d"], "ground_truth": "right"}
    (question,) = read(tmp_path, [{**row, "data_source": "gpqa_diamond"}])
    assert (question.choices, question.answer) == (["b", "c", "d", "right"], "D")
    (question,) = read(tmp_path, [{**row, "data_source": "mmlu_pro"}])
    assert (question.choices, question.answer) == (["right", "b", "c", "d"], "A")


def test_published_olympiad_rows_keep_unit_tolerance_and_lists(tmp_path: Path):
    row = {**ROW, "choices": [], "domain": "OlympiadBench_Math", "ground_truth": "1; (2, 3)", "answer_type": "Tuple"}
    (question,) = read(tmp_path, [{**row, "unit": "$m$", "error": ".1", "field": ""}])
    assert question.answer == "1, (2, 3)"
    assert grading_of(question) == Grading(
        route="olympiadbench_math", answer_type="tuple", multiple=True, tolerance=".1", unit="m"
    )


def test_the_content_of_a_source_is_that_of_its_file_wherever_it_lies(tmp_path: Path):
    def content(name: str, rows: list[dict[str, Any]]) -> str:
        (tmp_path / name).write_text(json.dumps(rows))
        return content_of(FileQuestions(type="file", path=str(tmp_path / name)))

    assert content("one.json", [ROW]) == content("two.json", [ROW]) != content("one.json", [ROW, ROW])
    assert content_of(NanoQuestions(split="dev", size=9)) != content_of(NanoQuestions(split="dev", size=8))
    with pytest.raises(DocumentError, match="cannot read"):
        content_of(FileQuestions(type="file", path=str(tmp_path / "none.json")))


def test_micro_world_sets_are_disjoint_and_follow_the_seed():
    sets = {
        split: load_questions(NanoQuestions(split=split, size=96), seed=42) for split in ("dev", "validation", "test")
    }
    texts = [question.text for questions in sets.values() for question in questions]
    assert len(set(texts)) == len(texts) == 3 * 96
    assert load_questions(NanoQuestions(split="dev", size=96), seed=42) == sets["dev"]
    assert load_questions(NanoQuestions(split="dev", size=96), seed=43) != sets["dev"]


# A mixed set joins question sources: as many of each as wanted, drawn by a seed of its own, every identifier once


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


# Problems with known answers become rows of the pool: distinct ones in turn, shuffled, none of the dev set's


def problem(name: str, *, text: str = "", domain: str = "") -> Question:
    return Question(
        question_id=name, text=text or f"Find {name}.", choices=[], answer="7", verifier="integer", domain=domain,
        subdomain="", 
    )  # fmt: skip


def settings(count: int, **changes: object) -> ProblemSettings:
    return ProblemSettings(source=NanoQuestions(split="dev", size=1), count=count, **changes)


def test_the_papers_mixture_has_1210_putnam_and_8790_aime_rows():
    problems = [problem(f"putnam-{n}") for n in range(121)] + [problem(f"aime-{n}") for n in range(918)]
    made = problem_rows(0, problems, settings(10_000), [])
    counts = Counter(row.question_id for row in made.problems)
    assert Counter(name.split("-")[0] for name in counts.elements()) == {"putnam": 1_210, "aime": 8_790}
    assert {counts[f"putnam-{n}"] for n in range(121)} == {10}
    assert [counts[f"aime-{n}"] for n in (0, 527, 528, 917)] == [10, 10, 9, 9]


@given(unique=st.integers(1, 12), count=st.integers(1, 60), seed=st.integers(0, 5))
def test_rows_are_as_many_as_wanted_and_spread_evenly(unique: int, count: int, seed: int):
    made = problem_rows(1, [problem(f"q{n}") for n in range(unique)], settings(count, seed=seed), [])
    counts = Counter(row.question_id for row in made.problems)
    assert len(made.documents) == count == sum(counts.values())
    assert len({row.document_id for row in made.documents}) == count
    assert max(counts.values()) - min([*counts.values(), *([0] if count < unique else [])]) <= 1
    assert [row.document_id for row in made.documents] == [row.document_id for row in made.problems]


def test_the_seed_shuffles_and_decides_nothing_else():
    problems = [problem(f"q{n}") for n in range(5)]
    one, same, other = (problem_rows(0, problems, settings(40, seed=seed), []).documents for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(one, key=str) == sorted(other, key=str)


def test_a_problem_of_the_dev_set_is_no_row_and_says_why():
    problems = [problem("q1"), problem("q2", text="What is  6 * 7?")]
    dev = [problem("dev-3", text="what is 6 * 7?")]
    made = problem_rows(0, problems, settings(4), dev)
    assert {row.question_id for row in made.problems} == {"q1"}
    (row,) = made.skipped
    assert (row.document_id, row.keep, row.reason) == ("p0-q2", False, "in the dev set: dev-3")
    kept = problem_rows(0, problems, settings(4, exclude_dev=False), dev)
    assert {row.question_id for row in kept.problems} == {"q1", "q2"} and kept.skipped == []


def test_a_problem_that_stands_twice_in_the_list_counts_once():
    twice = [problem("q1"), problem("q2"), replace(problem("q1"), question_id="q3")]
    made = problem_rows(0, twice, settings(6), [])
    assert Counter(row.question_id for row in made.problems) == {"q1": 3, "q2": 3}
    assert [row.reason for row in made.skipped] == ["the same as q1"]


def test_a_row_says_what_it_is_from_and_what_it_is_for():
    made = problem_rows(2, [problem("q1", domain="Algebra")], settings(1, route="free_form"), [])
    (document,) = made.documents
    assert (document.document_id, document.source_id, document.prompt_type) == ("p2-q1-0", "problems-2", "free_form")
    assert document.text == "Find q1.\n\nAnswer: 7" and document.domain == "Algebra"
    (labelled,) = problem_rows(2, [problem("q1", domain="Algebra")], settings(1, domain="Math"), []).documents
    assert labelled.domain == "Math"


def test_the_answer_to_choices_is_shown_with_its_text():
    chosen = replace(problem("q1"), choices=["6", "7"], answer="B")
    (document,) = problem_rows(0, [chosen], settings(1), []).documents
    assert document.text.endswith("A) 6\nB) 7\n\nAnswer: B) 7")


@pytest.mark.parametrize("count", [1, 3])
def test_blank_rows_have_a_route_and_no_text(count: int):
    made = blank_rows({"challenge": count})
    assert len({row.document_id for row in made}) == count
    assert {(row.text, row.prompt_type, row.num_tokens) for row in made} == {("", "challenge", 0)}
