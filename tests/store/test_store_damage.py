"""Changed bytes are noticed before they are used, and the message names the file."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infuser_core.errors import DamagedArtifactError, StoreError
from infuser_core.schemas import AuditFact
from infuser_core.store.recipe import MANIFEST, ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store, Table

RECIPE = Recipe(phase="audit", version=1, config={}, seed=0)


def commit(root: Path) -> ArtifactRef:
    store = Store(root)
    with store.workspace(RECIPE) as workspace:
        (workspace / "weights.bin").write_bytes(bytes(range(256)))
        facts = [AuditFact(name=str(number), value=number) for number in range(50)]
        outcome = Outcome(tables={"facts": Table(row_type=AuditFact, rows=facts)})
        return store.commit(RECIPE, workspace, outcome, seconds=0.0)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1
    path.write_bytes(content)


@settings(max_examples=15)
@given(position=st.integers(0, 10_000), name=st.sampled_from(["facts.parquet", "weights.bin"]))
def test_one_flipped_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, position: int, name: str):
    root = tmp_path_factory.mktemp("store")
    ref = commit(root)
    store = Store(root)
    path = store.folder(ref.key) / name
    flip(path, position)
    with pytest.raises(DamagedArtifactError) as caught:
        store.path(ref, name)
    assert str(path) in caught.value.message
    assert "infuser doctor --repair" in caught.value.hint
    with pytest.raises(DamagedArtifactError):
        store.verified_folder(ref)


def test_a_missing_file_is_named(tmp_path: Path):
    ref = commit(tmp_path)
    store = Store(tmp_path)
    (store.folder(ref.key) / "weights.bin").unlink()
    with pytest.raises(StoreError, match=r"weights\.bin"):
        store.verified_folder(ref)


@pytest.mark.parametrize("record", ["", "{", '{"kind": "audit"}'])
def test_a_damaged_commit_record_is_named(tmp_path: Path, record: str):
    ref = commit(tmp_path)
    store = Store(tmp_path)
    path = store.folder(ref.key) / MANIFEST
    path.write_text(record)
    with pytest.raises(DamagedArtifactError) as caught:
        store.find(RECIPE)
    assert str(path) in caught.value.message


def test_a_moved_away_artifact_is_computed_again_to_the_same_bytes(tmp_path: Path):
    ref = commit(tmp_path)
    store = Store(tmp_path)
    store.folder(ref.key).rename(tmp_path / "away")
    assert store.find(RECIPE) is None
    assert commit(tmp_path) == ref
