"""What is committed is found again by its recipe, whole and in order."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infuser_core.errors import StoreError
from infuser_core.schemas import AuditFact, Topic
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import Outcome, Store, Table

RECIPE = Recipe(phase="audit", version=1, config={"limit": 13}, seed=0, inputs={"chunks": "chunk-00@11"})
FACTS = [AuditFact(name="pairs", value=2.5), AuditFact(name="controls", value=4.0)]


def commit(store: Store, recipe: Recipe = RECIPE, *, facts=FACTS, note: str = "kept", volatile: float = 1.0):
    with store.workspace(recipe) as workspace:
        (workspace / "folder").mkdir()
        (workspace / "folder" / "note.txt").write_text(note)
        outcome = Outcome(
            tables={
                "facts": Table(row_type=AuditFact, rows=facts),
                "topics": Table(row_type=Topic, rows=[]),
                "times": Table(row_type=AuditFact, rows=[AuditFact(name="s", value=volatile)], volatile=True),
            },
            summary={"pairs": len(facts)},
        )
        return store.commit(recipe, workspace, outcome, seconds=0.25)


def test_a_committed_artifact_is_found_by_its_recipe(tmp_path: Path):
    store = Store(tmp_path)
    assert store.find(RECIPE) is None
    ref = commit(store)
    assert Store(tmp_path).find(RECIPE) == ref
    assert store.refs() == [ref]
    assert ref.kind == "audit" and ref.key == RECIPE.key


def test_rows_files_and_summary_come_back(tmp_path: Path):
    store = Store(tmp_path)
    ref = commit(store)
    other = Store(tmp_path)
    assert other.rows(ref, "facts", AuditFact) == FACTS
    assert other.rows(ref, "topics", Topic) == []
    assert other.path(ref, "folder/note.txt").read_text() == "kept"
    manifest = other.manifest(ref)
    assert (manifest.rows, manifest.summary, manifest.seconds) == (
        {"facts": 2, "topics": 0, "times": 1},
        {"pairs": 2},
        0.25,
    )
    assert Recipe(**manifest.recipe) == RECIPE


@settings(max_examples=20)
@given(st.lists(st.builds(AuditFact, name=st.text("ab\u00e9\u4e2d\0"), value=st.floats(allow_nan=False)), max_size=4))
def test_any_rows_come_back_in_order(tmp_path_factory: pytest.TempPathFactory, facts: list[AuditFact]):
    store = Store(tmp_path_factory.mktemp("store"))
    ref = commit(store, facts=facts)
    assert repr(Store(store.root).rows(ref, "facts", AuditFact)) == repr(facts)


def test_nothing_stays_in_staging(tmp_path: Path):
    store = Store(tmp_path)
    commit(store)
    with pytest.raises(RuntimeError), store.workspace(RECIPE) as workspace:
        (workspace / "half").write_text("written")
        raise RuntimeError("the phase failed")
    assert list((tmp_path / ".staging").iterdir()) == []


def test_equal_content_has_an_equal_digest_in_any_store(tmp_path: Path):
    digests = {commit(Store(tmp_path / name)).digest for name in ("one", "other")}
    assert len(digests) == 1


def test_other_content_has_another_digest(tmp_path: Path):
    base = commit(Store(tmp_path / "base"))
    assert commit(Store(tmp_path / "file"), note="changed").digest != base.digest
    assert commit(Store(tmp_path / "rows"), facts=FACTS[:1]).digest != base.digest
    assert commit(Store(tmp_path / "order"), facts=FACTS[::-1]).digest != base.digest


def test_volatile_tables_are_outside_the_digest_and_still_checked(tmp_path: Path):
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    first, second = commit(one, volatile=1.0), commit(other, volatile=2.0)
    assert first.id == second.id
    assert one.rows(first, "times", AuditFact) != other.rows(second, "times", AuditFact)
    assert "times.parquet" in one.manifest(first).files


def test_what_is_not_there_is_named(tmp_path: Path):
    store = Store(tmp_path)
    ref = commit(store)
    with pytest.raises(StoreError, match=r"has no file nothing\.parquet"):
        store.rows(ref, "nothing", AuditFact)
    with pytest.raises(StoreError, match="no artifact at"):
        Store(tmp_path / "elsewhere").manifest(ref)
