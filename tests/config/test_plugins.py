"""Plug-ins: one file is one part, found by its name; other code needs its module, where that is allowed."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from engine_tiny import make_checkpoint
from launcher import Launcher, SmallRun
from places import ROOT
from test_studies import values
from torch import nn

from corpus.find.catalogue import SHIPPED, connect
from corpus.read.convert import SourceFile, convert
from corpus.read.page import ConversionJob
from infuser_core.config.corpus import ConvertSettings
from infuser_core.config.optimizers import OPTIMIZERS, options_of
from infuser_core.config.overlays import load
from infuser_core.cotrain.reward import find_reward
from infuser_core.cotrain.route import find_route
from infuser_core.cotrain.studies.candidates import SCORES
from infuser_core.engines.training.checkpoint import read_state
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.optimizer import build_optimizer
from infuser_core.errors import ConfigError
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark, find_benchmark
from infuser_core.nano.build import build_anchor
from infuser_core.plugins import BENCHMARKS, REWARDS, ROUTES, VERIFIERS, Registry, find_object
from infuser_core.schemas import Page, Question, Topic
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.system.worker_pool import LocalPool
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
    "reward": {"constant", "influence", "learnability", "r_zero", "random", "spice", "uncertainty", "variance"},
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


OUTSIDE = ROOT / "tests" / "support" / "outside"


@contextmanager
def added(registry: Registry, folder: Path) -> Iterator[None]:
    """The files of a folder as if they lay in the registry's."""
    places = importlib.import_module(registry.package).__path__
    before = {*sys.modules}
    places.append(str(folder))
    try:
        yield
    finally:
        places.remove(str(folder))
        for name in {*sys.modules} - before:
            if name.startswith(registry.package):
                del sys.modules[name]


@pytest.mark.slow
def test_a_run_of_foreign_parts(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    """A reward, a route, an optimizer with a constant of its own, a world, a benchmark, its verifier and a tracker."""
    (store := tmp_path / "store").mkdir()
    settings = [
        "cotrain.reward.name=outside.parts:rewards",
        "cotrain.route=outside.way",
        "cotrain.optimizer={name: outside.lion, constants: {blend: 0.8}}",
        "anchor.world=basic",
        *(f"{place}.world=outside.small" for place in ("data.dev", "data.validation", "corpus.catalogue")),
        "evaluate.benchmarks=[{name: 'outside.parts:load', world: outside.small}]",
        "track=['outside.parts:track']",
    ]
    chosen = [word for setting in settings for word in ("--set", setting)]
    ended = launch(*small_run.arguments[:-1], "foreign", *chosen, store=store)
    assert ended.code == 0, ended.err
    made = {entry.phase: entry.key for entry in Journal(store, "foreign").latest()}
    (update,) = Store(store).refs(made["update_solver"])
    kept = read_state(Store(store).verified_folder(update)).optimizer
    assert (kept["name"], kept["blend"]) == ("outside.lion", 0.8)
    (written,) = Store(store).refs(made["generate_questions"])
    domains = {row.domain for row in Store(store).rows(written, "questions", Question)}
    assert domains == {"this way"}
    (notes,) = (store / "runs" / "foreign").rglob("phases.jsonl")
    assert "update_solver" in [json.loads(line) for line in notes.read_text().splitlines()]


def test_an_optimizer_in_the_folder_has_its_files_name():
    with added(OPTIMIZERS, OUTSIDE):
        flat = FlatParameters({"weight": nn.Parameter(torch.ones(3, 2))}, outer=[])
        optimizer = build_optimizer(flat, options_of({"name": "lion", "blend": 0.0}))
        flat.gradient.fill_(0.1)
        optimizer.step(0.5)
        assert (optimizer.options.name, "lion" in OPTIMIZERS.names()) == ("lion", True)
        weight = flat.views(flat.data)["weight"]
        torch.testing.assert_close(weight, torch.full_like(weight, 1.0 - 0.5 * 0.01 - 0.5))
    assert "lion" not in OPTIMIZERS.names()


def test_a_score_in_the_folder_is_compared_with_the_others(tmp_path: Path):
    with added(SCORES, OUTSIDE / "scores"):
        found, _ = values(make_checkpoint(tmp_path), tmp_path, [])
    assert found["brevity"] == {name: -value for name, value in found["short"].items()}


def test_a_converter_and_a_catalogue(tmp_path: Path):
    (book := tmp_path / "book.pdf").write_bytes(b"%PDF-1.7")
    pages: list[Page] = []
    job = ConversionJob(settings=ConvertSettings(type="outside.reader"))
    convert([SourceFile(path=book, source_id="book")], job, LocalPool(1), pages.append)
    assert [(page.converter, page.status) for page in pages] == [("outside.reader", "converted")]
    with httpx.Client() as client:
        (offer,) = connect("outside.shelf", client=client).search(
            Topic(domain="physics", subdomain="optics", num_questions=1), "optics"
        )
    assert (offer.catalogue, offer.title) == ("outside.shelf", "optics")


@pytest.mark.slow
def test_a_worlds_anchor_is_built_by_its_schedule(tmp_path: Path):
    card = build_anchor(tmp_path / "anchor", steps_scale=1.0, world="outside.small")
    assert (card["schedule"]["steps"], card["world"]["num_topics"]) == (2, 5)
