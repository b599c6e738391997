"""Every way to name a model finds it, and asking a run's checkpoint gives what the run itself got."""

import json
import os
import shutil
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun

from infuser_core.config import shipped
from infuser_core.config.overlays import load
from infuser_core.errors import UsageError
from infuser_core.evaluation.anchors import anchor_folder
from infuser_core.evaluation.models import find_model, is_nano
from infuser_core.nano.lab import anchor_path
from infuser_core.results.lineage.outcome import describe_result
from infuser_core.schemas import BenchmarkResponse, Selection
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.tables import read_rows


def key_of(run: SmallRun, phase: str, iteration: int) -> str:
    (key,) = {e.key for e in Journal(run.root, run.name).latest() if (e.phase, e.iteration) == (phase, iteration)}
    return key


def test_the_nano_anchor_and_its_folder_are_the_same_model(tmp_path: Path):
    folder = anchor_path("hard")
    named, placed = find_model(tmp_path, "nano"), find_model(tmp_path, str(folder))
    assert named.digest == placed.digest and named.folder == placed.folder == folder
    assert is_nano(named) and is_nano(placed)


@pytest.mark.parametrize("name", ["nano", "nano-basic", "nano-wide"])
def test_a_nano_model_is_the_anchor_of_the_configuration_of_its_name(name: str, tmp_path: Path):
    anchor = load([shipped.path_of(name)]).anchor
    assert find_model(tmp_path, name).folder == anchor_folder(anchor)


def test_an_address_needs_no_files(tmp_path: Path):
    found = find_model(tmp_path, "openai:org/m@http://127.0.0.1:1/v1/")
    assert found.folder is None and not is_nano(found)
    assert (found.name, found.digest) == ("org/m", "openai:org/m@http://127.0.0.1:1/v1")


def test_a_name_of_nothing_lists_the_forms(tmp_path: Path):
    with pytest.raises(UsageError, match="--model gone: there is no such model") as caught:
        find_model(tmp_path, "gone")
    for form in ("nano", "RUN@selected", "owner/name", "openai:"):
        assert form in caught.value.hint


@pytest.mark.slow
def test_a_damaged_record_of_another_run_hides_neither_model_nor_result(small_run: SmallRun, tmp_path: Path):
    root, name = tmp_path / "store", small_run.name
    shutil.copytree(small_run.root, root, copy_function=os.link)
    foreign = root / "artifacts" / "update_solver" / "update_solver-0123456789abcdef"
    foreign.mkdir()
    (foreign / "artifact.json").write_text("{}")
    assert find_model(root, f"{name}@selected").digest == find_model(small_run.root, f"{name}@selected").digest
    here, there = (describe_result(each, name).replace(str(each), "") for each in (root, small_run.root))
    assert here == there


@pytest.mark.slow
def test_checkpoints_of_a_run_are_found_by_iteration_selection_and_key(small_run: SmallRun):
    root, name = small_run.root, small_run.name
    by_number = [find_model(root, f"{name}@{number}") for number in (0, 1, 2)]
    assert len({found.digest for found in by_number}) == 3
    key = key_of(small_run, "update_solver", 0)
    by_key = find_model(root, key)
    assert by_key.digest == by_number[1].digest and by_key.digest.startswith(key)
    assert by_key.config == by_number[1].config and by_key.config is not None
    store = small_run.store
    (selection,) = [ref for ref in store.refs() if ref.key == key_of(small_run, "select", -1)]
    chosen = store.rows(selection, "selections", Selection)[0].selected_iteration
    assert find_model(root, f"{name}@selected").digest == by_number[chosen].digest

    for wrong, message in {
        f"{name}@9": f"--model {name}@9: no such checkpoint",
        "update_solver-": "artifacts start with update_solver-",
        key_of(small_run, "rollout_dev", 0): "is no checkpoint",
    }.items():
        with pytest.raises(UsageError, match=message):
            find_model(root, wrong)


@pytest.mark.slow
def test_a_runs_checkpoint_answers_as_it_did_in_the_run(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    ended = launch(
        "eval", "--model", f"{small_run.name}@0", "--out", str(tmp_path / "out"), "--json", store=small_run.root
    )
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    run = json.loads(launch("result", small_run.name, "--json", store=small_run.root).out)
    assert found["benchmarks"]["exam"]["accuracy"] == pytest.approx(run["benchmarks"]["exam"]["anchor"])
    (entry,) = [
        e for e in Journal(small_run.root, small_run.name).latest() if (e.phase, e.iteration) == ("evaluate", 0)
    ]
    answered = Catalogue(small_run.root).input(entry.key, "responses")
    of_run = small_run.store.rows(answered, "responses", BenchmarkResponse)
    rows = read_rows(tmp_path / "out" / "responses.parquet", BenchmarkResponse)
    by_key = {(row.question_id, row.sample_index): row for row in rows}
    assert by_key == {(row.question_id, row.sample_index): row for row in of_run}
