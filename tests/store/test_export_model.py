"""An exported checkpoint is a model folder like any other: transformers loads it, and it says the same."""

import json
import os
import re
from pathlib import Path
from typing import get_type_hints

import pytest
import torch
from engine_tiny import VOCABULARY, make_checkpoint
from huggingface_hub import ModelCard
from launcher import ROOT
from safetensors.torch import load_file
from stock_engines import hf_sampler
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from infuser_core.config.overlays import load
from infuser_core.config.run import SamplingSettings
from infuser_core.engines.local.hub import write_hub_layout
from infuser_core.errors import UsageError
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.results.export.card import card
from infuser_core.results.export.model import export_model
from infuser_core.results.lineage.graph import graph_of
from infuser_core.schemas import BenchmarkScore, Checkpoint, Selection, Source, Update
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store, Table

GREEDY = SamplingParams(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=24)
SAMPLING = SamplingSettings(temperature=0.7, top_p=0.8, top_k=20)


def said_by_us(checkpoint: Checkpoint, prompts: list[list[int]], dtype: str) -> list[list[int]]:
    sampler = hf_sampler(dtype=dtype, device="cpu")
    sampler.load(checkpoint)
    groups = [PromptGroup(group_id=str(n), token_ids=ids, seeds=[n]) for n, ids in enumerate(prompts)]
    return [completions[0].token_ids for completions in sampler.sample(groups, GREEDY)]


def said_by_transformers(folder: Path, prompts: list[list[int]], dtype: str) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    found = []
    for ids in prompts:
        tokens = torch.tensor([ids])
        out = model.generate(
            tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=GREEDY.max_tokens
        )
        found.append(out[0, len(ids) :].tolist())
    return found


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard_bytes", [5_000_000_000, 8_000])
def test_it_gives_the_same_greedy_tokens_as_our_sampler(tmp_path: Path, tied: bool, shard_bytes: int):
    checkpoint = make_checkpoint(tmp_path / "run", tied=tied)
    out = tmp_path / "model"
    out.mkdir()
    write_hub_layout(
        Path(checkpoint.path), out, dtype="float32", sampling=SAMPLING, max_tokens=24, shard_bytes=shard_bytes
    )
    shards = sorted(out.glob("*.safetensors"))
    assert (len(shards) > 1) == (shard_bytes < 5_000_000_000) == (out / "model.safetensors.index.json").exists()
    messages = [
        [{"role": "user", "content": " ".join(f"w{(7 * n + m) % VOCABULARY}" for m in range(9))}] for n in range(6)
    ]
    tokenizer = AutoTokenizer.from_pretrained(out)
    prompts = [tokenizer.apply_chat_template(m, add_generation_prompt=True, return_dict=False) for m in messages]
    assert said_by_transformers(out, prompts, "float32") == said_by_us(checkpoint, prompts, "float32")


def test_weights_are_those_of_the_checkpoint_in_the_wanted_precision(tmp_path: Path):
    checkpoint = make_checkpoint(tmp_path / "run")
    out = tmp_path / "model"
    out.mkdir()
    write_hub_layout(Path(checkpoint.path), out, dtype="bfloat16", sampling=SAMPLING, max_tokens=24)
    masters = load_file(Path(checkpoint.path) / "model.safetensors")
    written = load_file(out / "model.safetensors")
    assert {name: tensor.dtype for name, tensor in written.items()} == dict.fromkeys(written, torch.bfloat16)
    assert all(torch.equal(tensor, masters[name].bfloat16()) for name, tensor in written.items())
    assert not (out / "optimizer.safetensors").exists()
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o666 & ~os.umask(os.umask(0o022))}


def test_the_generation_config_holds_how_responses_are_drawn(tmp_path: Path):
    checkpoint = make_checkpoint(tmp_path / "run")
    out = tmp_path / "model"
    out.mkdir()
    write_hub_layout(Path(checkpoint.path), out, dtype="float32", sampling=SAMPLING, max_tokens=24)
    found = GenerationConfig.from_pretrained(out)
    assert (found.temperature, found.top_p, found.top_k, found.max_new_tokens) == (0.7, 0.8, 20, 24)
    assert (found.do_sample, found.eos_token_id) == (True, [1])


def table(row_type: type, *facts: dict) -> Table:
    """Rows of these facts; everything else of them is empty."""
    hints = get_type_hints(row_type)
    blank = {name: hint() if hint in (str, int, float, bool) else None for name, hint in hints.items()}
    return Table(row_type=row_type, rows=[row_type(**{**blank, **each}) for each in facts])


class Tiny:
    """A run whose artifacts are committed without any work."""

    def __init__(self, root: Path) -> None:
        self._store, self._journal = Store(root), Journal(root, "tiny")
        runs.create_run(root, "tiny", load([ROOT / "configs" / "nano.yaml"]).model_dump(mode="json"))
        self._journal.start_attempt()

    def commit(
        self, phase: str, iteration: int = -1, *, rows: dict[str, Table] | None = None, model: Path | None = None,
        settings: dict | None = None, **inputs: ArtifactRef,
    ) -> ArtifactRef:  # fmt: skip
        ids = {name: ref.id for name, ref in inputs.items()}
        recipe = Recipe(phase=phase, version=1, config=settings or {}, seed=0, iteration=iteration, inputs=ids)
        with self._store.workspace(recipe) as workspace:
            for path in model.iterdir() if model else ():
                (workspace / path.name).write_bytes(path.read_bytes())
            outcome = Outcome(tables=rows or {}, summary={"step": max(0, iteration + 1)})
            ref = self._store.commit(recipe, workspace, outcome, seconds=1.0)
        self._journal.append(phase=phase, iteration=iteration, state="ran", seconds=1.0, key=ref.key, digest=ref.digest)
        return ref


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of one iteration, made of a tiny model without any training."""
    root = tmp_path_factory.mktemp("store")
    tiny = Tiny(root)
    first, second = (Path(make_checkpoint(root / f"m{n}", seed=n).path) for n in (1, 2))
    book = {
        "source_id": "isbn:1", "title": "Logic | for all", "author": "A. Author", "licence": "CC-BY-4.0",
        "source_url": "https://x/1", "sha256": "ab", "num_bytes": 1, "status": "admitted",
    }  # fmt: skip
    refused = {**book, "source_id": "isbn:2", "title": "Refused", "sha256": "", "status": "rejected"}
    tiny.commit("sources", rows={"sources": table(Source, book, refused)})
    anchor = tiny.commit("anchor", model=first, settings={"model": "feed"})
    step = {"role": "solver", "step": 1, "num_groups": 2, "num_tokens": 90, "gradient_norm": 1.0}
    solver = tiny.commit("update_solver", 0, rows={"updates": table(Update, step)}, model=second, solver=anchor)
    responses = tiny.commit("respond", 1, settings={"label": "exam"}, solver=solver)
    score = {"benchmark": "exam", "accuracy": 0.625, "low": 0.25, "high": 0.875, "num_questions": 8}
    tiny.commit("evaluate", 1, rows={"benchmark_scores": table(BenchmarkScore, score)}, responses=responses)
    chosen = {"selected_iteration": 1, "checkpoint_id": solver.id, "accuracy": 0.625}
    tiny.commit("select", rows={"selections": table(Selection, chosen)})
    return root


def test_the_selected_checkpoint_is_exported_with_a_card_of_its_facts(root: Path, tmp_path: Path):
    out = tmp_path / "model"
    out.mkdir()  # an empty folder is filled
    found = export_model(root, "tiny", iteration="selected", role="solver", out=out)
    assert (found["iteration"], found["checkpoint_id"].split("-")[0]) == (1, "update_solver")
    assert AutoTokenizer.from_pretrained(out).chat_template
    AutoModelForCausalLM.from_pretrained(out)
    text = (out / "README.md").read_text()
    for fact in (
        "| exam | 0.6250 | [0.2500, 0.8750] | 8 |",
        "licences: CC-BY-4.0 (1)",
        "| Logic \\| for all | A. Author | CC-BY-4.0 | https://x/1 |",
        "1 (1 optimizer steps, 90 tokens)",
        found["checkpoint_id"],
        "`feed`",
        found["files"]["model.safetensors"],
    ):
        assert fact in text, fact
    assert "Refused" not in text
    assert text.startswith("---\nlibrary_name: transformers\n")


def test_the_hub_reads_the_card_and_its_code_runs_in_the_folder(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "model"
    export_model(root, "tiny", iteration="selected", role="solver", out=out)
    card = ModelCard.load(out / "README.md")
    assert card.data.license == "apache-2.0" and card.data.library_name == "transformers"
    (result,) = card.data.eval_results
    assert (result.dataset_name, result.metric_type, result.metric_value) == ("exam", "accuracy", 0.625)
    (code,) = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    monkeypatch.chdir(out)
    exec(compile(code, "card", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_a_model_of_the_hub_names_its_base_and_data_there(root: Path):
    changes = {
        "anchor": {"type": "hub", "repo": "me/base"},
        "corpus.pool": "hf://datasets/me/pool@main",
        "data.dev": {"type": "file", "path": "hf://datasets/me/dev/dev.jsonl"},
    }
    config = load([ROOT / "configs" / "nano.yaml"], [f"{key}={json.dumps(value)}" for key, value in changes.items()])
    graph, store = graph_of(Catalogue(root), "tiny"), Store(root)
    record = graph.of("update_solver")[-1]
    data = ModelCard(card(graph, store, record, config, role="solver", iteration=1, files={})).data
    assert (data.license, data.license_name, data.base_model) == ("other", "see-base-model", "me/base")
    assert data.datasets == ["me/pool", "me/dev"]


def test_iteration_zero_and_a_role_without_updates_are_the_anchor(root: Path, tmp_path: Path):
    anchor = export_model(root, "tiny", iteration="0", role="solver", out=tmp_path / "a")
    generator = export_model(root, "tiny", iteration="1", role="generator", out=tmp_path / "b")
    assert anchor["checkpoint_id"] == generator["checkpoint_id"]
    assert anchor["checkpoint_id"].startswith("anchor-")
    assert "the weights of the base model" in (tmp_path / "a" / "README.md").read_text()


def test_a_folder_with_something_in_it_is_left_alone(root: Path, tmp_path: Path):
    out = tmp_path / "model"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="something already") as caught:
        export_model(root, "tiny", iteration="0", role="solver", out=out)
    assert caught.value.hint
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.txt"]


def test_a_damaged_checkpoint_leaves_no_half_a_model(root: Path, tmp_path: Path):
    (weights,) = root.glob("artifacts/update_solver/*/model.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        with pytest.raises(OSError, match="does not match the digest"):
            export_model(root, "tiny", iteration="1", role="solver", out=tmp_path / "model")
    finally:
        weights.write_bytes(whole)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("iteration", "role"), [("2", "solver"), ("last", "solver"), ("-1", "solver"), ("1", "judge")])
def test_what_the_run_does_not_have_is_refused_with_what_it_has(root: Path, tmp_path: Path, iteration: str, role: str):
    with pytest.raises(UsageError) as caught:
        export_model(root, "tiny", iteration=iteration, role=role, out=tmp_path / "model")
    assert "0 (the anchor) to 1, or selected" in caught.value.hint or "solver, generator" in caught.value.hint
    assert not (tmp_path / "model").exists()


def test_the_result_can_be_read_by_scripts(root: Path, tmp_path: Path):
    found = export_model(root, "tiny", iteration="1", role="solver", out=tmp_path / "model")
    assert json.loads(json.dumps(found))["iteration"] == 1
    assert "model.safetensors" in found["files"]
