"""Keys in the environment of a run are in nothing that it leaves: store, Prefect's database, logs, output."""

import json
from pathlib import Path

import pytest
from served import Served
from small_store import infuser

SECRETS = {
    "HF_TOKEN": "hf_fake_token_of_the_test",
    "INFUSER_API_KEY": "fake-endpoint-key-of-the-test",
    "AWS_SECRET_ACCESS_KEY": "fake-storage-secret-of-the-test",
    "POSTGRES_PASSWORD": "fake-database-password-of-the-test",
}
SMALL = {"cotrain": {"iterations": 1, "documents": 2, "group_size": 4}, "data": {"dev": {"size": 8}}}


def holding(folder: Path) -> list[str]:
    """Files with one of the secrets in them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        f"{path}: {name}" for path in files for name, value in SECRETS.items() if value.encode() in path.read_bytes()
    ]


@pytest.mark.slow
@pytest.mark.long
def test_no_key_of_the_environment_is_in_what_a_run_leaves_or_says(tmp_path: Path):
    overlay = tmp_path / "small.yaml"
    overlay.write_text(json.dumps(SMALL))
    store = tmp_path / "store"
    arguments = ["run", "configs/nano.yaml", str(overlay), "--name", "kept", "--until", "rollout_dev@0"]
    served = Served(store, **SECRETS)
    ended = infuser(*arguments, store=store, timeout=240, **SECRETS)
    assert ended.returncode == 0, ended.stderr
    left = {path.relative_to(store).parts[0] for path in store.rglob("*") if path.is_file()}
    assert {"artifacts", "runs", "prefect"} <= left and list(store.rglob("*.db"))
    assert holding(store) == []
    assert not [name for name, value in SECRETS.items() if value in ended.stdout + ended.stderr]
    failed = infuser("resume", "kept", store=store, timeout=240, INFUSER_CRASH_AT="raise@dev_gradient:start", **SECRETS)
    assert failed.returncode == 3, failed.stderr
    assert holding(store) == []
    assert not [name for name, value in SECRETS.items() if value in failed.stdout + failed.stderr]
    served.process.terminate()
    served.process.wait(60)
    assert holding(store) == []
    assert not [name for name, value in SECRETS.items() if value in served.log.read_text()]
