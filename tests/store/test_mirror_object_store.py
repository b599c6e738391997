"""The mirror in an object store on loopback: equal copies, real kills on the way, and keys that nobody sees."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirror_tools import KEY, SECRET, content, infuser, make_store, object_store

from infuser_core.store.store import MANIFEST

pytest.importorskip("s3fs", reason="s3:// needs the extra `mirror`")
pytest.importorskip("moto", reason="the object store of the tests is moto's")
URL = "s3://mirror/team/store"


@pytest.fixture(scope="module")
def keys() -> Iterator[dict[str, str]]:
    """Environment that finds the object store."""
    with object_store() as environment:
        yield environment


def test_push_and_pull_through_an_object_store_killed_on_the_way_give_an_equal_store(
    tmp_path: Path, keys: dict[str, str]
):
    make_store(tmp_path / "a")
    for point in ("mirror:push:file:3", "mirror:push:2"):
        killed = infuser("mirror", "push", URL, store=tmp_path / "a", INFUSER_CRASH_AT=point, **keys)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    half = json.loads(infuser("mirror", "status", URL, "--json", store=tmp_path / "a", **keys).stdout)
    assert half["half"] >= 1 and half["both"] + half["to_push"] == 5
    sent = infuser("mirror", "push", URL, "--json", store=tmp_path / "a", **keys)
    assert sent.returncode == 0, sent.stderr
    told = json.loads(sent.stdout)
    # What the killed ones had sent whole was kept.
    assert 0 < sum(entry["files"] for entry in told["details"]) < 5 * 3 + 2
    for point in ("mirror:pull:file:3", "mirror:pull:2"):
        killed = infuser("mirror", "pull", URL, store=tmp_path / "b", INFUSER_CRASH_AT=point, **keys)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert not (tmp_path / "b" / "runs" / "first" / "run.json").exists()
        for folder in (tmp_path / "b" / "artifacts").glob("*/*"):
            assert (folder / MANIFEST).is_file()
    fetched = infuser("mirror", "pull", URL, store=tmp_path / "b", **keys)
    assert fetched.returncode == 0, fetched.stderr
    assert content(tmp_path / "b") == content(tmp_path / "a")
    checked = infuser("mirror", "status", URL, "--check", "--json", store=tmp_path / "b", **keys)
    assert json.loads(checked.stdout) | {"url": ""} == {
        "url": "", "both": 5, "to_push": 0, "bytes_to_push": 0, "to_pull": 0, "bytes_to_pull": 0, "half": 0,
        "runs": [{"run": "first", "state": "same"}], "checked": 10, "problems": [],
    }  # fmt: skip


def test_refused_keys_and_a_silent_server_are_one_line_without_the_keys(tmp_path: Path, keys: dict[str, str]):
    make_store(tmp_path / "a", artifacts=1)
    silent = {**keys, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    for environment, url in ((silent, "s3://mirror/x"), (keys, "s3://no-such-bucket/x")):
        ended = infuser("mirror", "push", url, store=tmp_path / "a", **environment)
        assert ended.returncode == 3 and ended.stderr.startswith("infuser: cannot "), ended.stderr
        assert len(ended.stderr.splitlines()) == 2
        assert SECRET not in ended.stdout + ended.stderr and KEY not in ended.stdout + ended.stderr
