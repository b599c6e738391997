"""Answers under different settings never mix, and whoever tries is told both values."""

import json
from pathlib import Path

import pytest
from launcher import Launcher

BASE = ["eval", "--model", "nano", "--benchmarks", "nano_target", "--limit", "4"]


def complaint(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 2 and lines[0].startswith("infuser: ") and lines[1].startswith("  hint: "), text
    return lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--seed", "43"], "seed is 42, asked 43"),
        (["--samples", "2"], "benchmarks.nano_target.samples is 1, asked 2"),
        (["--max-tokens", "20"], "benchmarks.nano_target.max_tokens is 24, asked 20"),
        (["--model", "nano-basic"], "model is '"),
    ],
)
def test_a_folder_refuses_other_settings(launch: Launcher, tmp_path: Path, changed: list[str], message: str):
    out = tmp_path / "out"
    first = launch(*BASE, "--out", str(out), store=tmp_path / "store")
    assert first.code == 0, first.err
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert before
    refused = launch(*BASE, *changed, "--out", str(out), store=tmp_path / "store")
    assert refused.code == 2
    assert message in complaint(refused.err)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_every_combination_has_a_record_of_its_own(launch: Launcher, tmp_path: Path):
    for arguments in (BASE, [*BASE, "--seed", "43"], [*BASE, "--preset", "strict-last"]):
        ended = launch(*arguments, store=tmp_path)
        assert ended.code == 0, ended.err
    # A preset says how answers are scored, not how they are made.
    assert len(list((tmp_path / "evaluations").iterdir())) == 2


@pytest.mark.slow
def test_the_limit_and_the_seed_stand_in_the_results(launch: Launcher, tmp_path: Path):
    ended = launch(*BASE, "--json", store=tmp_path)
    found = json.loads(ended.out)
    assert ended.err == ""
    assert found["limit"] == 4 and found["seed"] == 42
    assert found["notes"] == ["nano_target: limited to 4 of 400 questions, stratified by domain, seed 42"]
    assert found["sampling"] == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    (folder,) = (tmp_path / "evaluations").iterdir()
    assert json.loads((folder / "results.json").read_text()) == found
    names = {"results.md", "results.csv", "results.parquet", "results.json", "leaderboard.json", "questions.parquet"}
    assert names <= {path.name for path in folder.iterdir()}


WRONG_USE = {
    "no model of that name": (["--model", "nobody"], "--model nobody: there is no such model"),
    "unknown benchmark": (["--model", "nano", "--benchmarks", "gsm"], "no benchmark 'gsm'"),
    "unknown preset": (["--model", "nano", "--preset", "loose"], "options: preset = 'loose'"),
    "missing file": (["--model", "nano", "--benchmarks", "exam=none.json"], "cannot read none.json"),
    "twice": (["--model", "nano", "--benchmarks", "nano_target,nano_target"], "--benchmarks names nano_target twice"),
    "missing settings": (["--model", "nano", "--config", "none.yaml"], "cannot read none.yaml"),
    "no endpoint": (["--model", "openai:m"], "openai:m: no endpoint"),
    "a password in the address": (["--model", "openai:m@http://me:secret@h/v1"], "openai:m@http://...@h/v1: no end"),
    "no checkpoint of the run": (["--model", "walk@3"], "--model walk@3: there is no such model"),
}


@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use_is_exit_2_with_a_message_and_a_hint(launch: Launcher, tmp_path: Path, case: str):
    arguments, message = WRONG_USE[case]
    ended = launch("eval", *arguments, store=tmp_path)
    found = complaint(ended.err)
    assert message in found and "secret" not in ended.err
    assert ended.code == (3 if case == "missing file" else 2), ended
    assert not list(tmp_path.glob("evaluations/*"))


def test_a_folder_of_something_else_is_left_alone(launch: Launcher, tmp_path: Path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.tex").write_text("mine")
    ended = launch(*BASE, "--out", str(out), store=tmp_path / "store")
    assert ended.code == 2 and "holds something else: chapter.tex" in complaint(ended.err)
    assert sorted(path.name for path in out.iterdir()) == ["chapter.tex"]
