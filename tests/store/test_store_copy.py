"""docs/deploy.md: a store copied file by file, commit records last, is sound wherever the copying breaks off."""

import shutil
from pathlib import Path

from small_store import make_store

from infuser_core.store.doctor import examine
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.store import Store


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
