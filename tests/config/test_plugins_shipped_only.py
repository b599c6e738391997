"""Where only the project's own code may be named, a setting that names other code is refused before it is imported."""

import sys
from pathlib import Path
from typing import Any

import pytest

from corpus.find.catalogue import SHIPPED
from infuser_core.config.overlays import load
from infuser_core.cotrain.reward import find_reward
from infuser_core.cotrain.route import find_route
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.plugins import find_object
from infuser_core.verifiers.parts.batch import find_verifier

FINDS: list[Any] = [
    lambda: find_reward("antigravity:open"),
    lambda: find_route("antigravity.more"),
    lambda: find_verifier("antigravity:open"),
    lambda: find_benchmark("antigravity:open"),
    lambda: SHIPPED.find("antigravity.more", "find"),
    lambda: find_object("antigravity:open", key="cotrain.question.labeller"),
    lambda: load([Path("nano")], ["cotrain.optimizer.name=antigravity.more"]),
    lambda: load([Path("nano")], ["corpus.catalogue.world=antigravity.more"]),
]


@pytest.mark.parametrize(
    "find", FINDS, ids=["reward", "route", "verifier", "benchmark", "catalogue", "labeller", "optimizer", "world"]
)
def test_code_from_outside_is_refused_and_never_imported(find: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_PLUGINS", "shipped")
    with pytest.raises(ConfigError, match=r"antigravity.* is code from outside INFUSER") as refused:
        find()
    assert "infuser serve --allow-plugins" in refused.value.hint
    assert "antigravity" not in sys.modules


def test_the_project_s_own_code_may_be_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_PLUGINS", "shipped")
    assert find_object("infuser_core.nano.lab:label", key="cotrain.question.labeller")
    assert find_reward("infuser_core.cotrain.rewards.variance:reward") and find_reward("influence")


def test_any_code_may_be_named_by_who_runs_it_himself():
    assert find_object("json:dumps", key="cotrain.question.labeller")


def test_another_word_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_PLUGINS", "yes")
    with pytest.raises(ConfigError, match="INFUSER_PLUGINS = 'yes'"):
        find_route("package.module")
