"""One file means one file: one more of every kind works as soon as it lies in a package, and nothing else is edited."""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch
from engine_tiny import make_checkpoint
from launcher import Launcher, SmallRun
from places import ROOT
from test_studies import values
from torch import nn

from corpus.find.catalogue import connect
from corpus.read.convert import SourceFile, convert
from corpus.read.page import ConversionJob
from infuser_core.config.corpus import ConvertSettings
from infuser_core.config.optimizers import OPTIMIZERS, options_of
from infuser_core.cotrain.studies.candidates import SCORES
from infuser_core.engines.training.checkpoint import read_state
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.optimizer import build_optimizer
from infuser_core.nano.build import build_anchor
from infuser_core.plugins import Registry
from infuser_core.schemas import Page, Question, Topic
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.system.worker_pool import LocalPool

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
    assert "outside.lion's direction" in ended.err + ended.told
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
