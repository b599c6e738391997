"""After a repair the doctor finds nothing, and every bit is the undisturbed run's."""

from pathlib import Path

import pytest
from care_tools import HARMS, WEIGHTS, artifact_of, copy_run, differing, doctor
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal

# The middle of a chain of checkpoints; its optimizer; an input of everything; a table between two phases.
PLACES = [
    ("update_solver", 0, WEIGHTS),
    ("update_generator", 0, "optimizer.safetensors"),
    ("judge", -1, "judgements.parquet"),
]
CASES = [
    ("flipped bit", *PLACES[0]),
    ("truncated", *PLACES[1]),
    ("lost record", *PLACES[2]),
    ("deleted", *PLACES[0]),
    ("garbled record", *PLACES[0]),
    ("lost artifact", *PLACES[1]),
    ("flipped bit", *PLACES[2]),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "phase", "iteration", "name"),
    [case if number < 3 else pytest.param(*case, marks=pytest.mark.long) for number, case in enumerate(CASES)],
)
def test_a_repaired_run_has_the_undisturbed_runs_bits(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, harm: str, phase: str, iteration: int, name: str
):
    store = copy_run(small_run, tmp_path / "store")
    folder = artifact_of(store, "small", phase, iteration)
    HARMS[harm](folder, name)
    damage = doctor(launch, store, "small")["damage"]
    assert folder.name in {problem["key"] for problem in damage}
    assert all("infuser repair small" in problem["remedy"] for problem in damage)

    repaired = launch("repair", "small", store=store)
    assert repaired.code == 0, repaired.err
    assert f"computed again {folder.name}: the same digest" in repaired.out
    assert [entry.key for entry in Journal(store, "small").last_attempt() if entry.state == "ran"] == [folder.name]
    assert differing(small_run, store) == []
    healthy = doctor(launch, store)
    assert healthy["damage"] == []
    aside = list((store / "damaged").glob("*")) if (store / "damaged").exists() else []
    assert len(aside) == (harm != "lost artifact")
    assert ("set aside" in repaired.out) == bool(aside)
