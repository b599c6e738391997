"""Every kind of trouble gets one line with its remedy; what killed processes leave behind is a note, not damage."""

import json
from pathlib import Path

import pytest
from care_tools import HARMS, WEIGHTS, health, made_up
from launcher import Launcher

from infuser_core.errors import UsageError
from infuser_core.store import catalogue
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.gc import plan
from infuser_core.store.recipe import Recipe
from infuser_core.store.runs import Journal
from infuser_core.store.store import MANIFEST, Store

KINDS = {
    "flipped bit": "file_changed",
    "truncated": "file_truncated",
    "deleted": "file_missing",
    "lost record": "record_missing",
    "garbled record": "record_unreadable",
    "lost artifact": "artifact_missing",
}


def test_a_sound_store_is_healthy(launch: Launcher, tmp_path: Path):
    made_up(tmp_path, "run", 2, selected=2)
    ended = launch("doctor", store=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("store: healthy (8 artifacts, ")
    assert launch("doctor", "run", store=tmp_path).out.startswith("run run: healthy (8 artifacts, ")


@pytest.mark.parametrize("harm", HARMS)
def test_every_harm_is_named_with_its_remedy(tmp_path: Path, harm: str):
    run = made_up(tmp_path, "run", 2, selected=2)
    folder = run.checkpoint(1)
    HARMS[harm](folder, WEIGHTS)
    (problem,) = [each for each in health(tmp_path).damage if each.key == folder.name]
    assert problem.kind == KINDS[harm]
    assert folder.name in problem.what and problem.runs == ("run",)
    assert "infuser repair run" in problem.remedy


def test_the_command_ends_with_3_and_one_line_per_problem(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    HARMS["flipped bit"](run.checkpoint(1), WEIGHTS)
    HARMS["truncated"](run.checkpoint(2), WEIGHTS)
    ended = launch("doctor", store=tmp_path)
    assert ended.code == 3
    lines = ended.out.splitlines()
    assert [line.startswith("damaged") for line in lines] == [True, True, False]
    assert "2 damaged" in lines[-1]
    found = json.loads(launch("doctor", "--json", store=tmp_path).out)
    assert not found["healthy"] and [each["kind"] for each in found["damage"]] == ["file_truncated", "file_changed"]


def test_a_commit_record_that_is_json_but_wrong_is_found(tmp_path: Path):
    run = made_up(tmp_path, "run", 1, selected=1)
    path = run.checkpoint(1) / MANIFEST
    record = json.loads(path.read_text())
    del record["seal"]  # as in records of older versions
    record["recipe"]["iteration"] = 7
    path.write_text(json.dumps(record))
    kinds = {problem.kind for problem in health(tmp_path).damage}
    assert "record_wrong" in kinds


def test_inputs_that_are_gone_are_named(tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    gone = run.folder("generate_questions", 0)
    HARMS["lost artifact"](gone, "")
    kinds = [problem.kind for problem in health(tmp_path).damage]
    assert kinds.count("input_missing") == 2 and kinds.count("artifact_missing") == 1


def test_what_an_unfinished_run_lacks_is_work_to_do_and_no_damage(tmp_path: Path):
    run = made_up(tmp_path, "run", 2)
    HARMS["lost artifact"](run.checkpoint(2), "")
    found = health(tmp_path)
    assert found.damage == []
    assert [(note.kind, note.remedy) for note in found.notes] == [
        ("artifact_missing", "`infuser resume run` computes it again")
    ]


def test_leftovers_of_dead_processes_are_notes_that_name_their_owner(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    key = Journal(tmp_path, "run").latest()[-1].key
    for folder in (f".staging/{key}.0", f".partial/{key}"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "half").write_text("half")
    (tmp_path / "runs" / "run" / "run.1.tmp").write_text("{")
    found = health(tmp_path, "run")
    assert found.damage == []
    assert {note.kind for note in found.notes} == {"staging", "pieces", "draft"}
    staging = next(note for note in found.notes if note.kind == "staging")
    assert "left by process " in staging.what and "which is gone" in staging.what and "4 B" in staging.what
    assert all("infuser gc --apply" in note.remedy for note in found.notes)


def test_a_workspace_of_a_living_process_is_said_to_be_in_use(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    store, recipe = Store(tmp_path), Recipe(phase="judge", version=1, config={}, seed=0)
    with store.exclusive(recipe), store.workspace(recipe):
        (note,) = health(tmp_path).notes
    assert note.kind == "staging" and "works on it" in note.remedy


def test_torn_journal_lines_are_notes(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    path = Journal(tmp_path, "run").path
    path.write_bytes(path.read_bytes() + b'{"attempt": 2, "pha\n[]\n')
    found = health(tmp_path)
    assert found.damage == [] and [note.kind for note in found.notes] == ["journal_torn", "journal_torn"]
    assert "journal.jsonl: line " in found.notes[0].what


@pytest.mark.parametrize(("content", "kind"), [(None, "run_record"), ("{", "run_record")])
def test_a_lost_record_of_a_run_is_damage_and_says_how_to_go_on(tmp_path: Path, content: str | None, kind: str):
    made_up(tmp_path, "run", 1, selected=1)
    path = tmp_path / "runs" / "run" / "run.json"
    path.unlink() if content is None else path.write_text(content)
    (problem,) = health(tmp_path).damage
    assert problem.kind == kind and "--name run" in problem.remedy


def test_an_index_that_says_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(catalogue, "WORTH_KEEPING", 1)
    made_up(tmp_path, "run", 2, selected=2)
    Catalogue(tmp_path)
    path = tmp_path / catalogue.FILE
    text = path.read_text()
    assert health(tmp_path).problems == []
    path.write_text(text.replace('"rows":{"facts":1}', '"rows":{"facts":2}', 1))
    assert [problem.kind for problem in health(tmp_path).damage] == ["index_wrong"]
    path.write_text(text + "1\tjudge-00")
    assert [note.kind for note in health(tmp_path).notes] == ["index_torn"]


def test_artifacts_of_no_run_are_checked_too(tmp_path: Path):
    run = made_up(tmp_path, "run", 1, selected=1)
    folder = run.checkpoint(1)
    for path in (tmp_path / "runs" / "run").iterdir():
        path.unlink()
    assert health(tmp_path).damage == []
    assert len(plan(tmp_path).items) == 5
    HARMS["flipped bit"](folder, WEIGHTS)
    (problem,) = health(tmp_path).damage
    assert problem.remedy.startswith("`infuser repair`")


def test_an_unknown_run_is_named(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    with pytest.raises(UsageError, match="no run named other"):
        health(tmp_path, "other")
