"""Shipped configurations go by their names, files of that name come first, and a first one is written by `init`."""

import json
from pathlib import Path

import pytest
from places import CONFIGS
from typer.testing import CliRunner

from flows.cli.main import app
from infuser_core.config import shipped
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, UsageError
from infuser_core.planning.preflight import preflight
from infuser_core.planning.sweeps import read_sweep


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without `configs/`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", ["nano", "configs/nano.yaml", "configs/nano"])
def test_a_name_is_the_shipped_file_from_any_folder(given: str):
    assert load([Path(given), Path("ablation/dev_only")]).variant == "dev-only"
    assert shipped.find_file(given) == CONFIGS / "nano.yaml"


@pytest.mark.parametrize("given", ["nano", "engine/laptop", "configs/nano.yaml"])
def test_a_file_of_that_name_comes_first_and_a_folder_does_not(elsewhere: Path, given: str):
    place = elsewhere / given
    place.mkdir(parents=True)
    assert shipped.find_file(given).is_relative_to(CONFIGS)
    place.rmdir()
    place.write_text("name: mine\n")
    assert shipped.find_file(given).read_text() == "name: mine\n"


@pytest.mark.parametrize(
    ("given", "near"), [("nanno", "nano"), ("one-gpu", "engine/one-gpu"), ("nano.yaml", "nano"), ("qwen3", "qwen3-8b")]
)
def test_an_unknown_name_gets_the_nearest_ones(given: str, near: str):
    with pytest.raises(ConfigError, match="No such file") as refused:
        load([Path(given)])
    assert near in refused.value.hint.split("?")[0] and "infuser configs" in refused.value.hint


@pytest.mark.parametrize("given", ["", "a" * 5000, "\0", "configs/", "..", "prefect", "../configs/nano"])
def test_odd_names_are_refused(given: str):
    with pytest.raises(ConfigError):
        load([Path(given)])


def test_a_sweep_of_ones_own_starts_from_shipped_configurations(elsewhere: Path):
    (elsewhere / "sweeps").mkdir()
    (elsewhere / "sweeps" / "mine.yaml").write_text("name: mine\n")
    file = elsewhere / "sweeps" / "grid.yaml"
    file.write_text("base: [nano, mine.yaml]\naxes: {arm: {plain: [], alone: [ablation/dev_only]}}\n")
    assert [config.label for config in read_sweep(file)] == ["mine-plain", "mine-alone"]
    assert len(read_sweep(Path("sweep/nano"))) == 24


def test_the_list_names_every_file_and_says_something_short_of_each():
    listed = json.loads(CliRunner().invoke(app, ["configs", "--json"]).output)
    files = {path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml")}
    assert {one["name"] for one in listed} == files - {"prefect"}
    assert {one["kind"] for one in listed} == {"run", "overlay", "sweep"}
    assert [one for one in listed if not 20 <= len(one["text"]) <= 92 or one["text"][-1] not in ".?"] == []
    assert all(f"{one['name']}  " in CliRunner().invoke(app, ["configs"]).output for one in listed[:3])


def test_the_first_configuration_runs_as_it_is_and_comments_on_every_section(elsewhere: Path):
    done = CliRunner().invoke(app, ["init", "new/one"])
    assert done.exit_code == 0 and "infuser run new/one/start.yaml" in done.output
    config = load([elsewhere / "new" / "one" / "start.yaml"])
    preflight(config)
    text = (elsewhere / "new" / "one" / "start.yaml").read_text()
    for section in type(config).model_fields.keys() - {"variant"}:
        before, _, line = text.partition(f"\n{section}:")
        assert "#" in line.splitlines()[0] or before.splitlines()[-1].startswith("#"), f"{section} has no comment"


@pytest.mark.parametrize("blocked", ["start.yaml", ""])
def test_nothing_is_overwritten(elsewhere: Path, blocked: str):
    (elsewhere / "there").mkdir() if blocked else (elsewhere / "there").touch()
    (elsewhere / "there" / blocked).write_text("mine")
    refused = CliRunner().invoke(app, ["init", "there"])
    assert isinstance(refused.exception, UsageError) and "exists" in refused.exception.message
    assert (elsewhere / "there" / blocked).read_text() == "mine"
