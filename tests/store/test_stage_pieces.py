"""What a killed stage had finished is not done again."""

import signal
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun, copy_store

from infuser_core.errors import DamagedArtifactError
from infuser_core.schemas import BenchmarkResponse, Judgement
from infuser_core.store.pieces import Items, Pieces
from infuser_core.store.tables import read_rows


def judgement(number: int) -> Judgement:
    return Judgement(document_id=f"d{number}", keep=True, reason="", decided_by="judge", response="")


def test_pieces_come_back_in_the_order_they_were_kept(tmp_path: Path):
    pieces = Pieces(tmp_path, Judgement)
    assert pieces.rows() == []
    for start in (0, 2, 4):
        pieces.add([judgement(start), judgement(start + 1)])
    assert Pieces(tmp_path, Judgement).rows() == [judgement(number) for number in range(6)]


def test_a_changed_piece_ends_the_stage_which_then_begins_anew(tmp_path: Path):
    kept, ruled = Pieces(tmp_path / "stage", Judgement), Items(tmp_path / "stage", Judgement)
    kept.add([judgement(1)])
    ruled.keep("book/1", [judgement(2)])
    (path,) = (tmp_path / "stage").glob("judgement/*.parquet")
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)
    with pytest.raises(DamagedArtifactError, match="changed since it was written"):
        ruled.get("book/1")
    assert ruled.get("book/1") is None and kept.rows() == []


def test_a_killed_validation_keeps_its_answers_until_they_are_committed(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    copy_store(small_run.root, tmp_path, without=("respond", "validate", "select"))
    killed = launch(*small_run.arguments, store=tmp_path, INFUSER_CRASH_AT="respond:before_commit")
    assert killed.code == -signal.SIGKILL
    (partial,) = (tmp_path / ".partial").glob("respond-*")
    kept = {path: path.stat().st_mtime_ns for path in partial.rglob("piece-*.parquet")}
    assert kept, "answers were saved before the kill"

    # Killed again at the same place: the pieces that were there are the pieces that are there.
    killed = launch("resume", small_run.name, store=tmp_path, INFUSER_CRASH_AT="respond:before_commit")
    assert killed.code == -signal.SIGKILL
    assert {path: path.stat().st_mtime_ns for path in partial.rglob("piece-*.parquet")} == kept

    killed = launch("resume", small_run.name, store=tmp_path, INFUSER_CRASH_AT="validate:start")
    assert killed.code == -signal.SIGKILL
    assert not partial.exists(), "committed answers need no pieces"
    own = read_rows_of(tmp_path)
    assert own == read_rows_of(small_run.root, only={path.parent.name for path in responses(tmp_path)})


def responses(root: Path) -> list[Path]:
    return sorted((root / "artifacts" / "respond").glob("*/responses.parquet"))


def read_rows_of(root: Path, only: set[str] | None = None) -> list:
    chosen = [path for path in responses(root) if only is None or path.parent.name in only]
    return [row for path in chosen for row in read_rows(path, BenchmarkResponse)]
