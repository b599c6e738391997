"""Few-shot examples, system turn and chat template of an evaluation: what reaches the model, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from launcher import Launcher
from test_endpoint_replies import said, server

from infuser_core.engines.hf.renderer import Renderer
from infuser_core.errors import ConfigError, DocumentError, UsageError
from infuser_core.evaluation.answering import render_messages
from infuser_core.evaluation.dumps import read_dump
from infuser_core.evaluation.models import find_model
from infuser_core.evaluation.plan import ask_settings, identity_of, make_plan
from infuser_core.evaluation.settings import EvaluationSettings, phrasing_of, replace_settings
from infuser_core.nano.lab import anchor_path

EXAM = [{"question_id": "1", "question_text": "What is 2 + 3?", "ground_truth": "5"}]


SHOWN = [
    {"question_text": "What is 1 + 1?", "ground_truth": "2", "reply": r"One and one: \boxed{2}"},
    {"question_text": "Which is even?", "choices": ["3", "4"], "ground_truth": "B"},
]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def settings(**values: Any) -> EvaluationSettings:
    return replace_settings(EvaluationSettings(), values, where="test")


def test_a_server_gets_system_turn_examples_and_question_in_this_order(launch: Launcher, tmp_path: Path):
    exam, shown = written(tmp_path / "exam.jsonl", EXAM), written(tmp_path / "shown.jsonl", SHOWN)
    got: list[Any] = []

    def script(body: Any, times: Any) -> Any:
        got.append(body["messages"])
        return said(r"\boxed{5}", finish="stop")

    with server(script) as (url, _):
        command = ["eval", "--model", f"openai:tiny@{url}", "--benchmarks", f"exam={exam}", "--samples", "1"]
        command += ["--examples", str(shown), "--shots", "2", "--system", "Be brief.", "--json"]
        command += ["--out", str(tmp_path / "out"), "--inspect"]
        ended = launch(*command, store=tmp_path / "store", NO_PROXY="127.0.0.1")
    assert ended.code == 0, ended.err
    (turns,) = got
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert turns[0]["content"] == "Be brief."
    assert "1 + 1" in turns[1]["content"] and turns[2]["content"] == SHOWN[0]["reply"]
    assert "B) 4" in turns[3]["content"] and turns[4]["content"] == r"\boxed{B}"
    assert "2 + 3" in turns[5]["content"]
    found = json.loads(ended.out)
    assert found["benchmarks"]["exam"]["shots"] == 2 and found["benchmarks"]["exam"]["accuracy"] == 1
    assert {"exam: 2 worked examples", "system turn: Be brief."} <= set(found["notes"])
    board = tmp_path / "out" / "leaderboard.json"
    assert json.loads(board.read_text())["n-shot"] == {"exam": 2}
    log = tmp_path / "out" / "inspect" / "exam.json"
    (sample,) = json.loads(log.read_text())["samples"]
    assert sample["scores"]["infuser"]["value"] == "C" and sample["target"] == "5"
    questions, responses = read_dump(log, "math500")
    assert [question.answer for question in questions] == ["5"]
    assert [row.response for row in responses] == [r"\boxed{5}"]


def test_an_empty_system_turn_is_none(tmp_path: Path):
    phrasing = phrasing_of(settings(system=""), "exam")
    (question,) = plan_of(tmp_path, settings()).questions["exam"]
    assert [turn["role"] for turn in render_messages(question, prompts="paper", phrasing=phrasing)] == ["user"]
    assert len(render_messages(question, prompts="paper")) == 2


def plan_of(tmp_path: Path, chosen: EvaluationSettings, model: str = "nano") -> Any:
    exam = written(tmp_path / "exam.jsonl", EXAM)
    options = {"data": None, "samples": 1, "limit": None, "warn": print}
    return make_plan(find_model(tmp_path, model), chosen, f"exam={exam}", **options)  # type: ignore[arg-type]


def test_every_setting_of_a_prompt_is_part_of_the_identity(tmp_path: Path):
    shown = written(tmp_path / "shown.jsonl", SHOWN)
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[-1]['content'] }}")
    every = [{}, {"system": ""}, {"system": "x"}, {"chat": "off"}, {"chat": str(template)}]
    every += [{"examples": str(shown)}, {"examples": str(shown), "shots": 1}]
    plan = plan_of(tmp_path, settings())
    chosen = [settings(**values) for values in every]
    known = [json.dumps(identity_of("m", one, plan, engine="e", limit=None), sort_keys=True) for one in chosen]
    asked = [ask_settings(one, plan.sheets[0], plan.questions["exam"]).prompt_digest for one in chosen]
    assert len(set(known)) == len(set(asked)) == len(every)
    nothing = settings(examples=str(shown), shots=0)
    assert ask_settings(nothing, plan.sheets[0], plan.questions["exam"]).prompt_digest == asked[0]


def test_a_chat_template_is_the_models_own_none_or_a_file():
    renderer = Renderer(anchor_path("basic"))
    turns = [{"role": "user", "content": "which"}]
    own = renderer.decode(renderer.render(turns))
    assert "User:" in renderer.decode(renderer.render(turns, "off"))
    assert renderer.decode(renderer.render(turns, "{{ messages[0]['content'] }}!")).strip() == "which!"
    assert own == renderer.decode(renderer.render(turns, "own"))


@pytest.mark.parametrize(
    ("values", "error", "said_"),
    [
        ({"shots": 2}, ConfigError, "there are no examples"),
        ({"chat": "nowhere.jinja"}, ConfigError, "No such file"),
        ({"examples": "nowhere.jsonl"}, ConfigError, "no file nowhere.jsonl"),
    ],
)
def test_what_cannot_be_is_found_before_a_model_is_loaded(
    tmp_path: Path, values: dict[str, Any], error: type[Exception], said_: str
):
    with pytest.raises(error, match=said_):
        plan_of(tmp_path, settings(**values))


def test_broken_templates_few_examples_and_leaks_are_refused(tmp_path: Path):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}")
    with pytest.raises(ConfigError, match="line 1"):
        plan_of(tmp_path, settings(chat=str(template)))
    with pytest.raises(ConfigError, match="has 2 examples"):
        plan_of(tmp_path, settings(examples=str(written(tmp_path / "two.jsonl", SHOWN)), shots=3))
    with pytest.raises(ConfigError, match="example 1 is question 1 of exam"):
        plan_of(tmp_path, settings(examples=str(written(tmp_path / "leak.jsonl", EXAM))))
    copies = [{**row, "question_text": f"  {row['question_text'].upper()}"} for row in EXAM]
    with pytest.raises(ConfigError, match="example 1 is question 1 of exam"):
        plan_of(tmp_path, settings(examples=str(written(tmp_path / "copies.jsonl", copies))))
    with pytest.raises(DocumentError, match="no ground_truth"):
        plan_of(tmp_path, settings(examples=str(written(tmp_path / "bad.jsonl", [{"question_text": "?"}]))))
    with pytest.raises(UsageError, match="behind an address"):
        plan_of(tmp_path, settings(chat="off"), "openai:m@http://h/v1")


def test_a_folder_has_the_examples_of_every_benchmark(tmp_path: Path):
    folder = tmp_path / "shots"
    folder.mkdir()
    written(folder / "exam.jsonl", SHOWN[:1])
    assert len(phrasing_of(settings(examples=str(folder)), "exam").examples) == 1
    with pytest.raises(ConfigError, match=r"other\.jsonl"):
        phrasing_of(settings(examples=str(folder)), "other")
