"""A killed stage continues from its finished pieces, and ends with the same artifact."""

import signal
from pathlib import Path

import pytest
from engine_tiny import make_checkpoint
from launcher import Launcher, SmallRun, copy_store
from stock_engines import hf_sampler

from infuser_core.errors import DamagedArtifactError
from infuser_core.evaluation import resumable_sampling
from infuser_core.evaluation.resumable_sampling import Drawn, sample_resumably
from infuser_core.protocols import PromptGroup, SamplingParams
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


PARAMS = SamplingParams(temperature=1.0, max_tokens=30)
GROUPS = [
    PromptGroup(group_id=f"g{place}", token_ids=[2 + place] * (3 + place % 4), seeds=[10 * place, 10 * place + 1])
    for place in range(12)
]


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_killed_draw_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    monkeypatch.setattr(resumable_sampling, "SAVE_SECONDS", 0.0)
    # Room for two or three groups: several batches, whose make-up decides about the last bits.
    sampler = hf_sampler(cache_tokens=200)
    sampler.load(make_checkpoint(tmp_path))
    expected = sample_resumably(GROUPS, sampler, PARAMS)
    seen: list[tuple[int, int, int]] = []

    def kill(*numbers: int) -> None:
        seen.append(numbers)
        if len(seen) == calls:
            raise Killed

    kept = Pieces(tmp_path / "kept", Drawn)
    with pytest.raises(Killed):
        sample_resumably(GROUPS, sampler, PARAMS, saved_rows=kept, progress=kill)
    before = {row.group_id for row in kept.rows()}
    assert 0 < len(before) < len(GROUPS)
    after: list[tuple[int, int, int]] = []
    found = sample_resumably(GROUPS, sampler, PARAMS, saved_rows=kept, progress=lambda *numbers: after.append(numbers))
    # To the last bit: the log-probabilities as well.
    assert found == expected
    assert after[0][0] > seen[-1][0]
    assert after[-1] == (24, 24, sum(len(each.token_ids) for samples in expected.values() for each in samples))


def test_short_draws_write_nothing(tmp_path: Path) -> None:
    sampler = hf_sampler()
    sampler.load(make_checkpoint(tmp_path))
    kept = Pieces(tmp_path / "kept", Drawn)
    sample_resumably(GROUPS, sampler, PARAMS, saved_rows=kept)
    assert kept.rows() == []
