"""Plug-ins: every file of a folder is one, others are named by their module, and anything else is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus.find.catalogue import SHIPPED
from infuser_core.cotrain.reward import Reward, find_reward
from infuser_core.cotrain.route import find_route
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark, find_benchmark
from infuser_core.plugins import BENCHMARKS, REWARDS, ROUTES, VERIFIERS, Registry
from infuser_core.verifiers.parts.batch import find_verifier

LOADERS: list[tuple[Registry, Callable[[str], Any]]] = [
    (REWARDS, find_reward),
    (ROUTES, find_route),
    (VERIFIERS, find_verifier),
    (BENCHMARKS, find_benchmark),
    (SHIPPED, lambda name: SHIPPED.find(name, "find")),
]
FILES = [(registry, load, name) for registry, load in LOADERS for name in registry.names()]
KNOWN = {
    "reward": {"constant", "influence", "learnability", "r_zero", "spice", "uncertainty", "variance"},
    "route": {"abduction", "challenge", "deduction", "direct", "free_form", "induction", "mcq"},
    "verifier": {"arguments", "bbeh", "choice", "code", "exact", "integer", "literal", "math"},
    "benchmark": {"aime2024", "gpqa_diamond", "math500", "released", "supergpqa"},
    "catalogue": {"arxiv", "doab", "local", "openstax"},
}


@pytest.mark.parametrize(("registry", "load", "name"), FILES, ids=[f"{r.kind}-{name}" for r, _, name in FILES])
def test_every_file_of_a_folder_loads(registry: Registry, load: Callable[[str], Any], name: str):
    assert load(name) is not None


@pytest.mark.parametrize(("registry", "load"), LOADERS, ids=[registry.kind for registry, _ in LOADERS])
def test_an_unknown_name_lists_what_exists(registry: Registry, load: Callable[[str], Any]):
    assert KNOWN[registry.kind] <= set(registry.names())
    for name in ("nonsense", "parts", "protocol", ""):
        with pytest.raises(ConfigError, match=f"no {registry.kind} '{name}'") as caught:
            load(name)
        assert caught.value.hint == f"one of {', '.join(registry.names())}; or {registry.outside}"


@pytest.mark.parametrize(
    ("load", "name", "reason"),
    [
        (find_reward, "no_package.module:name", "cannot be imported"),
        (find_reward, "math:no_such_name", "cannot be imported"),
        (find_reward, "math:pi", "is not a function"),
        (find_route, "no_package.way", "cannot be imported"),
        (find_route, "os.path", "cannot be used: .*TEMPLATE"),
        (find_verifier, "no_such_package.module:Name", "cannot be imported"),
        (find_verifier, "json:dumps", "has no check"),
        (find_benchmark, "no_package.module:load", "cannot be imported"),
    ],
)
def test_a_foreign_module_that_does_not_fit_says_why(load: Callable[[str], Any], name: str, reason: str):
    with pytest.raises(ConfigError, match=f"{name.split(':')[0]}.*{reason}"):
        load(name)


def test_a_route_reads_or_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_routes").mkdir()
    (tmp_path / "own_routes" / "way.py").write_text("TEMPLATE = ''\nNEEDS_DOCUMENT = False")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"own_routes\.way' needs `read` or `carry`"):
        find_route("own_routes.way")


def test_one_of_the_shipped_can_be_named_from_outside():
    assert find_verifier("infuser_core.verifiers:exact") is find_verifier("exact")
    benchmark = "infuser_core.evaluation.benchmarks.math500:BENCHMARK"
    assert find_benchmark(benchmark) and describe_benchmark(benchmark) is describe_benchmark("math500")
    assert find_reward("infuser_core.cotrain.rewards.variance:reward").needs_influence is False
    assert find_reward("math:fsum").needs_influence is True, "whoever does not say otherwise needs it"


def test_a_reward_of_the_wrong_length_is_named_with_both_counts():
    reward = Reward(name="mine:rewards", needs_influence=False, function=lambda scores, questions: [1.0])
    assert reward.of([None], [None]) == [1.0]
    with pytest.raises(ConfigError, match="reward mine:rewards returned 1 number for 2 questions"):
        reward.of([None, None], [None, None])
