"""Parts of artifacts that are cut short, deleted or without their record are noticed, and the run can be completed."""

import pytest
from fault_tools import EVALUATION, artifact, own_copy, store_without
from launcher import Launcher, SmallRun

from infuser_core.store.store import MANIFEST, Store

pytestmark = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["truncated", "empty", "deleted"])
def test_a_damaged_part_is_named(launch: Launcher, small_run: SmallRun, tmp_path, harm: str):
    store = store_without(small_run, tmp_path / "store", *EVALUATION)
    for folder in (store / "artifacts" / "update_solver").iterdir():
        path = own_copy(folder, "model.safetensors")
        if harm == "deleted":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: 1000 if harm == "truncated" else 0])
    ended = launch(*small_run.arguments, store=store)
    assert ended.code == 3
    message, hint = ended.err.splitlines()
    assert "model.safetensors" in message and "update_solver" in message
    assert "infuser doctor --repair" in hint

    assert launch("repair", store=store).code == 0
    assert launch("resume", store=store).code == 0
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


@pytest.mark.slow
def test_an_artifact_without_its_record_is_put_aside_and_computed_again(
    launch: Launcher, small_run: SmallRun, tmp_path
):
    store = store_without(small_run, tmp_path / "store", "select")
    folder = artifact(store, "judge")
    (folder / MANIFEST).unlink()
    done = launch(*small_run.arguments, store=store)
    assert done.code == 0, done.err
    assert [path.name.rpartition(".")[0] for path in (store / "damaged").iterdir()] == [folder.name]
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


@pytest.mark.slow
def test_a_torn_record_is_named(launch: Launcher, small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store", "select")
    record = own_copy(artifact(store, "judge"), MANIFEST)
    record.write_text(record.read_text()[:200])
    ended = launch(*small_run.arguments, store=store)
    assert ended.code == 3 and f"the commit record {record} is damaged" in ended.err.splitlines()[0]
    assert launch("repair", store=store).code == 0
    assert launch("resume", store=store).code == 0
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


def test_pieces_of_a_complete_artifact_are_swept_and_others_kept(tmp_path, small_run: SmallRun):
    store = Store(store_without(small_run, tmp_path / "store"))
    done = store.root / ".partial" / artifact(store.root, "judge").name
    open_still = store.root / ".partial" / "judge-0123456789abcdef"
    for folder in (done, open_still):
        folder.mkdir(parents=True)
        (folder / "piece").write_text("kept")
    store.sweep()
    assert not done.exists() and (open_still / "piece").read_text() == "kept"
