"""Overlays: the right one wins, and grouping them differently gives the same settings."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from places import CONFIGS

from flows.pipeline import resolve
from infuser_core.config.overlays import load, merge

# A shape of settings: a key always holds a mapping or always a value, as in RunConfig.
SHAPE = {"seed": None, "engine": {"dtype": None, "device": None}, "cotrain": {"loss": {"clip": None}, "rate": None}}


def overlays(shape: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any part of the shape, with values."""
    parts = {key: overlays(inner) if inner else st.integers() | st.none() for key, inner in shape.items()}
    return st.fixed_dictionaries({}, optional=parts)


@given(overlays(SHAPE), overlays(SHAPE), overlays(SHAPE))
def test_merging_is_associative(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]):
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(overlays(SHAPE))
def test_nothing_is_the_neutral_overlay_and_twice_is_once(a: dict[str, Any]):
    assert merge({}, a) == merge(a, {}) == merge(a, a) == a


@given(overlays(SHAPE), overlays(SHAPE))
def test_the_right_one_wins_and_the_rest_stays(a: dict[str, Any], b: dict[str, Any]):
    found = leaves(merge(a, b))
    assert found == leaves(a) | leaves(b)


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def test_merging_leaves_its_arguments_alone():
    base, overlay = {"engine": {"dtype": "float32"}}, {"engine": {"device": "cpu"}}
    merge(base, overlay)["engine"]["dtype"] = "changed"
    assert (base, overlay) == ({"engine": {"dtype": "float32"}}, {"engine": {"device": "cpu"}})


def test_another_type_replaces_a_part_as_a_whole():
    base = {"anchor": {"type": "hub", "repo": "owner/name", "revision": "main"}}
    assert merge(base, {"anchor": {"type": "nano"}}) == {"anchor": {"type": "nano"}}
    assert merge(base, {"anchor": {"type": "hub", "revision": "v2"}})["anchor"]["repo"] == "owner/name"
    assert merge(base, {"anchor": {"revision": "v2"}})["anchor"]["repo"] == "owner/name"


@pytest.mark.parametrize(
    ("override", "value"),
    [("3e-4", 3e-4), ("1E+2", 100.0), ("-2e0", -2.0), ("3.5e-4", 3.5e-4), ("7", 7), ("0.5", 0.5)],
)
def test_numbers_are_numbers(override: str, value: float):
    config = load([CONFIGS / "nano.yaml"], [f"cotrain.reward.invalid={override}"])
    assert config.cotrain.reward.invalid == value


def test_overrides_come_after_files_and_the_seed_last(tmp_path: Path):
    (tmp_path / "over.yaml").write_text("seed: 1\ncotrain: {iterations: 3}\n")
    files = [CONFIGS / "nano.yaml", tmp_path / "over.yaml"]
    assert load(files).seed == 1
    config = load(files, ["cotrain.iterations=4", "cotrain.iterations=5", "seed=2"], seed=3)
    assert (config.cotrain.iterations, config.seed) == (5, 3)
    assert config.cotrain.documents == load(files).cotrain.documents


def test_the_same_settings_always_give_the_same_run_name(tmp_path: Path):
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"cotrain": {"iterations": 3}}))
    by_file = load([CONFIGS / "nano.yaml", tmp_path / "one.yaml"], seed=7)
    by_override = load([CONFIGS / "nano.yaml"], ["cotrain.iterations=3"], seed=7)
    assert by_file.run_name() == by_override.run_name()
    assert by_file.run_name().startswith("nano-s7-")
    assert load([CONFIGS / "nano.yaml"], seed=7).run_name() != by_file.run_name()


@pytest.mark.parametrize(("name", "run"), [("nano", "nano-s42-469d4b"), ("qwen3-8b", "qwen3-8b-s42-062241")])
def test_settings_that_are_new_and_off_change_no_runs_name(name: str, run: str):
    assert load([CONFIGS / f"{name}.yaml"]).run_name() == run


def test_a_flow_run_takes_dotted_overrides_as_the_command_line_does() -> None:
    overrides = {"cotrain.iterations": 4, "cotrain": {"group_size": 6}}
    config = load([Path("nano")], ["cotrain.iterations=4", "cotrain.group_size=6"])
    assert resolve(["nano"], overrides, None, None) == config
