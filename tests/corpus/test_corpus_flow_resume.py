"""A killed corpus stage loses the item that was under way, and nothing that was finished."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_stages import RULES
from launcher import Launcher
from test_corpus_flow_structure import KEEP, LINE, boundaries
from test_endpoint_replies import Log, said, server

from infuser_core.store.journal import Journal

pytestmark = pytest.mark.slow


def command(*settings: str) -> list[str]:
    return ["run", "configs/nano.yaml", "--name", "one", *[part for each in settings for part in ("--set", each)]]


def pieces(store: Path, phase: str) -> dict[Path, int]:
    """What a stage keeps between its attempts, with the time of its writing."""
    found = (store / ".partial").glob(f"{phase}-*/**/*")
    return {path: path.stat().st_mtime_ns for path in found if path.is_file()}


def killed(launch: Launcher, store: Path, arguments: list[str], point: str) -> None:
    ended = launch(*arguments, store=store, INFUSER_CRASH_AT=point)
    assert ended.code == -signal.SIGKILL, f"{point}: {ended}"


@pytest.mark.parametrize(("phase", "files"), [("convert", 1), pytest.param("chunk", 2, marks=pytest.mark.long)])
def test_finished_books_are_not_worked_on_again(launch: Launcher, tmp_path: Path, phase: str, files: int):
    killed(launch, tmp_path, command(*RULES), f"{phase}:inside:2")
    kept = pieces(tmp_path, phase)
    assert len(kept) == 2 * files, "two books of four"
    killed(launch, tmp_path, ["resume", "one"], f"{phase}:before_commit")
    assert len(pieces(tmp_path, phase)) == 4 * files
    assert {path: pieces(tmp_path, phase)[path] for path in kept} == kept
    killed(launch, tmp_path, ["resume", "one"], "anchor:start")
    assert pieces(tmp_path, phase) == {}, "what is committed needs no pieces"
    (pool,) = (tmp_path / "artifacts" / "pool").glob("*")
    rows = json.loads((pool / "artifact.json").read_text())["rows"]
    assert rows["documents"] > 100


@pytest.fixture
def answering() -> Iterator[tuple[str, Log]]:
    def script(body: dict[str, Any], attempt: int) -> Any:
        prompt = body["messages"][-1]["content"]
        return said(boundaries(prompt) if LINE.search(prompt) else KEEP)

    with server(script) as (address, log):
        yield address, log


def test_a_model_is_asked_about_each_book_and_each_chunk_once(
    launch: Launcher, tmp_path: Path, answering: tuple[str, Log]
):
    address, log = answering
    judge = f"corpus.judge={{type: endpoint, model: reader, url: '{address}'}}"
    arguments = command(*RULES, judge, "corpus.structure=model", "corpus.group=2")
    killed(launch, tmp_path, arguments, "structure:inside:1")
    killed(launch, tmp_path, ["resume", "one"], "structure:after_rename")
    killed(launch, tmp_path, ["resume", "one"], "judge:before_commit")
    killed(launch, tmp_path, ["resume", "one"], "anchor:start")
    shown = [body["messages"][-1]["content"] for body in log.bodies]
    assert len(shown) == len({*shown}) > 100
    assert sum(bool(LINE.search(prompt)) for prompt in shown) == 4
    ran = [entry.phase for entry in Journal(tmp_path, "one").entries() if entry.state == "ran"]
    # The kill between rename and journal leaves an artifact that no attempt wrote down as its own.
    assert {phase: ran.count(phase) for phase in ("structure", "chunk", "judge", "audit", "pool")} == {
        "structure": 1, "chunk": 2, "judge": 2, "audit": 2, "pool": 1,
    }  # fmt: skip


@pytest.mark.long
def test_scanned_shards_of_a_reference_are_not_scanned_again(launch: Launcher, tmp_path: Path):
    data = tmp_path / "mixture"
    data.mkdir()
    for name in ("a", "b", "c"):
        (data / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": f"{name} {n} of them"}) + "\n" for n in range(9))
        )
    store = tmp_path / "store"
    killed(launch, store, command(*RULES, f"corpus.overlap.references=['{data}']"), "audit:shard:2")
    kept = pieces(store, "audit")
    assert len(kept) == 2
    killed(launch, store, ["resume", "one"], "audit:before_commit")
    assert len(pieces(store, "audit")) == 3
    assert {path: pieces(store, "audit")[path] for path in kept} == kept
    killed(launch, store, ["resume", "one"], "anchor:start")
    assert pieces(store, "audit") == {}
