"""`infuser mirror`: there and back, only what is new, only what is complete, and nothing that changed."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirror_tools import add, commit, content, make_store, thin

from infuser_core.errors import BusyRunError, UsageError
from infuser_core.mirror.inventory import is_safe
from infuser_core.mirror.pull import pull
from infuser_core.mirror.push import push
from infuser_core.mirror.status import status
from infuser_core.store import doctor, pruned, runs
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import MANIFEST, Outcome, Store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'mirror'}"


def test_what_was_pushed_and_pulled_is_equal_and_healthy(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    sent = push(tmp_path / "a", url, None)
    fetched = pull(tmp_path / "b", url, None)
    assert (sent.problems, fetched.problems) == ([], [])
    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert doctor.examine(tmp_path / "b", None).damage == []
    assert runs.Journal(tmp_path / "b", "first").is_finished()
    assert not (tmp_path / "b" / ".partial" / "mirror").exists()


def test_memory_is_a_mirror_too(tmp_path: Path):
    make_store(tmp_path / "a")
    push(tmp_path / "a", "memory://some/where", None)
    assert pull(tmp_path / "b", "memory://some/where", "first").problems == []
    assert runs.list_runs(tmp_path / "b") == ["first"]


def test_a_second_push_and_a_second_pull_copy_nothing(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    again = push(tmp_path / "a", url, None).to_json()
    assert (again["bytes"], again["details"]) == (0, [])
    pull(tmp_path / "b", url, None)
    assert pull(tmp_path / "b", url, None).to_json()["details"] == []


def test_only_what_is_new_is_pushed(tmp_path: Path, url: str):
    store = make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    ref = commit(store, "late")
    journal = runs.Journal(tmp_path / "a", "first")
    journal.start_attempt()
    add(journal, ref)
    journal.finish()
    told = push(tmp_path / "a", url, None).to_json()
    assert {entry["key"] for entry in told["details"]} == {ref.key, "first"}
    pull(tmp_path / "b", url, "first")
    assert (tmp_path / "b" / "runs/first/journal.jsonl").read_bytes() == journal.path.read_bytes()


def test_one_run_takes_what_it_was_made_from_and_nothing_else(tmp_path: Path, url: str):
    make_store(tmp_path / "a", run="first")
    make_store(tmp_path / "a", run="second")
    push(tmp_path / "a", url, "second")
    pull(tmp_path / "b", url, "second")
    assert runs.list_runs(tmp_path / "b") == ["second"]
    assert len(Store(tmp_path / "b").refs()) == 4
    assert doctor.examine(tmp_path / "b", "second").damage == []


def test_a_half_pushed_artifact_is_not_pulled_and_is_completed_by_the_next_push(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    record = next((tmp_path / "mirror").glob(f"artifacts/phase_2/*/{MANIFEST}"))
    record.unlink()
    (record.parent / "model.safetensors").write_bytes(b"phase")
    found = status(tmp_path / "a", url, None)
    assert (found.half, found.to_push) == (1, 1)
    broken = pull(tmp_path / "b", url, "first")
    assert any(record.parent.name in problem for problem in broken.problems)
    assert runs.list_runs(tmp_path / "b") == [] and not list((tmp_path / "b").glob("artifacts/phase_2/*"))
    assert push(tmp_path / "a", url, None).problems == []
    assert pull(tmp_path / "b", url, None).problems == []
    assert content(tmp_path / "b") == content(tmp_path / "a")


def test_a_file_that_changed_in_the_mirror_is_found_and_never_pulled(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    victim = next((tmp_path / "mirror").glob("artifacts/phase_1/*/model.safetensors"))
    changed = bytearray(victim.read_bytes())
    changed[7] ^= 1
    victim.write_bytes(changed)
    (problem,) = status(tmp_path / "a", url, None, check=True).problems
    assert victim.parent.name in problem and "model.safetensors" in problem
    fetched = pull(tmp_path / "b", url, None)
    assert len(fetched.problems) == 2  # the artifact, and the run that consists of it
    assert not list((tmp_path / "b").glob("artifacts/phase_1/*")) and runs.list_runs(tmp_path / "b") == []


def test_a_file_that_changed_in_the_store_is_never_pushed(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    victim = next((tmp_path / "a").glob("artifacts/phase_1/*/model.safetensors"))
    victim.write_bytes(b"rotten")
    sent = push(tmp_path / "a", url, None)
    assert len(sent.problems) == 2 and "changed since it was written" in sent.problems[0]
    assert not list((tmp_path / "mirror").glob(f"artifacts/phase_1/*/{MANIFEST}"))
    assert status(tmp_path / "a", url, None).runs[0].state == "only here"


def test_another_result_of_the_same_recipe_is_refused_by_both_sides(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    other = make_store(tmp_path / "b", run="second", artifacts=1)
    victim = next((tmp_path / "b").glob("artifacts/alone/*"))
    theirs = next((tmp_path / "mirror").glob("artifacts/alone/*"))
    # The same key with other bits: the recipes are equal, the files are not.
    same = Recipe(**json.loads((theirs / MANIFEST).read_text())["recipe"])
    with other.workspace(same) as workspace:
        (workspace / "model.safetensors").write_bytes(b"other")
        other.commit(same, workspace, Outcome(tables={}), seconds=0)
    assert any("another result" in problem for problem in push(tmp_path / "b", url, None).problems)
    assert any("another result" in problem for problem in pull(tmp_path / "b", url, None).problems)
    assert (victim.parent / theirs.name / "model.safetensors").read_bytes() == b"other"


def test_what_gc_removed_is_missing_in_the_copy_too_and_comes_when_it_is_back(tmp_path: Path, url: str):
    store = make_store(tmp_path / "a")
    (ref,) = [ref for ref in store.refs() if ref.kind == "phase_3"]
    whole = (store.folder(ref.kind, ref.key) / "model.safetensors").read_bytes()
    thin(store, ref, "model.safetensors")
    assert push(tmp_path / "a", url, None).problems == []
    assert pull(tmp_path / "b", url, None).problems == []
    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert doctor.examine(tmp_path / "b", None).damage == []
    folder = store.folder(ref.kind, ref.key)
    (folder / "model.safetensors").write_bytes(whole)
    (folder / pruned.FILE).unlink()
    assert push(tmp_path / "a", url, None).problems == []
    assert pull(tmp_path / "c", url, None).problems == []
    assert content(tmp_path / "c") == content(tmp_path / "a")


def test_what_gc_removed_stays_away_unless_asked_for(tmp_path: Path, url: str):
    store = make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    before = content(tmp_path / "a")
    (ref,) = [ref for ref in store.refs() if ref.kind == "phase_3"]
    thin(store, ref, "model.safetensors")
    assert push(tmp_path / "a", url, None).problems == []
    pull(tmp_path / "a", url, None)
    assert pruned.read(store.folder(ref.kind, ref.key))
    assert pull(tmp_path / "a", url, None, whole=True).problems == []
    assert content(tmp_path / "a") == before


def test_a_run_that_the_mirror_knows_better_is_pulled_and_not_overwritten(tmp_path: Path, url: str):
    store = make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    pull(tmp_path / "b", url, None)
    journal = runs.Journal(tmp_path / "a", "first")
    journal.start_attempt()
    add(journal, commit(store, "late"))
    push(tmp_path / "a", url, None)
    assert status(tmp_path / "b", url, "first").runs[0].state == "the mirror is newer"
    assert any("pull it first" in problem for problem in push(tmp_path / "b", url, None).problems)
    assert pull(tmp_path / "b", url, "first").problems == []
    assert status(tmp_path / "b", url, "first").runs[0].state == "same"


def test_two_different_runs_of_one_name_are_kept_apart(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    runs.create_run(tmp_path / "b", "first", {"seed": 2})
    (tmp_path / "b" / "artifacts").mkdir()
    for ended in (push(tmp_path / "b", url, "first"), pull(tmp_path / "b", url, "first")):
        assert any("different runs of this name" in problem for problem in ended.problems)
    assert runs.read_config(tmp_path / "b", "first") == {"seed": 2}


def test_a_run_at_work_is_not_pulled_over(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    with runs.holding(tmp_path / "a", "first"), pytest.raises(BusyRunError, match="first"):
        pull(tmp_path / "a", url, "first")


def test_unknown_runs_and_stores_are_named(tmp_path: Path, url: str):
    with pytest.raises(UsageError, match="no store at"):
        push(tmp_path / "nothing", url, None)
    make_store(tmp_path / "a")
    with pytest.raises(UsageError, match="no run named second"):
        push(tmp_path / "a", url, "second")
    with pytest.raises(UsageError, match="has no run second"):
        pull(tmp_path / "a", url, "second")


@given(st.lists(st.sampled_from(["..", "a", "b.c", ".", ""]), min_size=1, max_size=5).map("/".join))
def test_a_name_from_a_mirror_never_leaves_its_folder(name: str):
    if is_safe(name):
        folder = Path("/some/folder")
        assert (folder / name).resolve().is_relative_to(folder) and (folder / name) != folder


def test_a_mirror_that_names_files_outside_is_refused(tmp_path: Path, url: str):
    make_store(tmp_path / "a")
    push(tmp_path / "a", url, None)
    record = tmp_path / "mirror" / "records" / "first" / "record.json"
    value = json.loads(record.read_text())
    value["files"]["../../outside"] = value["files"]["run.json"]
    record.write_text(json.dumps(value))
    with pytest.raises(OSError, match="files outside its folder"):
        pull(tmp_path / "b", url, "first")
    assert not (tmp_path / "outside").exists()
