"""A run that trains adapters: killed and resumed bit for bit, pruned and repaired, exported merged and alone."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from crash_points import begun, content, mismatches, orphans
from launcher import Finished, Launcher, SmallRun
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM

from infuser_core.store.adapter_files import CONFIG, WEIGHTS
from infuser_core.store.journal import Journal

LORA = ("--set", "cotrain.adapter={type: lora, rank: 8, alpha: 16}")
KILLS = (
    "base:before_rename",
    "anchor:after_rename",
    "score_influence:inside",
    "update_generator:before_rename",
    "update_solver:inside",
    "update_solver:before_rename:2",
)
Command = Callable[..., Finished]


def folder(store: Path, phase: str, iteration: int) -> Path:
    (entry,) = [e for e in Journal(store, "lora").latest() if (e.phase, e.iteration) == (phase, iteration)]
    return store / "artifacts" / phase / entry.key


@pytest.fixture(scope="module")
def finished(launch: Launcher, small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a finished run named lora. Look, but do not write into it."""
    store = begun(small_run, tmp_path_factory.mktemp("lora") / "store")
    ended = launch(*small_run.arguments[:-1], "lora", *LORA, store=store)
    assert ended.code == 0, ended.err
    return store


@pytest.mark.slow
def test_killed_anywhere_it_ends_in_the_same_bits(
    launch: Launcher, small_run: SmallRun, finished: Path, tmp_path: Path
) -> None:
    store = begun(small_run, tmp_path / "store")
    arguments = [*small_run.arguments[:-1], "lora", *LORA]
    for kill in KILLS:
        assert launch(*arguments, store=store, INFUSER_CRASH_AT=kill).code == -signal.SIGKILL, kill
        arguments = ["resume", "lora"]
    ended = launch(*arguments, store=store)
    assert ended.code == 0, ended.err
    assert list(orphans(store)) == []
    assert mismatches(content(finished, "lora"), content(store, "lora")) == []


@pytest.mark.slow
def test_its_checkpoints_are_adapters_and_peft_finds_their_base(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = folder(finished, "update_solver", 1)
    names = {path.name for path in solver.iterdir()}
    assert {CONFIG, WEIGHTS} < names and not any(name.startswith("model") for name in names)
    (base,) = (finished / "artifacts" / "base").iterdir()
    assert (solver / WEIGHTS).stat().st_size < 0.2 * (base / "model.safetensors").stat().st_size
    monkeypatch.chdir(solver)
    model = AutoPeftModelForCausalLM.from_pretrained(".", dtype=torch.float32)
    assert model.peft_config["default"].r == 8


@pytest.mark.slow
def test_exports_merged_and_alone_say_the_same_under_transformers_and_peft(
    launch: Launcher, finished: Path, tmp_path: Path
) -> None:
    exported = []
    for place, options in (("merged", []), ("alone", ["--adapter"])):
        out = str(tmp_path / place)
        ended = launch("export", "lora", "--iteration", "2", "--out", out, *options, store=finished)
        assert ended.code == 0, ended.err
        exported.append(tmp_path / place)
    merged = AutoModelForCausalLM.from_pretrained(exported[0], dtype=torch.float32)
    assert not (exported[0] / CONFIG).exists()
    base = json.loads((exported[1] / CONFIG).read_text())["base_model_name_or_path"]
    alone = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), exported[1])
    assert {path.name for path in exported[1].glob("*.safetensors")} == {WEIGHTS}
    assert "PeftModel.from_pretrained" in (exported[1] / "README.md").read_text()
    for prompt in ([[5, 9, 11, 40]], [[7, 7, 30, 41, 300]], [[2, 60, 12]]):
        tokens = torch.tensor(prompt)
        said = [
            model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=12)
            for model in (merged, alone)
        ]
        assert torch.equal(*said)
    refused = launch("export", "small", "--iteration", "1", "--out", str(tmp_path / "no"), "--adapter", store=finished)
    assert refused.code == 2


@pytest.mark.slow
def test_pruned_adapters_are_computed_again_and_a_damaged_base_is_found(
    launch: Launcher, finished: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(finished, store)
    before = content(store, "lora")
    assert launch("gc", "--apply", "--keep-full", "1", "--every", "0", store=store).code == 0
    assert not (folder(store, "update_solver", 0) / WEIGHTS).exists()
    assert all((base / "model.safetensors").is_file() for base in (store / "artifacts" / "base").iterdir())
    assert launch("doctor", "lora", store=store).code == 0
    for iteration in ("0", "1"):
        ended = launch("doctor", "lora", "--repair", "--iteration", iteration, store=store)
        assert ended.code == 0, ended.err
    assert mismatches(before, content(store, "lora")) == []
    (base,) = (store / "artifacts" / "base").iterdir()
    weights = bytearray((base / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (base / "model.safetensors").write_bytes(weights)
    refused = launch("export", "lora", "--iteration", "2", "--out", str(tmp_path / "out"), store=store)
    assert refused.code == 3 and "model.safetensors" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("cotrain.adapter={targets: [nope]}",), "no linear layer nope"),
        (("cotrain.adapter={targets: [q_proj, lm_head]}",), "no linear layer lm_head"),
        (("cotrain.adapter={rank: 0}",), "cotrain.adapter.rank"),
        (("cotrain.adapter={type: dora}",), "cotrain.adapter.type"),
        (("cotrain.adapter={}", "engine.trainer=deepspeed"), "cotrain.adapter needs engine.trainer local"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, settings: tuple[str, ...], said: str
) -> None:
    (tmp_path / "store").mkdir()
    chosen = [word for setting in settings for word in ("--set", setting)]
    refused = launch(*small_run.arguments[:-1], "lora", *chosen, store=tmp_path / "store")
    assert refused.code == 2 and said in refused.err and "Traceback" not in refused.err
    assert not list((tmp_path / "store").glob("artifacts/*/*"))


@pytest.mark.slow
def test_a_fork_keeps_the_adapters(launch: Launcher, finished: Path) -> None:
    refused = launch("run", "--fork", "lora@1", "--set", "cotrain.adapter.rank=4", store=finished)
    assert refused.code == 2 and "cotrain.adapter.rank cannot change at iteration 1" in refused.err
