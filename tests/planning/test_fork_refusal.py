"""What cannot change in the middle of a run is refused, with the reason and what to do instead."""

from pathlib import Path

import pytest
from launcher import ROOT

from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, InfuserError, UsageError
from infuser_core.planning.fork import make_fork
from infuser_core.store import runs


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    config = load([ROOT / "configs" / "nano-basic.yaml"], ["cotrain.iterations=3"])
    runs.create_run(root, "base", config.model_dump(mode="json"))
    return root


@pytest.mark.parametrize(
    "change",
    [
        "anchor.world=hard",
        "data.dev.size=5",
        "data.validation.size=5",
        "corpus.chunk.max_tokens=77",
        "corpus.overlap.matched=report",
        "cotrain.optimizer.beta1=0.5",
        "engine.dtype=bfloat16",
        "engine.trainer=fake",
        "engine.sampler=fake",
    ],
)
def test_what_was_settled_before_the_loop_cannot_change_in_it(root: Path, change: str):
    key = change.split("=")[0]
    with pytest.raises(ConfigError, match=f"{key} cannot change at iteration 1: ") as caught:
        make_fork(root, "base", at=1, changes=[change])
    assert "infuser run" in caught.value.hint


@pytest.mark.parametrize(
    "change",
    [
        "corpus.exclude.documents=[d1]",
        "cotrain.reward.name=variance",
        "cotrain.generator.learning_rate=1",
        "prompts=paper",
        "engine.threads=2",
        "seed=1",
    ],
)
def test_what_an_iteration_reads_can(root: Path, change: str):
    assert make_fork(root, "base", at=1, changes=[change]).history.at(0) != make_fork(
        root, "base", at=1, changes=[change]
    ).history.at(1)


@pytest.mark.parametrize(
    ("at", "changes", "said"),
    [
        (4, ["seed=1"], "iterations 0 to 2"),
        (-1, ["seed=1"], "iterations 0 to 2"),
        (1, [], "other settings"),
        (1, ["seed=42"], "nothing to fork for"),
        (2, ["cotrain.iterations=1"], "ends before iteration 2"),
        (1, ["seed"], "key=value"),
        (1, ["cotrain.sed=1"], "unknown key"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused_with_a_hint(root: Path, at: int, changes: list[str], said: str):
    with pytest.raises(InfuserError, match=said) as caught:
        make_fork(root, "base", at=at, changes=changes)
    assert caught.value.hint


def test_its_name_must_be_one(root: Path):
    with pytest.raises(UsageError, match="not a name"):
        make_fork(root, "base", at=1, changes=["seed=1"], name="../up")
