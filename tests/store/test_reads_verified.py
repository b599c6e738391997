"""Readers give the answer of the undamaged store, or say which file is damaged: never another answer."""

import shutil
from pathlib import Path

import pytest
from care_tools import HARMS, artifact_of, copy_run
from launcher import Launcher, SmallRun

from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import artifact_folder

QUESTIONS = ("generate_questions", 1, "questions.parquet")
VALIDATED = ("validate", 2, "benchmark_scores.parquet")
# A reader, its words, and a file that its answer depends on.
READERS = {
    "sql": (["sql", "select * from questions"], QUESTIONS),
    "sql of a view": (["sql", "select text from question_history"], QUESTIONS),
    "sql of records": (["sql", "select seconds from artifacts"], (*QUESTIONS[:2], "artifact.json")),
    "report": (["report", "small"], VALIDATED),
    "report compare": (["report", "compare", "small"], VALIDATED),
    "report habits": (["report", "habits", "small"], ("rollout_questions", 1, "rollouts.parquet")),
    "result": (["result", "small"], ("select", -1, "selections.parquet")),
    "show": (["show", "KEY"], QUESTIONS),
    "why": (["why", "small@2"], ("update_solver", 1, "updates.parquet")),
    "why --graph": (["why", "--graph", "small"], (*VALIDATED[:2], "artifact.json")),
    "diff": (["diff", "small", "small"], ("score_influence", 1, "scores.parquet")),
    "export": (["export", "small", "--iteration", "2", "--out", "FOLDER"], ("update_solver", 1, "model.safetensors")),
    "rescore": (["eval", "rescore", "small"], ("respond", 0, "responses.parquet")),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_flipped_bit_is_refused_in_one_line(launch: Launcher, small_run: SmallRun, tmp_path: Path, reader: str):
    words, (phase, iteration, name) = READERS[reader]
    store = copy_run(small_run, tmp_path / "store")
    folder = _folder(store, phase, iteration)
    HARMS["garbled record" if name == "artifact.json" else "flipped bit"](folder, name)
    stands_for = {"KEY": folder.name, "FOLDER": str(tmp_path / "out")}
    ended = launch(*[stands_for.get(word, word) for word in words], store=store)
    assert (ended.code, ended.out) == (3, ""), ended
    said, hint = ended.err.splitlines()
    assert str(folder / name) in said and "`infuser doctor --repair`" in hint


def _folder(store: Path, phase: str, iteration: int) -> Path:
    """The artifact of a stage; of several, the one whose answers were evaluated."""
    if phase != "respond":
        return artifact_of(store, "small", phase, iteration)
    key = artifact_of(store, "small", "evaluate", iteration).name
    return artifact_folder(store, Catalogue(store).input_ref(key, "responses").key)


@pytest.mark.parametrize("harm", sorted(HARMS))
def test_every_harm_to_a_table_is_refused(launch: Launcher, small_run: SmallRun, tmp_path: Path, harm: str):
    store = copy_run(small_run, tmp_path / "store")
    folder = artifact_of(store, "small", "generate_questions", 1)
    HARMS[harm](folder, "questions.parquet")
    ended = launch("sql", "select count(*) from questions", store=store)
    assert (ended.code, ended.out) == (3, "") and folder.name in ended.err and "`infuser doctor" in ended.err


def test_only_the_tables_that_a_statement_names_are_read(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_run(small_run, tmp_path / "store")
    HARMS["flipped bit"](artifact_of(store, "small", "score_influence", 1), "scores.parquet")
    assert launch("sql", "select count(*) from questions", store=store).code == 0


def test_a_store_may_lie_behind_a_link(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    (tmp_path / "link").symlink_to(copy_run(small_run, tmp_path / "store"))
    assert launch("sql", "select count(*) from questions", store=tmp_path / "link").code == 0


def test_what_is_computed_again_takes_the_place_of_a_link_to_nowhere(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = copy_run(small_run, tmp_path / "store")
    folder = artifact_of(store, "small", "leakage", -1)
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "nowhere")
    ended = launch("doctor", "small", "--repair", store=store)
    assert ended.code == 0, ended
    assert folder.is_dir() and not folder.is_symlink()
