"""`infuser eval` of a model behind an address: resumed after it broke down, scored, compared, and silent on the key."""

import json
from pathlib import Path

import pytest
from launcher import Launcher
from test_endpoint_replies import SECRET, refused, said, server

from infuser_core.engines.endpoint import KEY
from infuser_core.nano import world

QUESTIONS = world.draw_questions("test", world.TARGET, 6, 0)


@pytest.fixture
def exam(tmp_path: Path) -> Path:
    rows = [
        {"question_id": q.question_id, "question_text": q.text, "choices": q.choices, "ground_truth": q.answer}
        for q in QUESTIONS
    ]
    (tmp_path / "exam.json").write_text(json.dumps(rows))
    return tmp_path / "exam.json"


def test_an_examination_goes_on_where_the_server_left_it(launch: Launcher, exam: Path, tmp_path: Path):
    broken = [True]
    asked: list[str] = []

    def script(body, times):
        text = body["messages"][-1]["content"]
        place = next(number for number, q in enumerate(QUESTIONS) if q.text in text)
        if broken[0] and place == 4:
            return refused(400, f"refused, {SECRET}")
        asked.append(f"{place}/{body['seed']}")
        return said(f"\\boxed{{{QUESTIONS[place].answer}}}" if place < 3 else "no idea", finish="stop")

    with server(script) as (url, _):
        command = ["eval", "--model", f"openai:tiny@{url}", "--benchmarks", f"exam={exam}", "--samples", "2"]
        command += ["--concurrency", "1", "--out", str(tmp_path / "out")]
        hidden = {KEY: SECRET, "NO_PROXY": "127.0.0.1"}
        stopped = launch(*command, store=tmp_path / "store", **hidden)
        assert stopped.code == 3
        first, second = stopped.err.splitlines()
        assert first.startswith("infuser: tiny@") and "HTTP 400: refused, ***" in first and second.startswith("  hint")
        broken[0] = False
        ended = launch(*command, "--json", store=tmp_path / "store", **hidden)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert sorted(asked) == sorted(set(asked)) and len(asked) == 12, "no reply was asked for twice"
    found = json.loads(ended.out)
    assert found["benchmarks"]["exam"]["accuracy"] == 0.5 and found["benchmarks"]["exam"]["answered"] == 0.5
    assert found["benchmarks"]["exam"]["mean_response_tokens"] == pytest.approx((3 * 9 + 3 * 7) / 6, abs=0.01)
    everything = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert SECRET.encode() not in everything
    assert SECRET not in stopped.err + stopped.out + ended.out
