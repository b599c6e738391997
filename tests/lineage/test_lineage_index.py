"""The catalogue says what the commit records say, however its file on disk was left."""

import json
import re
import shutil
from pathlib import Path

import pytest

from infuser_core.schemas import AuditFact
from infuser_core.store import catalogue as index
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store, Table

MANY = index.WORTH_KEEPING + 5


def put(store: Store, number: int, value: float = 0.0) -> ArtifactRef:
    recipe = Recipe(phase="audit", version=2, config={"n": number}, seed=3, iteration=number)
    rows = [AuditFact(name="fact", value=value)]
    with store.workspace(recipe) as workspace:
        outcome = Outcome(tables={"audit_summary": Table(row_type=AuditFact, rows=rows)}, summary={"value": value})
        return store.commit(recipe, workspace, outcome, seconds=1.5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path)
    for number in range(MANY):
        put(found, number)
    return found


def same(store: Store, catalogue: Catalogue) -> bool:
    """Whether it says what the commit records say."""
    refs = store.refs()
    for ref in refs:
        manifest, record = store.manifest(ref), catalogue.records[ref.key]
        assert record.ref == manifest.ref
        assert (record.iteration, record.version, record.seed) == tuple(
            manifest.recipe[name] for name in ("iteration", "version", "seed")
        )
        assert json.loads(record.config) == manifest.recipe["config"]
        assert (record.inputs, record.rows, record.summary) == (
            manifest.recipe["inputs"],
            manifest.rows,
            manifest.summary,
        )
        assert record.num_bytes == sum(facts["bytes"] for facts in manifest.files.values())
        assert record.seconds == manifest.seconds
    return list(catalogue.records) == [ref.key for ref in refs]


def test_the_second_reading_comes_from_the_file_and_says_the_same(store: Store):
    assert same(store, Catalogue(store.root))
    lines = (store.root / index.FILE).read_text().split("\n")
    assert len([line for line in lines if line]) == MANY
    assert same(store, Catalogue(store.root))
    assert (store.root / index.FILE).read_text().split("\n") == lines


def test_a_small_store_keeps_no_file(tmp_path: Path):
    store = Store(tmp_path)
    put(store, 1)
    assert same(store, Catalogue(tmp_path))
    assert not (tmp_path / "index").exists()


def test_new_artifacts_are_seen_and_removed_ones_are_not(store: Store):
    Catalogue(store.root)
    gone = store.refs()[7]
    shutil.rmtree(store.folder(gone.kind, gone.key))
    put(store, MANY)
    catalogue = Catalogue(store.root)
    assert same(store, catalogue) and gone.key not in catalogue.records


def test_an_artifact_computed_again_with_another_result_is_read_again(store: Store):
    Catalogue(store.root)
    old = store.refs()[7]
    number = store.manifest(old).recipe["iteration"]
    shutil.rmtree(store.folder(old.kind, old.key))
    new = put(store, number, value=9.0)
    assert new.key == old.key and new.digest != old.digest
    assert Catalogue(store.root).records[new.key].ref == new


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"no json\n" + data + b"[1, 2]\n",
        lambda data: re.sub(rb"(?m)^1\t", b"0\t", data),
        lambda data: re.sub(rb"\t\d+:", b"\t7:", data),
        lambda data: data.replace(b'"version":2', b'"vers\xff'),
        lambda data: re.sub(rb"(?m)\t\.$", b"", data),
    ],
    ids=["torn", "emptied", "foreign lines", "another format", "other folders", "garbled", "no ends"],
)
def test_a_damaged_file_changes_nothing(store: Store, damage):
    Catalogue(store.root)
    path = store.root / index.FILE
    path.write_bytes(damage(path.read_bytes()))
    assert same(store, Catalogue(store.root))
    assert same(store, Catalogue(store.root))


def test_a_damaged_commit_record_is_named_and_the_others_are_there(store: Store):
    ref = store.refs()[3]
    record = store.folder(ref.kind, ref.key) / "artifact.json"
    record.write_text(record.read_text()[:40])
    catalogue = Catalogue(store.root)
    assert list(catalogue.damaged) == [ref.key]
    assert str(record) in catalogue.damaged[ref.key]
    assert len(catalogue.records) == MANY - 1


def test_a_store_without_artifacts_has_an_empty_catalogue(tmp_path: Path):
    assert Catalogue(tmp_path / "nowhere").records == {}
