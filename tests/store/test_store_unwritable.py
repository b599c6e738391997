"""A store that cannot be written is said to be so, and nothing half-written stays."""

import subprocess
import sys
from pathlib import Path

import pytest

from infuser_core.errors import StoreError
from infuser_core.settings import store_root, writable_store_root
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import Store

RECIPE = Recipe(phase="audit", version=1, config={}, seed=0)

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
