"""Retention during a run: the disk has a bound, and removed files can be computed again."""

from pathlib import Path

import pytest
from care_tools import HARMS, MadeUp, bits, doctor, examined, made_up
from crash_points import begun
from launcher import Launcher, SmallRun

from infuser_core.config.run import KeepSettings
from infuser_core.store import pruned, runs
from infuser_core.store.catalogue import Catalogue, checkpoints_of, list_holders
from infuser_core.store.gc import prune_run
from infuser_core.store.journal import Journal
from infuser_core.store.retention import pin

LARGE = ("optimizer", "model", "gradient", "solver_gradient")
ITERATIONS = 6
ROLLING = (
    *("--set", f"cotrain.iterations={ITERATIONS}"),
    *("--set", "cotrain.validate_every=2"),
    *("--set", "store.keep={full: 1, weights_every: 0}"),
)


def extents(run: MadeUp, count: int) -> list[str]:
    return [run.extent(number) for number in range(count + 1)]


def rolled(run: MadeUp, passed: int, *, full: int = 1, every: int = 0, candidates: tuple[int, ...] = ()) -> list[str]:
    found = prune_run(
        run.root, run.name, KeepSettings(full=full, weights_every=every), passed=passed, candidates=candidates
    )
    assert not found.notes
    return extents(run, 6)


def test_the_newest_stay_whole_and_candidates_and_every_so_many_keep_their_weights(tmp_path: Path):
    run = made_up(tmp_path, "run", 6)
    pin(tmp_path, "run@1")
    # Nothing is known to be over but four iterations: what lies beyond belongs to work that goes on.
    assert rolled(run, 4, full=2, candidates=(2,)) == ["mw", "mw", "w", "mw", "mw", "mw", "mw"]
    assert rolled(run, 6, every=3) == ["mw", "mw", "", "w", "", "", "mw"]
    assert {entry.rule for entry in pruned.read_removed(run.checkpoint(4)).values()} == {
        "not among the last 1, nor every 3rd"
    }


def test_what_another_run_holds_stays_and_so_does_everything_beside_a_damaged_record(tmp_path: Path):
    run, other = made_up(tmp_path, "run", 6), made_up(tmp_path, "other", 3)
    assert rolled(run, 6) == ["mw", "mw", "mw", "mw", "", "", "mw"]
    record = tmp_path / "runs" / other.name / "run.json"
    record.write_text(record.read_text() * 2)
    before = bits(tmp_path / "artifacts")
    (note,) = prune_run(tmp_path, "run", KeepSettings(full=1, weights_every=0), passed=6, candidates=()).notes
    assert "nothing is removed while a record is damaged: runs/other" in note and bits(tmp_path / "artifacts") == before


def test_a_run_that_goes_on_meanwhile_is_read_again_and_a_damaged_artifact_of_its_own_harms_nobody(tmp_path: Path):
    run, other = made_up(tmp_path, "run", 6), made_up(tmp_path, "other", 1)
    apart = made_up(tmp_path, "apart", 2, seed=1)
    HARMS["garbled record"](apart.checkpoint(1), "")
    assert rolled(run, 2) == ["mw"] * 7
    made_up(tmp_path, other.name, 3)
    assert rolled(run, 6) == ["mw", "mw", "mw", "mw", "", "", "mw"]


def test_what_an_evaluation_was_made_from_stays(tmp_path: Path):
    run = made_up(tmp_path, "run", 6)
    examined(run, 3)
    assert rolled(run, 6) == ["mw", "mw", "mw", "mw", "", "", "mw"]


def test_nothing_is_removed_while_somebody_else_cleans_up(tmp_path: Path):
    run = made_up(tmp_path, "run", 2)
    with runs.hold_sweep_lock(tmp_path):
        found = prune_run(tmp_path, run.name, KeepSettings(full=1, weights_every=0), passed=2, candidates=())
    assert found.items == [] and "another process removes files" in found.notes[0]


def large_bytes(root: Path) -> int:
    """Bytes of checkpoints and gradients that are there."""
    files = [path for path in root.glob("artifacts/*/*/*.safetensors") if path.name.startswith(LARGE)]
    return sum(path.stat().st_size for path in files)


@pytest.mark.slow
def test_the_disk_is_constant_and_what_was_removed_comes_back_bit_for_bit(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    whole, rolling = (begun(small_run, tmp_path / name) for name in ("whole", "rolling"))
    ended = launch(*small_run.arguments, *ROLLING[:4], store=whole)
    assert ended.code == 0, ended.err
    seen = []
    for number in range(3, ITERATIONS):
        # Stopped where an iteration has written all and removed nothing yet, and resumed.
        ended = launch(*small_run.arguments, *ROLLING, "--until", f"update_solver@{number}", store=rolling)
        assert ended.code == 0, ended.err
        seen.append(large_bytes(rolling))
    # The best checkpoint so far keeps the weights of both roles, unless it is the newest, which is whole anyway.
    weights = 2 * next(rolling.glob("artifacts/update_solver/*/model.safetensors")).stat().st_size
    assert set(seen) <= {min(seen), min(seen) + weights}, seen
    ended = launch(*small_run.arguments, *ROLLING, store=rolling)
    assert ended.code == 0, ended.err
    digests = [launch("status", "--digest", "small", store=store).out for store in (whole, rolling)]
    assert digests[0] == digests[1] and large_bytes(rolling) < seen[-1] < large_bytes(whole) / 2
    assert doctor(launch, rolling)["damage"] == []

    (holder,) = list_holders(rolling)
    thin = [number for number, record in checkpoints_of(Catalogue(rolling), holder)
            if pruned.read_removed(rolling / "artifacts" / record.phase / record.key)]  # fmt: skip
    assert {1, 3}.issubset(thin)
    repaired = launch("doctor", "--repair", "small", "--iteration", "3", store=rolling)
    assert repaired.code == 0, repaired.err
    for phase in ("update_solver", "update_generator"):
        (key,) = {e.key for e in Journal(whole, "small").latest() if (e.phase, e.iteration) == (phase, 2)}
        for name in ("model.safetensors", "optimizer.safetensors"):
            one, other = (store / "artifacts" / phase / key / name for store in (whole, rolling))
            assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_a_run_computes_again_what_the_retention_of_one_with_the_same_beginnings_removed(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    shared, alone = (begun(small_run, tmp_path / name) for name in ("shared", "alone"))
    rolling = (*ROLLING, "--set", "cotrain.iterations=2")
    ended = launch(*small_run.arguments, *rolling, store=shared)
    assert ended.code == 0, ended.err
    # The generator is another one from its first update on; the solver's first update is the same.
    other = [*small_run.arguments, *rolling, "--set", "cotrain.generator.learning_rate=1e-5", "--name", "other"]
    for store in (alone, shared):
        ended = launch(*other, store=store)
        assert ended.code == 0, ended.err
    digests = [launch("status", "--digest", "other", store=store).out for store in (alone, shared)]
    assert digests[0] == digests[1] and doctor(launch, shared)["damage"] == []
    theirs = {entry.key for entry in Journal(shared, "small").entries()}
    assert [e.phase for e in Journal(shared, "other").entries() if e.state == "ran" and e.key in theirs]


@pytest.mark.slow
def test_what_a_kill_behind_the_last_iteration_left_goes_when_the_run_is_resumed(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = begun(small_run, tmp_path / "store")
    arguments = [*small_run.arguments, *ROLLING, "--set", "cotrain.iterations=1"]
    killed = launch(*arguments, store=store, INFUSER_CRASH_AT="gc:recorded")
    assert killed.code == -9 and len(list(store.glob("artifacts/dev_gradient/*/gradient.safetensors"))) == 1
    assert launch("resume", "small", store=store).code == 0
    assert list(store.glob("artifacts/dev_gradient/*/gradient.safetensors")) == []


@pytest.mark.slow
def test_a_role_that_waits_for_its_turn_keeps_its_newest_checkpoint(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = begun(small_run, tmp_path / "store")
    turns = ("--set", "cotrain.turns={generator: 1, solver: 4}")
    ended = launch(*small_run.arguments, *ROLLING, *turns, store=store)
    assert ended.code == 0, ended.err
