"""Digests of files: read ahead, remembered until a file changes, and compared before rows are used."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from care_tools import HARMS, WEIGHTS, artifact_of, copy_run, flip
from fault_tools import own_copy
from launcher import Finished, Launcher, SmallRun

from infuser_core.engines.training import checkpoint as files
from infuser_core.engines.training.optimizer import named_moments
from infuser_core.evaluation import anchors
from infuser_core.store import verify
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import Recipe, artifact_folder
from infuser_core.store.store import Outcome, Store
from infuser_core.store.verify import REMEMBERED
from infuser_core.system import sealed


@pytest.fixture(scope="module")
def store(launch: Launcher, small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose last checkpoint was read once, some time after it was written."""
    store = copy_run(small_run, tmp_path_factory.mktemp("remembered") / "store")
    # Another test's hard link would change an inode.
    own_copy(weights(store).parent, WEIGHTS)
    time.sleep(2.1)
    assert export(launch, store).code == 0
    return store


def export(launch: Launcher, store: Path, *options: str) -> Finished:
    out = store.with_name(f"out-{time.monotonic_ns()}")
    return launch(*options, "export", "small", "--iteration", "2", "--out", str(out), store=store)


def weights(store: Path) -> Path:
    return artifact_of(store, "small", "update_solver", 1) / WEIGHTS


def remembered(store: Path) -> list[object]:
    """Facts of the weights: the other files share their bytes with stores of other tests, which change their times."""
    return sealed.read(store / REMEMBERED)["files"][weights(store).relative_to(store).as_posix()]


def test_large_files_alone_are_remembered(store: Path):
    files = json.loads((store / REMEMBERED).read_text())["files"]
    assert weights(store).relative_to(store).as_posix() in files
    assert min((store / name).stat().st_size for name in files) >= 1 << 20


def test_damage_to_the_memory_changes_no_answer(launch: Launcher, store: Path):
    text, facts = (store / REMEMBERED).read_text(), remembered(store)
    for damaged in ("", "{", "[]", text.replace('"seal": "', '"seal": "0')):
        (store / REMEMBERED).write_text(damaged)
        assert export(launch, store).code == 0
        assert remembered(store) == facts


def test_a_changed_file_is_read_again_although_it_was_remembered(launch: Launcher, store: Path):
    path = weights(store)
    flip(path.parent, WEIGHTS)
    ended = export(launch, store)
    assert ended.code == 3 and str(path) in ended.err
    # A memory that says otherwise is believed: that is how one knows that it is used, and what it may not do.
    found, facts = path.stat(), json.loads((store / REMEMBERED).read_text())["files"]
    place = path.relative_to(store).as_posix()
    facts[place][:4] = [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    sealed.write(store / REMEMBERED, {"files": facts})
    assert export(launch, store).code == 0
    assert launch("doctor", store=store).code == 3


def test_whoever_trusts_a_store_gets_what_is_there(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_run(small_run, tmp_path / "store")
    flip(weights(store).parent, WEIGHTS)
    assert export(launch, store).code == 3
    assert export(launch, store, "--trust").code == 0
    refused = launch("--trust", "resume", "small", store=store)
    assert refused.code == 2 and "--trust is for sql" in refused.err


QUESTIONS = ("generate_questions", 1, "questions.parquet")
VALIDATED = ("validate", 2, "benchmark_scores.parquet")
# A reader, its words, and a file that its answer depends on.
READERS = {
    "sql": (["sql", "select * from questions"], QUESTIONS),
    "sql of a view": (["sql", "select text from question_history"], QUESTIONS),
    "sql of records": (["sql", "select seconds from artifacts"], (*QUESTIONS[:2], "artifact.json")),
    "report": (["report", "small"], VALIDATED),
    "report compare": (["report", "compare", "small"], VALIDATED),
    "report habits": (["report", "habits", "small"], ("rollout_questions", 1, "rollouts.parquet")),
    "result": (["result", "small"], ("select", -1, "selections.parquet")),
    "show": (["show", "KEY"], QUESTIONS),
    "why": (["why", "small@2"], ("update_solver", 1, "updates.parquet")),
    "why --graph": (["why", "--graph", "small"], (*VALIDATED[:2], "artifact.json")),
    "diff": (["diff", "small", "small"], ("score_influence", 1, "scores.parquet")),
    "export": (["export", "small", "--iteration", "2", "--out", "FOLDER"], ("update_solver", 1, "model.safetensors")),
    "rescore": (["eval", "rescore", "small"], ("respond", 0, "responses.parquet")),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_flipped_bit_is_refused_in_one_line(launch: Launcher, small_run: SmallRun, tmp_path: Path, reader: str):
    words, (phase, iteration, name) = READERS[reader]
    store = copy_run(small_run, tmp_path / "store")
    folder = _folder(store, phase, iteration)
    HARMS["garbled record" if name == "artifact.json" else "flipped bit"](folder, name)
    stands_for = {"KEY": folder.name, "FOLDER": str(tmp_path / "out")}
    ended = launch(*[stands_for.get(word, word) for word in words], store=store)
    assert (ended.code, ended.out) == (3, ""), ended
    said, hint = ended.err.splitlines()
    assert str(folder / name) in said and "`infuser doctor --repair`" in hint


def _folder(store: Path, phase: str, iteration: int) -> Path:
    """The artifact of a stage; of several, the one whose answers were evaluated."""
    if phase != "respond":
        return artifact_of(store, "small", phase, iteration)
    key = artifact_of(store, "small", "evaluate", iteration).name
    return artifact_folder(store, Catalogue(store).input_ref(key, "responses").key)


@pytest.mark.parametrize("harm", sorted(HARMS))
def test_every_harm_to_a_table_is_refused(launch: Launcher, small_run: SmallRun, tmp_path: Path, harm: str):
    store = copy_run(small_run, tmp_path / "store")
    folder = artifact_of(store, "small", "generate_questions", 1)
    HARMS[harm](folder, "questions.parquet")
    ended = launch("sql", "select count(*) from questions", store=store)
    assert (ended.code, ended.out) == (3, "") and folder.name in ended.err and "`infuser doctor" in ended.err


def test_only_the_tables_that_a_statement_names_are_read(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_run(small_run, tmp_path / "store")
    HARMS["flipped bit"](artifact_of(store, "small", "score_influence", 1), "scores.parquet")
    assert launch("sql", "select count(*) from questions", store=store).code == 0


def test_a_store_may_lie_behind_a_link(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    (tmp_path / "link").symlink_to(copy_run(small_run, tmp_path / "store"))
    assert launch("sql", "select count(*) from questions", store=tmp_path / "link").code == 0


def test_what_is_computed_again_takes_the_place_of_a_link_to_nowhere(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = copy_run(small_run, tmp_path / "store")
    folder = artifact_of(store, "small", "leakage", -1)
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "nowhere")
    ended = launch("doctor", "small", "--repair", store=store)
    assert ended.code == 0, ended
    assert folder.is_dir() and not folder.is_symlink()


LARGE = 3 << 20


def plain(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def filled(folder: Path, *, count: int = 5) -> list[Path]:
    paths = [folder / f"file-{number}" for number in range(count)]
    for path in paths:
        path.write_bytes(os.urandom(LARGE))
    return paths


def test_digests_are_those_of_each_file_alone_in_order(tmp_path: Path):
    paths = filled(tmp_path)
    expected = [plain(path) for path in paths]
    assert verify.digests_of_files(paths) == expected
    assert verify.describe_files(paths) == [{"sha256": digest, "bytes": LARGE} for digest in expected]


def test_a_digest_computed_ahead_is_used_once_and_only_while_the_file_stays_as_it_was(tmp_path: Path):
    kept, changed, replaced = paths = filled(tmp_path, count=3)
    for path in paths:
        verify.remember_digest(path, plain(path))
    assert len(verify._ahead) >= 3
    changed.write_bytes(b"x" * LARGE)
    replaced.unlink()
    replaced.write_bytes(b"y" * LARGE)
    assert [verify.describe_file(path)["sha256"] for path in paths] == [plain(path) for path in paths]
    with kept.open("r+b") as handle:
        handle.write(b"z")
    assert verify.describe_file(kept)["sha256"] == plain(kept)


def test_a_checkpoint_is_committed_without_reading_it_again(tmp_path: Path):
    weights, first, second = ({"weight": torch.rand(LARGE // 4)} for _ in range(3))
    store, recipe = Store(tmp_path), Recipe(phase="anchor", version=1, config={}, seed=0, inputs={})
    with store.workspace(recipe) as workspace:
        state = files.TrainerState(step=0, optimizer={})
        files.write_checkpoint(workspace, weights=weights, moments=named_moments(first, second), state=state)
        before = len(verify._ahead)
        ref = store.commit(recipe, workspace, Outcome(tables={}), seconds=0.0)
    assert len(verify._ahead) == before - 2, "weights and moments"
    folder, record = store.verified_folder(ref), store.manifest(ref)
    assert {name: facts["sha256"] for name, facts in record.files.items()} == {
        name: plain(folder / name) for name in (files.WEIGHTS, files.MOMENTS, files.STATE)
    }


def test_the_digest_of_an_anchor_is_that_of_its_files_one_after_the_other(tmp_path: Path):
    for number in range(3):
        (tmp_path / f"model-{number}.safetensors").write_bytes(os.urandom(LARGE))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.md").write_text("no part of the model")
    total = hashlib.sha256()
    for path in sorted([*tmp_path.glob("*.json"), *tmp_path.glob("*.safetensors")]):
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    assert anchors.anchor_digest(tmp_path) == total.hexdigest()
