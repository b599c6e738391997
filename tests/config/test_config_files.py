"""Every shipped YAML is read by the code that people run it with, and says what the paper says."""

import importlib
from pathlib import Path

import pytest
import yaml
from places import CONFIGS, ROOT

from infuser_core.config.overlays import load

FILES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml"))
DEPLOYMENTS = ["prefect.yaml"]
BASES = [name for name in FILES if "/" not in name and name not in DEPLOYMENTS]
OVERLAYS = [name for name in FILES if "/" in name and not name.startswith("sweep/")]


@pytest.mark.parametrize("name", BASES)
def test_a_base_is_complete(name: str):
    config = load([CONFIGS / name])
    assert config.name == name.removesuffix(".yaml")
    assert config.variant == ""


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("base", ["nano.yaml", "qwen3-8b.yaml"])
def test_an_overlay_changes_a_few_lines_of_any_base(base: str, name: str):
    config = load([CONFIGS / base, CONFIGS / name])
    assert config != load([CONFIGS / base])
    assert load([CONFIGS / base, CONFIGS / name, CONFIGS / name]) == config
    lines = [line for line in (CONFIGS / name).read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 12, "an overlay of more than twelve lines is another base"


@pytest.mark.parametrize("name", [name for name in OVERLAYS if name.startswith("ablation/")])
def test_an_ablation_names_its_variant(name: str):
    config = load([CONFIGS / "nano.yaml", CONFIGS / name])
    assert config.variant == Path(name).stem.replace("_", "-")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_starts_the_pipeline_by_its_module(name: str):
    (deployment,) = yaml.safe_load((CONFIGS / name).read_text())["deployments"]
    assert (deployment["name"], deployment["entrypoint"]) == ("full-pipeline", "flows.full_pipeline:infuser")
    assert all((ROOT / path).is_file() for path in deployment["parameters"]["configs"])
    module, _, flow = deployment["entrypoint"].partition(":")
    found = getattr(importlib.import_module(module), flow)
    assert f"{found.name}/{deployment['name']}" == "infuser/full-pipeline"
    assert set(deployment["parameters"]) <= set(found.parameters.properties)


@pytest.mark.parametrize(
    ("name", "generator_rate"), [("qwen3-4b.yaml", 6e-6), ("qwen3-8b.yaml", 4e-6), ("olmo3-7b-sft.yaml", 4e-6)]
)
def test_the_papers_settings_are_the_papers(name: str, generator_rate: float):
    config = load([CONFIGS / name])
    cotrain, optimizer = config.cotrain, config.cotrain.optimizer
    assert (cotrain.iterations, cotrain.documents, cotrain.group_size, cotrain.validate_every) == (100, 128, 8, 5)
    assert (cotrain.generator.minibatch, cotrain.solver.minibatch) == (32, 32)
    assert (cotrain.generator.learning_rate, cotrain.solver.learning_rate) == (generator_rate, 2e-6)
    assert (cotrain.generator.advantage, cotrain.solver.advantage) == ("dugrpo", "mean_centred")
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay) == (0.9, 0.999, 1e-8, 0.01)
    assert (cotrain.sampling.temperature, cotrain.prompt_tokens, cotrain.solver_tokens) == (0.7, 4096, 8192)
    assert (cotrain.loss.tis_cap, cotrain.reward.name, cotrain.reward.invalid) == (2.0, "influence", 0.0)
    assert config.data.dev.size == 800
