"""Every kind of trouble gets one line with its remedy; what killed processes leave behind is a note, not damage."""

import json
import shutil
from pathlib import Path

import pytest
from care_tools import HARMS, WEIGHTS, examined, forget, made_up
from launcher import Launcher

from infuser_core.errors import UsageError
from infuser_core.store.doctor import examine
from infuser_core.store.gc import plan_gc
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST, Recipe
from infuser_core.store.store import Store

KINDS = {
    "flipped bit": "file_changed",
    "truncated": "file_truncated",
    "deleted": "file_missing",
    "lost record": "record_missing",
    "garbled record": "record_unreadable",
    "lost artifact": "artifact_missing",
    "linked file": "file_linked",
    "linked artifact": "record_unreadable",
}


@pytest.mark.parametrize("harm", HARMS)
def test_every_harm_is_named_with_its_remedy(tmp_path: Path, harm: str):
    folder = made_up(tmp_path, "run", 2, selected=2).checkpoint(1)
    HARMS[harm](folder, WEIGHTS)
    (problem,) = [each for each in examine(tmp_path).damage if each.key == folder.name]
    assert problem.kind == KINDS[harm] and problem.runs == ("run",)
    assert folder.name in problem.what and "infuser doctor run --repair" in problem.remedy


def test_the_command_ends_with_3_for_damage_and_prints_one_line_per_problem(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    healthy = launch("doctor", store=tmp_path)
    assert (healthy.code, healthy.err) == (0, "") and healthy.out.startswith("store: healthy (8 artifacts, ")
    assert launch("doctor", "run", store=tmp_path).out.startswith("run run: healthy (8 artifacts, ")
    HARMS["flipped bit"](run.checkpoint(1), WEIGHTS)
    HARMS["truncated"](run.checkpoint(2), WEIGHTS)
    ended = launch("doctor", store=tmp_path)
    lines = ended.out.splitlines()
    assert ended.code == 3 and [line.startswith("damaged") for line in lines] == [True, True, False]
    assert "2 damaged" in lines[-1]
    found = json.loads(launch("doctor", "--json", store=tmp_path).out)
    assert not found["healthy"] and [each["kind"] for each in found["damage"]] == ["file_truncated", "file_changed"]


def test_a_commit_record_that_is_json_but_wrong_is_found(tmp_path: Path):
    path = made_up(tmp_path, "run", 1, selected=1).checkpoint(1) / MANIFEST
    record = json.loads(path.read_text())
    del record["seal"]  # as in records of older versions
    record["recipe"]["iteration"] = 7
    path.write_text(json.dumps(record))
    assert "record_unreadable" in {problem.kind for problem in examine(tmp_path).damage}


def test_inputs_that_are_gone_are_named(tmp_path: Path):
    HARMS["lost artifact"](made_up(tmp_path, "run", 2, selected=2).folder("generate_questions", 0), "")
    kinds = [problem.kind for problem in examine(tmp_path).damage]
    assert kinds.count("input_missing") == 2 and kinds.count("artifact_missing") == 1


def test_what_an_unfinished_run_lacks_is_work_to_do_and_no_damage(tmp_path: Path):
    HARMS["lost artifact"](made_up(tmp_path, "run", 2).checkpoint(2), "")
    (note,) = examine(tmp_path).problems
    assert (note.damage, note.kind, note.remedy) == (
        False,
        "artifact_missing",
        "`infuser resume run` computes it again",
    )


def test_an_artifact_of_an_evaluation_that_is_gone_is_damage(tmp_path: Path):
    examined(made_up(tmp_path, "run", 1, selected=1), 1)
    assert examine(tmp_path).damage == []
    shutil.rmtree(next((tmp_path / "artifacts" / "respond").iterdir()))
    (problem,) = examine(tmp_path).damage
    assert problem.kind == "artifact_missing" and "evaluation exam holds respond-" in problem.what
    assert "`infuser eval`" in problem.remedy and examine(tmp_path, "run").damage == []


def test_leftovers_of_dead_processes_are_notes_that_name_their_owner(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    key = Journal(tmp_path, "run").latest()[-1].key
    for folder in (f".staging/{key}.0", f".partial/{key}"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "half").write_text("half")
    (tmp_path / "runs" / "run" / "run.1.tmp").write_text("{")
    found = examine(tmp_path, "run")
    assert found.damage == [] and [note.kind for note in found.notes] == ["draft", "pieces", "staging"]
    staging = found.notes[-1].what
    assert "left by process " in staging and "which is gone" in staging and "4 B" in staging
    assert all("infuser gc --apply" in note.remedy for note in found.notes)


def test_a_workspace_of_a_living_process_is_said_to_be_in_use(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    store, recipe = Store(tmp_path), Recipe(phase="judge", version=1, config={}, seed=0)
    with store.exclusive(recipe), store.workspace(recipe):
        (note,) = examine(tmp_path).notes
    assert note.kind == "staging" and "works on it" in note.remedy


def test_a_torn_journal_line_is_a_note(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    path = Journal(tmp_path, "run").path
    path.write_bytes(path.read_bytes() + b'{"attempt": 2, "pha')
    found = examine(tmp_path)
    assert found.damage == [] and [note.kind for note in found.notes] == ["journal_torn"]
    assert "journal.jsonl: line " in found.notes[0].what


@pytest.mark.parametrize("content", [None, "{"])
def test_a_lost_record_of_a_run_is_damage_and_says_how_to_resume(tmp_path: Path, content: str | None):
    made_up(tmp_path, "run", 1, selected=1)
    path = tmp_path / "runs" / "run" / "run.json"
    path.unlink() if content is None else path.write_text(content)
    (problem,) = examine(tmp_path).damage
    assert problem.kind == "record_lost" and "--name run" in problem.remedy
    with pytest.raises(UsageError, match="no run named other"):
        examine(tmp_path, "other")


def test_artifacts_of_no_run_are_checked_too(tmp_path: Path):
    run = made_up(tmp_path, "run", 1, selected=1)
    folder = run.checkpoint(1)
    forget(run)
    assert examine(tmp_path).damage == [] and len(plan_gc(tmp_path).items) == 5
    HARMS["flipped bit"](folder, WEIGHTS)
    (problem,) = examine(tmp_path).damage
    assert problem.remedy.startswith("`infuser doctor --repair`")
