"""Without local files a benchmark comes from the hub: one split at one commit; what is missing says what to do.

A small server on loopback answers as the hub does, and the real client talks to it.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from places import ROOT

from infuser_core.evaluation.benchmarks import gpqa_diamond, math500

DATA = ROOT / "tests" / "data" / "benchmarks"
COMMIT = math500.BENCHMARK.revision
FILES = {"test.jsonl": (DATA / "math500" / "test.jsonl").read_bytes(), "README.md": b"#", "big/images.zip": b"0" * 64}
CODE = """
import json, sys, warnings
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import InfuserError
warnings.simplefilter("ignore")
try:
    print(json.dumps([q.question_id for q in find_benchmark(sys.argv[1])(BenchmarkSettings(name=sys.argv[1]))]))
except InfuserError as error:
    print(json.dumps({"kind": type(error).__name__, "message": error.message, "hint": error.hint}))
"""


class Hub(BaseHTTPRequestHandler):
    """One open data set and one gated one."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        Hub.asked.append(path)
        if gpqa_diamond.BENCHMARK.repos[0] in path:
            return self.reply(403, b"{}", {"X-Error-Code": "GatedRepo"})
        if "/resolve/" in path:
            return self.file(path.partition(f"/resolve/{COMMIT}/")[2])
        if path.startswith(f"/api/datasets/{math500.BENCHMARK.repos[0]}/tree/"):
            listed = [{"type": "file", "path": name, "size": len(text), "oid": name} for name, text in FILES.items()]
            return self.reply(200, json.dumps(listed).encode(), {})
        if path.startswith(f"/api/datasets/{math500.BENCHMARK.repos[0]}"):
            siblings = [{"rfilename": name} for name in FILES]
            known = {"id": math500.BENCHMARK.repos[0], "sha": COMMIT, "siblings": siblings}
            return self.reply(200, json.dumps(known).encode(), {})
        self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def file(self, name: str) -> None:
        if name not in FILES:
            return self.reply(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        self.reply(200, FILES[name], {"ETag": f'"{name}"', "X-Repo-Commit": COMMIT})

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at what was asked."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Hub.asked.clear()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()


def load(name: str, tmp_path: Path, **environment: str) -> dict[str, str] | list[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "INFUSER_"))}
    own = {
        "INFUSER_DATA": str(tmp_path / "data"),
        "INFUSER_STORE": str(tmp_path / "store"),
        "HF_HOME": str(tmp_path / "hf"),
    }
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, name],
        cwd=ROOT,
        env={**clean, **own, **quiet, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] | list[str] = json.loads(done.stdout)
    return found


def test_the_split_alone_is_fetched_at_its_commit_and_then_found_offline(hub: str, tmp_path: Path):
    found = load("math500", tmp_path, HF_ENDPOINT=hub)
    assert isinstance(found, list) and len(found) == 6
    fetched = [path for path in Hub.asked if "/resolve/" in path]
    assert {path.rpartition("/resolve/")[2] for path in fetched} == {f"{COMMIT}/test.jsonl"}
    assert load("math500", tmp_path, HF_HUB_OFFLINE="1") == found


def test_a_gated_data_set_asks_for_its_terms_and_a_token(hub: str, tmp_path: Path):
    found = load("gpqa_diamond", tmp_path, HF_ENDPOINT=hub)
    assert isinstance(found, dict) and found["kind"] == "ConfigError"
    assert "Idavidrein/gpqa is gated" in found["message"]
    assert "HF_TOKEN" in found["hint"] and "https://huggingface.co/datasets/Idavidrein/gpqa" in found["hint"]
    assert str(tmp_path / "data" / "gpqa_diamond") in found["hint"]


def test_a_data_set_that_is_not_there_is_named(hub: str, tmp_path: Path):
    found = load("medqa", tmp_path, HF_ENDPOINT=hub)
    assert isinstance(found, dict) and found["kind"] == "ConfigError"
    assert "benchmark medqa: GBaker/MedQA-USMLE-4-options cannot be had" in found["message"]


def test_offline_the_way_to_local_files_is_shown(tmp_path: Path):
    found = load("math500", tmp_path, HF_HUB_OFFLINE="1")
    assert isinstance(found, dict) and found["kind"] == "ConfigError"
    assert "\n" not in found["message"] + found["hint"]
    assert "HuggingFaceH4/MATH-500 cannot be had" in found["message"]
    assert f"put test.jsonl or data/test-*.parquet into {tmp_path / 'data' / 'math500'}" in found["hint"]
