"""The folder of an examination: one writer, whole parts, and damage that is named."""

from pathlib import Path

import pytest
from test_rescore_command import exam, responses

from infuser_core.errors import BusyRunError, DamagedArtifactError, DocumentError, UsageError
from infuser_core.evaluation.folder import RECORD, ExamFolder


def test_a_second_writer_is_told_who_writes(tmp_path: Path):
    folder = exam(tmp_path / "exam")
    with folder.holding():
        with pytest.raises(BusyRunError, match="is being written by process") as caught:
            with ExamFolder(folder.path).holding():
                pass
    assert caught.value.exit_code == 2
    with folder.holding():
        pass


def test_parts_hold_complete_questions_once(tmp_path: Path):
    folder = exam(tmp_path / "exam")
    assert folder.finished() == {("letters", f"q{number}") for number in range(10)}
    assert sorted(row.question_id for rows in folder.chunks() for row in rows) == sorted(
        row.question_id for row in responses(10)
    )
    part = folder.parts()[0]
    part.with_name("part-copy.parquet").write_bytes(part.read_bytes())
    with pytest.raises(DamagedArtifactError, match="repeats question q"):
        folder.finished()


def test_a_part_that_was_cut_is_named(tmp_path: Path):
    folder = exam(tmp_path / "exam")
    part = folder.parts()[0]
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(DocumentError, match=part.name):
        folder.finished()


def test_what_a_killed_process_left_is_swept_or_taken_up(tmp_path: Path):
    folder = exam(tmp_path / "exam", 3)
    plan, before = folder.plan(), folder.finished()
    (folder.path / "responses" / ".part-00.parquet.tmp").write_bytes(b"half")
    with folder.holding():
        folder.begin({"model": "m"}, {"model": "m", "notes": []}, plan)
    assert folder.finished() == before and not list(folder.path.rglob("*.tmp"))

    young = ExamFolder(tmp_path / "young")
    young.path.mkdir()
    # Killed between the questions and the record that vouches for them.
    (young.path / "questions.parquet").write_bytes(b"half")
    with young.holding():
        young.begin({"model": "m"}, {"model": "m", "notes": []}, plan)
    assert young.plan() == plan


def test_answers_without_a_record_are_nobodys(tmp_path: Path):
    folder = exam(tmp_path / "exam", 3)
    (folder.path / RECORD).unlink()
    with pytest.raises(UsageError, match="holds something else: responses without a record"):
        with folder.holding():
            pass
    with pytest.raises(UsageError, match="holds no examination"):
        folder.record()


def test_a_damaged_record_is_named(tmp_path: Path):
    folder = exam(tmp_path / "exam", 3)
    (folder.path / RECORD).write_text("{")
    with pytest.raises(DamagedArtifactError, match=r"evaluation\.json is damaged"):
        folder.plan()
