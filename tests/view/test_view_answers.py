"""Evaluations of any model in `infuser view`: their list, and each response beside its verdicts under every preset."""

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from launcher import Launcher

from infuser_core.results.view.app import application


@pytest.fixture(scope="module")
def store(launch: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("answers") / "store"
    asked = launch("eval", "--model", "nano", "--benchmarks", "nano_target", "--limit", "12", store=store)
    assert asked.code == 0, asked.err
    (name,) = (path.name for path in (store / "evaluations").iterdir())
    assert launch("eval", "rescore", name, store=store).code == 0
    return store


@pytest.fixture
def guest(store: Path) -> TestClient:
    client = TestClient(application(store, "a-token"), base_url="http://127.0.0.1:8000")
    assert client.get("/?token=a-token").status_code == 200
    return client


def test_every_response_stands_beside_its_verdicts_under_every_preset(guest: TestClient):
    listed = guest.get("/evaluations").text
    (page,) = set(re.findall(r'href="(/evaluations/[^"?]+)"', listed))
    assert "nano_target</a>" in listed and "-rescored" not in listed
    answers = guest.get(page).text
    assert answers.count("\nA) ") == answers.count("\nD) ") == 12
    assert answers.count("<details") == answers.count("<h3>Response 0</h3>") == 12
    assert re.findall(r"<tr><td>([a-z-]+)</td>", answers) == ["official", "paper", "phrase", "strict-last"] * 12
    right, wrong = (
        guest.get(f"{page}?verdict={word}").text.count("<details") for word in ("always right", "never right")
    )
    assert right + wrong == 12 and guest.get(f"{page}?verdict=presets disagree").text.count("<details") == 0
    assert guest.get(f"{page}?search=no such words").text.count("<details") == 0


def test_an_evaluation_that_is_not_there_is_said(guest: TestClient):
    answer = guest.get("/evaluations/nobody")
    assert answer.status_code == 404 and "there is no such evaluation" in answer.text


def test_a_damaged_result_is_named_in_the_list(guest: TestClient, store: Path):
    (results,) = store.glob("evaluations/*[!d]/results.json")
    whole = results.read_text()
    try:
        results.write_text(whole[:20])
        assert "results.json: " in guest.get("/evaluations").text
    finally:
        results.write_text(whole)
    assert "results.json: " not in guest.get("/evaluations").text
