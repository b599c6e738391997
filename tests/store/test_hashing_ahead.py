"""Digests of large files: computed at the same time, ahead of the commit where the writer says a file is complete."""

import hashlib
import os
from pathlib import Path

import torch

from infuser_core.engines.training import checkpoint as files
from infuser_core.engines.training.optimizer import named_moments
from infuser_core.evaluation import anchors
from infuser_core.store import verify
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import Outcome, Store

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
