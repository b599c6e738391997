"""What the mirror's tests share: a small real store with a run, the command as a process, and an object store."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from places import ROOT

from infuser_core.store import pruned, runs
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store

KEY = "fake-id-0123456789"
SECRET = "fake-secret-9876543210"
COMMAND = """
import sys
from flows import cli, cli_mirror
if "mirror" not in {group.name for group in cli.app.registered_groups}:
    cli_mirror.register(cli.app)
sys.argv = ["infuser", *sys.argv[1:]]
cli.main()
"""


def commit(store: Store, phase: str, *, made_from: dict[str, str] | None = None, text: str = "x") -> ArtifactRef:
    """A committed artifact with two files, one of them in a folder."""
    recipe = Recipe(phase=phase, version=1, config={"text": text}, seed=0, inputs=made_from or {})
    with store.workspace(recipe) as workspace:
        (workspace / "inner").mkdir()
        (workspace / "inner" / "optimizer.bin").write_bytes(text.encode() * 1000)
        (workspace / "model.safetensors").write_bytes(phase.encode() * 2000)
        return store.commit(recipe, workspace, Outcome(tables={}, summary={"text": text}), seconds=0.1)


def make_store(root: Path, *, run: str = "first", artifacts: int = 4) -> Store:
    """A finished run of a chain of artifacts, and one artifact that no run knows."""
    store = Store(root)
    runs.create_run(root, run, {"seed": 1})
    journal = runs.Journal(root, run)
    journal.start_attempt()
    before: dict[str, str] = {}
    for number in range(artifacts):
        ref = commit(store, f"phase_{number}", made_from=before, text=run)
        before = {"source": ref.id}
        add(journal, ref)
    journal.finish()
    (root / "runs" / run / "report").mkdir()
    (root / "runs" / run / "report" / "report.html").write_text("<p>report</p>")
    commit(store, "alone", text=run)
    return store


def add(journal: runs.Journal, ref: ArtifactRef) -> None:
    """A line of the journal."""
    journal.append(
        phase=ref.kind, iteration=-1, state="ran", seconds=0.1, key=ref.key, digest=ref.digest, rows=0
    )  # fmt: skip


def thin(store: Store, ref: ArtifactRef, name: str) -> None:
    """Remove one file of an artifact the way gc does."""
    facts = store.manifest(ref).files[name]
    entry = pruned.Removed(
        file=name, part=pruned.WEIGHTS, sha256=facts["sha256"], bytes=facts["bytes"], rule="test", at="now"
    )  # fmt: skip
    folder = store.folder(ref.kind, ref.key)
    pruned.write(folder, [entry])
    (folder / name).unlink()


def content(root: Path) -> dict[str, bytes]:
    """Every committed file and every file of the runs' records."""
    files = [path for part in ("artifacts", "runs") for path in (root / part).rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files if path.name != "lock"}


def infuser(
    *arguments: str, store: Path, timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """`infuser ARGUMENTS` as a process of its own."""
    values = {**os.environ, "INFUSER_STORE": str(store), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=ROOT, env=values, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


@contextmanager
def object_store(bucket: str = "mirror") -> Iterator[dict[str, str]]:
    """A local object store that speaks S3, with one empty bucket; yields the environment that finds it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    client = boto3.client(
        "s3", endpoint_url=environment["AWS_ENDPOINT_URL"], region_name="us-east-1",
        aws_access_key_id=KEY, aws_secret_access_key=SECRET,
    )  # fmt: skip
    try:
        client.create_bucket(Bucket=bucket)
        yield environment
    finally:
        server.stop()
