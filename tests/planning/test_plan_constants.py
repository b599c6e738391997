import csv
from dataclasses import fields, replace
from pathlib import Path

import pytest

import infuser_core.capacity
from infuser_core.capacity.forecast import Asked, packed, published
from infuser_core.capacity.hardware import Efficiency, calibrated
from infuser_core.config.overlays import load

ROOM = Path(infuser_core.capacity.__file__).parent


def test_six_constants_are_all_there_are():
    with (ROOM / "constants.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [field.name for field in fields(Efficiency)]
    assert len(rows) <= 6


def test_no_table_holds_a_measured_second():
    seconds = {"193", "341", "138", "131", "415", "668", "303", "547", "151", "245", "334", "619", "1730", "2761"}
    for path in ROOM.glob("*.csv"):
        with path.open() as file:
            values = {value for row in csv.DictReader(file) for value in row.values()}
        assert values & seconds == set(), path.name


def test_a_models_name_decides_nothing_but_its_lengths(tmp_path):
    config = load([Path("configs/qwen3-8b.yaml")])
    known = Asked.of(config, "8xH100")
    renamed = replace(known, shape=replace(known.shape, name="somebody-elses"))
    assert [phase.seconds for phase in published(renamed)] == [phase.seconds for phase in published(known)]


@pytest.mark.parametrize("name", [field.name for field in fields(Efficiency)])
def test_every_constant_moves_the_seconds_its_own_way(name: str):
    asked = Asked.of(load([Path("configs/qwen3-8b.yaml")]), "8xH100")
    base = calibrated()
    worse = getattr(base, name) * (0.5 if name in ("matmul", "memory", "link") else 2.0)
    changed = replace(base, **{name: worse})
    for phases in (published, packed):
        pairs = list(zip(phases(asked, base), phases(asked, changed), strict=True))
        assert all(after.seconds >= before.seconds - 1e-9 for before, after in pairs)
        assert any(after.seconds > before.seconds for before, after in pairs)
