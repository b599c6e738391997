"""`run` and `resume` with --until, --only, --from and --dry-run, and `fork`, as commands on a real small run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from launcher import Finished, Launcher

from infuser_core.store.journal import Journal
from infuser_core.store.store import Store

NANO = "configs/nano.yaml"
SMALL = {
    "data": {"dev": {"size": 4}, "validation": {"size": 4}},
    "cotrain": {
        "iterations": 2,
        "dev_only": True,
        "solver_tokens": 16,
        "group_size": 4,
        "validate_every": 1,
        "generator": {"update": False},
        "solver": {"minibatch": 2},
    },
    "evaluate": {"benchmarks": []},
}


class Small:
    """A store with one run, which the tests of this file carry on one after the other."""

    def __init__(self, launch: Launcher, root: Path) -> None:
        self._launch, self.root = launch, root
        self.overlay = root.parent / "small.yaml"
        self.overlay.write_text(yaml.safe_dump(SMALL))

    def __call__(self, *arguments: str) -> Finished:
        return self._launch(*arguments, store=self.root)

    def done(self, *arguments: str) -> str:
        ended = self(*arguments)
        assert ended.code == 0, ended.err
        return ended.out

    def ran(self, run: str = "base") -> list[str]:
        """What the latest attempt computed."""
        entries = Journal(self.root, run).last_attempt()
        return [f"{entry.phase}@{entry.iteration}" for entry in entries if entry.state == "ran"]


@pytest.fixture(scope="module")
def small(launch: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    yield Small(launch, tmp_path_factory.mktemp("options") / "store")


def test_a_place_that_the_run_does_not_have_is_one_line_with_the_valid_names(small: Small):
    ended = small("run", NANO, str(small.overlay), "--name", "base", "--until", "update_solver@7")
    assert ended.code == 2
    assert "--until update_solver@7: update_solver has no iteration 7" in ended.err
    assert "hint: iterations: 0..1" in ended.err
    assert not (small.root / "runs" / "base").exists()


def test_until_stops_cleanly_and_resuming_goes_on_from_there(small: Small):
    said = small.done("run", NANO, str(small.overlay), "--name", "base", "--until", "validate@1")
    assert "run base stopped after validate@1, as requested; `infuser resume base` continues it" in said
    assert small.ran()[-1] == "validate@1"
    assert not Journal(small.root, "base").is_finished()
    again = small.done("resume", "base", "--until", "validate@1")
    assert "stopped after validate@1" in again
    assert small.ran() == []


def test_only_computes_one_stage_and_refuses_without_its_inputs(small: Small):
    refused = small("resume", "base", "--only", "update_solver@1")
    assert refused.code == 2
    assert "its input rollouts (rollout_dev, iteration 1) is not in the store" in refused.err
    assert "--until update_solver@1" in refused.err
    small.done("resume", "base", "--only", "rollout_dev@1")
    assert small.ran() == ["rollout_dev@1"]


def test_a_resumed_run_computes_the_rest_alone(small: Small):
    planned = json.loads(small.done("resume", "base", "--dry-run", "--json"))
    expected = [f"{stage['phase']}@{-1 if stage['iteration'] is None else stage['iteration']}"
                for stage in planned["stages"] if stage["state"] == "would run"]  # fmt: skip
    small.done("resume", "base")
    assert small.ran() == expected
    assert expected[0] == "update_solver@1"
    assert Journal(small.root, "base").is_finished()


def test_from_a_place_on_is_computed_again_under_other_keys(small: Small):
    before = {ref.id for ref in Store(small.root).refs()}
    small.done("resume", "base", "--from", "update_solver@1")
    assert small.ran()[0] == "update_solver@1"
    assert "rollout_dev@1" not in small.ran()
    after = {ref.id for ref in Store(small.root).refs()}
    assert before < after
    small.done("resume", "base")
    assert small.ran() == [], "a resumed run goes on with what was computed again"


def test_the_same_work_again_gives_the_same_content(small: Small):
    store = Store(small.root)
    updates = [
        ref for ref in store.refs() if ref.kind == "update_solver" and store.manifest(ref).recipe["iteration"] == 1
    ]
    assert len(updates) == 2
    assert len({ref.key for ref in updates}) == 2
    assert len({ref.digest for ref in updates}) == 1


def test_a_fork_computes_its_own_iterations_alone(small: Small):
    rate = ("--set", "cotrain.solver.learning_rate=1e-3")
    planned = json.loads(small.done("run", "--fork", "base@1", *rate, "--dry-run", "--json"))
    assert planned["recorded"] is False
    made = json.loads(small.done("run", "--fork", "base@1", *rate, "--name", "fork", "--json"))
    assert (made["forked_from"], made["at"], made["recorded"]) == ("base", 1, True)
    assert small.ran("fork")[0] == "update_solver@1"
    assert not {name for name in small.ran("fork") if name.endswith("@0")}
    refused = small("run", "--fork", "base@1", "--set", "anchor.world=basic")
    assert refused.code == 2
    assert "anchor.world cannot change at iteration 1" in refused.err
