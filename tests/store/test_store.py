"""Artifacts are committed whole and once, and damage, kills, rivals and read-only folders are noticed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_store import make_store

from infuser_core.errors import DamagedArtifactError, StoreError
from infuser_core.schemas import AuditFact, Topic
from infuser_core.settings import store_root, writable_store_root
from infuser_core.store.doctor import examine
from infuser_core.store.recipe import MANIFEST, ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store, Table

LIMITED = Recipe(phase="audit", version=1, config={"limit": 13}, seed=0, inputs={"chunks": "chunk-00@11"})
FACTS = [AuditFact(name="pairs", value=2.5), AuditFact(name="controls", value=4.0)]


def commit_facts(store: Store, recipe: Recipe = LIMITED, *, facts=FACTS, note: str = "kept", volatile: float = 1.0):
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
    assert store.find(LIMITED) is None
    ref = commit_facts(store)
    assert Store(tmp_path).find(LIMITED) == ref
    assert store.refs() == [ref]
    assert ref.kind == "audit" and ref.key == LIMITED.key


def test_rows_files_and_summary_come_back(tmp_path: Path):
    store = Store(tmp_path)
    ref = commit_facts(store)
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
    assert Recipe(**manifest.recipe) == LIMITED


@settings(max_examples=20)
@given(st.lists(st.builds(AuditFact, name=st.text("ab\u00e9\u4e2d\0"), value=st.floats(allow_nan=False)), max_size=4))
def test_any_rows_come_back_in_order(tmp_path_factory: pytest.TempPathFactory, facts: list[AuditFact]):
    store = Store(tmp_path_factory.mktemp("store"))
    ref = commit_facts(store, facts=facts)
    assert repr(Store(store.root).rows(ref, "facts", AuditFact)) == repr(facts)


def test_nothing_stays_in_staging(tmp_path: Path):
    store = Store(tmp_path)
    commit_facts(store)
    with pytest.raises(RuntimeError), store.workspace(LIMITED) as workspace:
        (workspace / "half").write_text("written")
        raise RuntimeError("the phase failed")
    assert list((tmp_path / ".staging").iterdir()) == []


def test_equal_content_has_an_equal_digest_in_any_store(tmp_path: Path):
    digests = {commit_facts(Store(tmp_path / name)).digest for name in ("one", "other")}
    assert len(digests) == 1


def test_other_content_has_another_digest(tmp_path: Path):
    base = commit_facts(Store(tmp_path / "base"))
    assert commit_facts(Store(tmp_path / "file"), note="changed").digest != base.digest
    assert commit_facts(Store(tmp_path / "rows"), facts=FACTS[:1]).digest != base.digest
    assert commit_facts(Store(tmp_path / "order"), facts=FACTS[::-1]).digest != base.digest


def test_volatile_tables_are_outside_the_digest_and_still_checked(tmp_path: Path):
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    first, second = commit_facts(one, volatile=1.0), commit_facts(other, volatile=2.0)
    assert first.id == second.id
    assert one.rows(first, "times", AuditFact) != other.rows(second, "times", AuditFact)
    assert "times.parquet" in one.manifest(first).files


def test_what_is_not_there_is_named(tmp_path: Path):
    store = Store(tmp_path)
    ref = commit_facts(store)
    with pytest.raises(StoreError, match=r"has no file nothing\.parquet"):
        store.rows(ref, "nothing", AuditFact)
    with pytest.raises(StoreError, match="no artifact at"):
        Store(tmp_path / "elsewhere").manifest(ref)


def test_a_copy_that_breaks_off_anywhere_holds_complete_artifacts_alone(tmp_path: Path):
    store = make_store(tmp_path / "a")
    files = [path.relative_to(store.root) for path in store.root.glob("artifacts/**/*") if path.is_file()]
    # The two passes of `rclone copy`: first without the commit records, then the rest.
    files.sort(key=lambda path: (path.name == MANIFEST, path))
    copy = Store(tmp_path / "b")
    seen = set()
    for path in files:
        (copy.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(store.root / path, copy.root / path)
        for ref in copy.refs():
            copy.verified_folder(ref)
        seen.add(len(copy.refs()))
    assert len(files) == 12 and seen == {0, 1, 2, 3, 4}
    shutil.copytree(store.root / "runs", copy.root / "runs")
    assert examine(copy.root, "first").problems == []
    assert copy.refs() == store.refs()


RECIPE = Recipe(phase="audit", version=1, config={}, seed=0)

# Commits the recipe in a store; the crash points inside do the rest.
COMMIT = """
import sys
from pathlib import Path
from infuser_core.store.recipe import MANIFEST, Recipe
from infuser_core.schemas import AuditFact
from infuser_core.store.store import Outcome, Store, Table
store, recipe = Store(Path(sys.argv[1])), Recipe(phase="audit", version=1, config={}, seed=0)
with store.exclusive(recipe), store.workspace(recipe) as workspace:
    (workspace / "weights.bin").write_bytes(bytes(100_000))
    outcome = Outcome(tables={"facts": Table(row_type=AuditFact, rows=[AuditFact(name="n", value=1.0)])})
    print(store.commit(recipe, workspace, outcome, seconds=0.0).id)
"""


def commit_in_process(root: Path, crash_at: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "INFUSER_CRASH_AT": crash_at}
    return subprocess.run([sys.executable, "-c", COMMIT, root], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("point", "complete"), [("before_rename", False), ("after_rename", True)])
def test_an_artifact_is_absent_or_complete(tmp_path: Path, point: str, complete: bool):
    killed = commit_in_process(tmp_path, f"audit:{point}")
    assert killed.returncode == -signal.SIGKILL
    found = Store(tmp_path).find(RECIPE)
    assert (found is not None) == complete
    assert [path.parent.name for path in (tmp_path / "artifacts").rglob(MANIFEST)] == [RECIPE.key] * complete

    again = commit_in_process(tmp_path)
    assert again.returncode == 0, again.stderr
    ref = Store(tmp_path).find(RECIPE)
    assert ref is not None and ref.id == again.stdout.strip()
    assert Store(tmp_path).rows(ref, "facts", AuditFact) == [AuditFact(name="n", value=1.0)]
    assert list((tmp_path / ".staging").iterdir()) == [], "the killed process's workspace is swept away"


def test_a_crash_point_counts_its_passes(tmp_path: Path):
    assert commit_in_process(tmp_path, "audit:before_rename:2").returncode == 0
    assert commit_in_process(tmp_path, "audit:before").returncode == 0
    assert commit_in_process(tmp_path, "audit:before_rename:1").returncode == -signal.SIGKILL


def commit_weights(root: Path) -> ArtifactRef:
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
    ref = commit_weights(root)
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
    ref = commit_weights(tmp_path)
    store = Store(tmp_path)
    (store.folder(ref.key) / "weights.bin").unlink()
    with pytest.raises(StoreError, match=r"weights\.bin"):
        store.verified_folder(ref)


@pytest.mark.parametrize("record", ["", "{", '{"kind": "audit"}'])
def test_a_damaged_commit_record_is_named(tmp_path: Path, record: str):
    ref = commit_weights(tmp_path)
    store = Store(tmp_path)
    path = store.folder(ref.key) / MANIFEST
    path.write_text(record)
    with pytest.raises(DamagedArtifactError) as caught:
        store.find(RECIPE)
    assert str(path) in caught.value.message


def test_a_moved_away_artifact_is_computed_again_to_the_same_bytes(tmp_path: Path):
    ref = commit_weights(tmp_path)
    store = Store(tmp_path)
    store.folder(ref.key).rename(tmp_path / "away")
    assert store.find(RECIPE) is None
    assert commit_weights(tmp_path) == ref


# Looks, computes something of its own if nothing is there, and commits. The last word tells it to take the key's lock.
WORKER = """
import os, sys, time
from contextlib import nullcontext
from pathlib import Path
from infuser_core.store.recipe import Recipe
from infuser_core.schemas import AuditFact
from infuser_core.store.store import Outcome, Store, Table
store, recipe = Store(Path(sys.argv[1])), Recipe(phase="audit", version=1, config={}, seed=0)
start = store.root / "start"
(store.root / f"ready-{os.getpid()}").touch()
while not start.exists():
    time.sleep(0.005)
with store.exclusive(recipe) if sys.argv[2] == "locked" else nullcontext():
    ref, computed = store.find(recipe), False
    if ref is None:
        computed = True
        with store.workspace(recipe) as workspace:
            time.sleep(0.2)
            rows = [AuditFact(name="process", value=float(os.getpid()))]
            outcome = Outcome(tables={"facts": Table(row_type=AuditFact, rows=rows)})
            ref = store.commit(recipe, workspace, outcome, seconds=0.0)
print(ref.id, store.rows(ref, "facts", AuditFact)[0].value, computed)
"""


def race(root: Path, mode: str) -> list[list[str]]:
    """Three processes at once: id, the number they read, whether they computed."""
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, root, mode], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    while len(list(root.glob("ready-*"))) < len(workers):
        time.sleep(0.01)
    (root / "start").touch()
    lines = [worker.communicate()[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    return lines


def test_the_key_lock_lets_one_process_compute(tmp_path: Path):
    lines = race(tmp_path, "locked")
    assert len({(identity, value) for identity, value, _ in lines}) == 1
    assert sorted(computed for _, _, computed in lines) == ["False", "False", "True"]


def test_the_first_writer_wins_and_the_others_take_its_artifact(tmp_path: Path):
    store = Store(tmp_path)
    refs = []
    for number in (1.0, 2.0):
        folder = tmp_path / f"work-{number}"
        folder.mkdir()
        facts = [AuditFact(name="writer", value=number)]
        outcome = Outcome(tables={"facts": Table(row_type=AuditFact, rows=facts)})
        refs.append(store.commit(RECIPE, folder, outcome, seconds=0.0))
    assert refs[0] == refs[1]
    assert Store(tmp_path).rows(refs[1], "facts", AuditFact) == [AuditFact(name="writer", value=1.0)]


def test_a_loser_of_the_race_reads_the_winners_rows(tmp_path: Path):
    lines = race(tmp_path, "free")
    assert len({(identity, value) for identity, value, _ in lines}) == 1


# No file may grow beyond 20 kB: what a full disk looks like to a writer.
FULL = """
import resource, sys
from pathlib import Path
from infuser_core.errors import StoreError
from infuser_core.store.recipe import Recipe
from infuser_core.schemas import AuditFact
from infuser_core.store.store import Outcome, Store, Table
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
store, recipe = Store(Path(sys.argv[1])), Recipe(phase="audit", version=1, config={}, seed=0)
facts = [AuditFact(name=f"{number * 7919 % 100003:x}", value=number ** 0.5) for number in range(20_000)]
try:
    with store.workspace(recipe) as workspace:
        store.commit(recipe, workspace, Outcome(tables={"f": Table(row_type=AuditFact, rows=facts)}), seconds=0.0)
except StoreError as error:
    print(error)
"""


def test_a_store_below_a_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "file" / "store"))
    with pytest.raises(StoreError) as caught:
        writable_store_root()
    assert str(tmp_path / "file" / "store") in caught.value.message
    assert "INFUSER_STORE" in caught.value.hint
    with pytest.raises(StoreError), Store(tmp_path / "file").workspace(RECIPE):
        pass


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path):
    done = subprocess.run([sys.executable, "-B", "-c", FULL, tmp_path], capture_output=True, text=True, check=True)
    assert f"cannot write the store at {tmp_path}" in done.stdout
    assert "infuser resume" in done.stdout
    assert not (tmp_path / "artifacts").exists()
    assert list((tmp_path / ".staging").iterdir()) == []


def test_the_store_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    assert writable_store_root() == tmp_path / "store"
    assert list((tmp_path / "store").iterdir()) == []
    monkeypatch.delenv("INFUSER_STORE")
    monkeypatch.chdir(tmp_path)
    assert store_root() == tmp_path / ".infuser"
    assert not store_root().exists()
