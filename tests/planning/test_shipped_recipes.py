"""Recipes of every shipped configuration, in a golden table: a change of the code must not rename what stores hold.

An entry is the configuration's digest and, by stage, the keys of its recipes over two iterations, shortened. Files that
a configuration names and that are not shipped (a downloaded data set, a model) are replaced by small ones.
"""

import json
import os
from pathlib import Path
from typing import Any

import places
from everything_stored import files_in, recipes
from places import CONFIGS

from infuser_core.config.overlays import load, validate
from infuser_core.config.run import RunConfig
from infuser_core.planning.sweeps import read_sweep
from infuser_core.system.sealed import digest_of

GOLDEN = places.GOLDEN / "shipped_recipes.json"
RUNS = ["nano", "nano-basic", "nano-wide", "smollm2", "qwen3-8b", "qwen3-4b", "olmo3-7b-sft", "start"]
SWEEPS = sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.glob("sweep/*.yaml"))
OVERLAYS = sorted(
    path.relative_to(CONFIGS).with_suffix("").as_posix()
    for folder in ("ablation", "baseline", "engine", "hybrid", "world")
    for path in CONFIGS.glob(f"{folder}/*.yaml")
)


def configurations() -> dict[str, RunConfig]:
    """By name: every file for a run, every overlay on the run it is made for, every run of a sweep."""
    configs = {name: load([Path(name)]) for name in RUNS}
    for overlay in OVERLAYS:
        base = "nano" if overlay.startswith("world/") or overlay == "hybrid/nano" else "qwen3-8b"
        configs[f"{base} {overlay}"] = load([Path(base), Path(overlay)])
    for sweep in SWEEPS:
        configs |= {f"{sweep} {config.run_name()}": config for config in read_sweep(Path(sweep))}
    return configs


def small(config: RunConfig, world: Path) -> RunConfig:
    """The configuration with small files in place of those that are not shipped."""
    settings = _local(config.model_dump(mode="json"), world)
    settings["evaluate"]["benchmarks"] = [{"name": "released", "label": "exam", "path": str(world / "exam.json")}]
    if settings["corpus"]["overlap"]["mixture"]:
        settings["corpus"]["overlap"]["mixture"] = [str(world / "reference.jsonl")]
    if settings["corpus"]["pool"]:
        settings["corpus"]["pool"] = str(world / "pool.parquet")
    if settings["cotrain"]["budget"]["by"] == "prompt_type":
        settings["cotrain"]["budget"]["shares"] = {"mcq": 1.0}
    return validate(settings)


def _local(settings: Any, world: Path) -> Any:
    """The settings with a small model for every model of the hub or a folder, and small files for downloads."""
    if isinstance(settings, list):
        return [_local(each, world) for each in settings]
    if not isinstance(settings, dict):
        return settings
    match settings:
        case {"type": "hub" | "folder"}:
            return {"type": "folder", "path": str(world / "model")}
        case {"type": "benchmarks"}:
            return {"type": "file", "path": str(world / "exam.json"), "size": None}
        case {"type": "file", "path": path} if path.startswith("data/"):
            return {**settings, "path": str(world / "exam.json"), "size": None}
    return {name: _local(value, world) for name, value in settings.items()}


def test_every_shipped_configuration_keeps_its_digest_and_keys(tmp_path: Path):
    table = {}
    with files_in(tmp_path) as world:
        for name, config in configurations().items():
            stages = recipes(small(config, world), world, fixed=True, iterations=2)
            keys = {stage: " ".join(key.rpartition("-")[2][:10] for key in keys) for stage, keys in stages.items()}
            # Of the hundreds of runs in sweeps one digest each: what changes there is named by a file's own entry.
            stated = keys if not name.startswith("sweep/") else {"stages": digest_of(keys)[:10]}
            table[name] = {"digest": config.digest()[:10], **stated}
    if os.environ.get("INFUSER_REFRESH_GOLDEN"):
        GOLDEN.write_text(json.dumps(table, indent=0) + "\n")
    assert table == json.loads(GOLDEN.read_text())
