"""Runs with vLLM's real engines on a CPU (`make test-vllm`): weights are pushed while a commit is on its way."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fault_tools import store_without
from launcher import Launcher, SmallRun

from infuser_core.store.journal import Journal
from infuser_core.store.store import Store

WHERE = os.environ.get("INFUSER_VLLM_PYTHON") or (sys.executable if find_spec("vllm") else "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not WHERE, reason="no vllm: set INFUSER_VLLM_PYTHON, or `make test-vllm`"),
]
SAMPLED = ("respond", "validate", "rollout_dev", "generate_questions", "rollout_questions")


def test_engines_take_weights_while_a_checkpoint_is_still_committed(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store, points = store_without(small_run, tmp_path / "store", *SAMPLED), tmp_path / "points"
    options = ("engine.sampler=vllm", "engine.write_beside=true", "cotrain.validate_every=2")
    settings = [word for option in options for word in ("--set", option)]
    # The second dev gradient lies complete only when the generator's new weights have written all questions.
    meets = "until-generate_questions:before_commit:2@dev_gradient:before_rename:2"
    place = {"INFUSER_POINTS": str(points), "INFUSER_CRASH_AT": meets, "INFUSER_VLLM_PYTHON": WHERE}
    running = launch.start(*small_run.arguments, *settings, store=store, **place)
    # Three models' engines start, a minute each where other work keeps the cores.
    ended = running.wait(540.0)
    assert ended.code == 0, ended.err
    passed = points.read_text().split()
    written = [place for place, name in enumerate(passed) if name == "generate_questions:before_commit"][1]
    assert written < [place for place, name in enumerate(passed) if name == "dev_gradient:after_rename"][1]
    keys = {entry.key: entry for entry in Journal(store, "small").latest()}
    ways = {
        (ref.kind, keys[ref.key].iteration): Store(store).manifest(ref).machine["sampler"]["weights"]
        for ref in Store(store).refs()
        if ref.key in keys and ref.kind in ("rollout_dev", "generate_questions")
    }
    assert ways == {
        ("rollout_dev", 0): "fresh",
        ("generate_questions", 0): "fresh",
        ("rollout_dev", 1): "memory",
        ("generate_questions", 1): "memory",
    }
