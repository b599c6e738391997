"""A sweep file becomes runs: every combination once, named by what was chosen, checked before anything runs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

from infuser_core.errors import ConfigError
from infuser_core.planning.sweeps import read_sweep

NANO = ROOT / "configs" / "nano.yaml"
FIXED = ROOT / "configs" / "ablation" / "fixed_generator.yaml"


def written(folder: Path, axes: str, more: str = "") -> Path:
    path = folder / "sweep.yaml"
    path.write_text(f"base: [{NANO}]\n{more}axes: {axes}\n")
    return path


def test_labels_name_the_variant_and_seeds_repeat_it(tmp_path: Path) -> None:
    axes = f"{{arm: {{infuser: [], fixed: [{FIXED}]}}, seed: [1, 2]}}"
    found = [(config.variant, config.seed) for config in read_sweep(written(tmp_path, axes))]
    assert found == [("infuser", 1), ("infuser", 2), ("fixed", 1), ("fixed", 2)]


def test_one_base_needs_no_list(tmp_path: Path) -> None:
    path = written(tmp_path, "{seed: [1]}")
    path.write_text(path.read_text().replace(f"[{NANO}]", str(NANO)))
    assert [config.name for config in read_sweep(path)] == ["nano"]


def test_a_leaf_with_values_is_an_axis(tmp_path: Path) -> None:
    runs = read_sweep(written(tmp_path, "{cotrain.generator.learning_rate: [0, 5.0e-4], data.dev.size: [8]}"))
    assert [config.variant for config in runs] == [
        "generator-learning-rate-0-dev-size-8",
        "generator-learning-rate-0-0005-dev-size-8",
    ]
    assert [config.cotrain.generator.learning_rate for config in runs] == [0.0, 0.0005]


def test_settings_of_the_sweep_reach_every_run(tmp_path: Path) -> None:
    runs = read_sweep(written(tmp_path, "{seed: [1, 2, 3]}", more="set: [cotrain.iterations=2]\n"))
    assert all(config.cotrain.iterations == 2 for config in runs)


def test_the_command_lines_settings_come_last_and_retention_names_no_other_run(tmp_path: Path) -> None:
    path = written(tmp_path, "{seed: [1, 2]}", more="set: [cotrain.iterations=3]\n")
    assert [config.cotrain.iterations for config in read_sweep(path, ["cotrain.iterations=2"])] == [2, 2]
    kept = read_sweep(path, ["store.keep={full: 1, weights_every: 0}"])
    assert [config.run_name() for config in kept] == [config.run_name() for config in read_sweep(path)]


def test_the_same_settings_are_one_run(tmp_path: Path) -> None:
    assert len(read_sweep(written(tmp_path, "{seed: [1, 1, 2]}"))) == 2


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(1, 9), unique=True, min_size=1, max_size=3),
)
def test_there_are_as_many_runs_as_combinations(seeds: list[int], counts: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        runs = read_sweep(written(Path(name), f"{{cotrain.iterations: {counts}, seed: {seeds}}}"))
    assert len({config.run_name() for config in runs}) == len(runs) == len(seeds) * len(counts)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ("{}", "axes"),
        ("[1]", "axes"),
        ("{cotrain.iteration: [1]}", "cotrain.iteration = 1: unknown key"),
        ("{arm: {other: [missing.yaml]}}", "cannot read"),
        ("{cotrain.iterations: [many]}", "cotrain.iterations = 'many'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(tmp_path: Path, axes: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        read_sweep(written(tmp_path, axes))
    assert said in caught.value.message


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "sweep").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_sweep_can_be_read(path: Path) -> None:
    seeds = {config.seed for config in read_sweep(path)}
    # The three of the older comparisons, which rates were chosen on, or none of them.
    assert seeds == {42, 123, 456} or not seeds & {42, 123, 456, 7, 2024}


@pytest.mark.parametrize(
    "axes",
    ["{cotrain.reward.invalid: [-1.0, 1.0]}", '{arm: {"a b": [cotrain.iterations=3], a-b: [cotrain.iterations=4]}}'],
)
def test_two_variants_of_one_name_are_refused(tmp_path: Path, axes: str) -> None:
    """Comparisons would average them as if they were two seeds of one."""
    with pytest.raises(ConfigError, match="two variants are called nano-"):
        read_sweep(written(tmp_path, axes))


def test_a_grid_beyond_any_experiment_is_refused_at_once(tmp_path: Path) -> None:
    axes = ", ".join(f"cotrain.axis{number}: {list(range(100))}" for number in range(6))
    with pytest.raises(ConfigError, match="1000000000000 runs, and 1000 are the most"):
        read_sweep(written(tmp_path, f"{{{axes}}}"))
