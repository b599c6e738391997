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
from infuser_core.store.store import MANIFEST, Outcome, Store, Table

MANY = index.WORTH_KEEPING + 5


def put(store: Store, number: int, value: float = 0.0) -> ArtifactRef:
    recipe = Recipe(phase="audit", version=2, config={"n": number}, seed=3, iteration=number)
    table = Table(row_type=AuditFact, rows=[AuditFact(name="fact", value=value)])
    with store.workspace(recipe) as workspace:
        outcome = Outcome(tables={"audit_summary": table}, summary={"value": value})
        return store.commit(recipe, workspace, outcome, seconds=1.5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store so large that the catalogue is kept in a file."""
    found = Store(tmp_path)
    for number in range(MANY):
        put(found, number)
    assert same(found)
    return found


def same(store: Store) -> bool:
    """Whether a new catalogue says what the commit records say."""
    catalogue, refs = Catalogue(store.root), store.refs()
    for ref in refs:
        manifest, record = store.manifest(ref), catalogue.records[ref.key]
        recipe = manifest.recipe
        wanted = (recipe["iteration"], recipe["version"], recipe["seed"], recipe["config"], recipe["inputs"])
        told = (record.iteration, record.version, record.seed, json.loads(record.config), record.inputs)
        assert (record.ref, told) == (manifest.ref, wanted)
        assert (record.rows, record.summary, record.seconds) == (manifest.rows, manifest.summary, manifest.seconds)
        assert record.num_bytes == sum(facts["bytes"] for facts in manifest.files.values())
    return list(catalogue.records) == [ref.key for ref in refs]


def test_the_second_reading_comes_from_the_file_and_says_the_same(store: Store):
    text = (store.root / index.FILE).read_text()
    assert len(text.split()) >= MANY and same(store)
    assert (store.root / index.FILE).read_text() == text


def test_a_small_store_keeps_no_file_and_a_missing_one_is_empty(tmp_path: Path):
    put(Store(tmp_path), 1)
    assert same(Store(tmp_path)) and not (tmp_path / "index").exists()
    assert Catalogue(tmp_path / "nowhere").records == {}


def test_new_artifacts_are_seen_removed_ones_are_not_and_changed_ones_are_read_again(store: Store):
    gone, old = store.refs()[6:8]
    number = store.manifest(old).recipe["iteration"]
    for ref in (gone, old):
        shutil.rmtree(store.folder(ref.kind, ref.key))
    put(store, MANY)
    new = put(store, number, value=9.0)
    assert new.key == old.key and new.digest != old.digest
    assert same(store) and gone.key not in Catalogue(store.root).records


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
    path = store.root / index.FILE
    path.write_bytes(damage(path.read_bytes()))
    assert same(store) and same(store)


def test_a_damaged_commit_record_is_named_and_the_others_are_there(store: Store):
    ref = store.refs()[3]
    record = store.folder(ref.kind, ref.key) / MANIFEST
    record.write_text(record.read_text()[:40])
    # A remembered line would stand for the record: it was written about this very folder.
    (store.root / index.FILE).unlink()
    catalogue = Catalogue(store.root)
    assert list(catalogue.damaged) == [ref.key] and str(record) in catalogue.damaged[ref.key]
    assert len(catalogue.records) == MANY - 1
