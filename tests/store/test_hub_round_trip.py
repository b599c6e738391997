"""A model and its questions go to a hub, and a new run, transformers and pyarrow read them from there."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import loopback_hub
import pytest
import small_store
from huggingface_hub import DatasetCard
from launcher import SmallRun, copy_store

from infuser_core.errors import ConfigError
from infuser_core.nano.lab import anchor_path
from infuser_core.results.export.questions import export_questions
from infuser_core.system.hub import parse_address

MODEL, QUESTIONS = "hf://me/nano-solver", "hf://datasets/me/nano-questions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A hub, a folder, and a store with the small run."""

    hub: loopback_hub.Hub
    folder: Path
    store: Path

    def infuser(self, *arguments: str, token: str = loopback_hub.TOKEN) -> subprocess.CompletedProcess[str]:
        """A command that knows this hub, from an empty cache."""
        return small_store.infuser(
            *arguments, store=self.store, **self.hub.environment(self.folder / "cache", token=token)
        )


@pytest.fixture(scope="module")
def place(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("hub")
    store = copy_store(small_run.root, folder / "store")
    shutil.copytree(small_run.root / "runs", store / "runs")
    with loopback_hub.hub() as hub:
        yield Place(hub=hub, folder=folder, store=store)


@pytest.fixture(scope="module")
def pushed(place: Place) -> Place:
    """The hub with both of them."""
    for extra in (["--out", str(place.folder / "model"), "--push", MODEL],
                  ["--questions", "--out", str(place.folder / "questions"), "--push", QUESTIONS]):  # fmt: skip
        ended = place.infuser("export", "small", "--iteration", "2", *extra)
        assert ended.returncode == 0, ended.stderr
        assert f"{place.hub.base}/me/nano-" in ended.stdout
    return place


def test_what_lies_on_the_hub_is_what_lies_in_the_folder_and_private(pushed: Place):
    for name, folder in (("models/me/nano-solver", "model"), ("datasets/me/nano-questions", "questions")):
        here = {path.name: path.read_bytes() for path in (pushed.folder / folder).iterdir()}
        assert pushed.hub.files(name) == here
        assert pushed.hub.repositories[name].private
        assert {path.stat().st_mode & 0o777 for path in (pushed.folder / folder).iterdir()} == {0o644}
    assert 'name = "me/nano-solver"' in pushed.hub.files("models/me/nano-solver")["README.md"].decode()
    assert 'load_dataset("me/nano-questions"' in pushed.hub.files("datasets/me/nano-questions")["README.md"].decode()


def test_a_new_run_takes_model_questions_pool_and_benchmark_from_the_hub(pushed: Place):
    pool = [{"doc_id": str(n), "content": f"The sum of {n} and {n} is twice {n}. " * 9} for n in range(3)]
    pushed.hub.put("datasets/me/pool", "documents.jsonl", "\n".join(map(json.dumps, pool)).encode())
    exam = f"[{{name: released, label: exam, path: '{QUESTIONS}@main/questions.parquet'}}]"
    changes = {
        "anchor": MODEL,
        "data.dev": QUESTIONS,
        "data.validation.size": 8,
        "corpus.pool": "hf://datasets/me/pool",
        "cotrain.iterations": 0,
        "evaluate.benchmarks": exam,
        "data.allow_overlap": "[dev-benchmarks]",
    }
    arguments = ["run", "configs/nano.yaml", "--name", "second"]
    for key, value in changes.items():
        arguments += ["--set", f"{key}={value}"]
    ended = pushed.infuser(*arguments)
    assert ended.returncode == 0, ended.stderr
    assert small_store.query(pushed.store, "select count(*) n from chunks", run="second") == [{"n": 3}]
    assert small_store.query(pushed.store, "select distinct benchmark from benchmark_scores where phase = 'evaluate'")
    written = small_store.query(pushed.store, "select * from questions", run="small")
    asked = small_store.query(pushed.store, "select * from reference_questions", run="second")
    found = {row["question_id"]: row for row in asked}
    assert written
    for row in written:
        same = found[f"{row['iteration']}-{row['question_id']}"]
        assert [same[name] for name in ("text", "choices", "answer", "verifier")] == [
            row[name] for name in ("text", "choices", "answer", "verifier")
        ]


def test_transformers_and_pyarrow_read_them_without_this_project(pushed: Place):
    code = """
import json, sys
import pyarrow.parquet as pq
from huggingface_hub import HfFileSystem
from transformers import AutoModelForCausalLM, AutoTokenizer
model, tokenizer = (kind.from_pretrained("me/nano-solver") for kind in (AutoModelForCausalLM, AutoTokenizer))
said = model.generate(**tokenizer("a", return_tensors="pt"), max_new_tokens=2, do_sample=False)
rows = pq.read_table("datasets/me/nano-questions/questions.parquet", filesystem=HfFileSystem()).to_pylist()
print(json.dumps([said.shape[0], rows]))
"""
    environment = {**os.environ, **pushed.hub.environment(pushed.folder / "others"), "PYTHONPATH": ""}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    said, rows = json.loads(ended.stdout.splitlines()[-1])
    assert said == 1
    wanted = small_store.query(pushed.store, "select score from scores where status = 'scored'", run="small")
    assert sorted(row["score"] for row in rows if row["score"] is not None) == sorted(row["score"] for row in wanted)


def test_the_card_of_questions_names_a_file_that_is_there(place: Place):
    out = place.folder / "here"
    export_questions(place.store, "small", iteration="2", out=out)
    card = DatasetCard.load(out / "README.md")
    files = {each["data_files"] for each in card.data.configs} | {*re.findall(r'data_files="(.*?)"', card.text)}
    assert files == {path.name for path in out.iterdir()} - {"README.md"}


def test_a_token_that_may_not_write_is_said_before_anything_is_written(place: Place):
    out = place.folder / "refused"
    ended = place.infuser(
        "export", "small", "--iteration", "0", "--out", str(out), "--push", "hf://me/new", token="hf_other"
    )
    assert ended.returncode == 2
    assert "401 Unauthorized" in ended.stderr and "token that may write" in ended.stderr
    assert not out.exists()


@pytest.mark.parametrize("wrong", ["hf://me", "hf://me/x/../../y", "hf://spaces/me/x", "hf://datasets/me", "me/x"])
def test_an_address_of_another_form_is_refused_with_the_forms(wrong: str):
    with pytest.raises(ConfigError, match="no address on the hub") as caught:
        parse_address(wrong)
    assert "hf://datasets/OWNER/NAME" in caught.value.hint


@pytest.mark.parametrize(
    "command",
    [
        ["run", "configs/nano.yaml", "--set", "data.dev=hf://datasets/me/nothing", "--dry-run"],
        [
            "score",
            "--model",
            "nano",
            "--dev",
            "hf://datasets/me/nothing",
            "--questions",
            "x.jsonl",
            "--out",
            "y.parquet",
        ],
    ],
)
def test_a_repository_that_is_not_there_is_named(place: Place, command: list[str]):
    ended = place.infuser(*command)
    assert ended.returncode == 2
    assert "me/nothing cannot be had" in ended.stderr


@pytest.mark.parametrize("form", ["safetensors", "bin", "bin shards"])
def test_a_model_comes_with_the_weights_that_transformers_takes_and_no_others(tmp_path: Path, form: str):
    source, name = anchor_path("basic"), f"me/{form.replace(' ', '-')}"
    files = {path.name: path.read_bytes() for path in source.iterdir() if path.suffix != ".safetensors"}
    index = json.dumps({"metadata": {}, "weight_map": {"a": "part-1.bin", "b": "part-2.bin"}}).encode()
    files |= {
        "safetensors": {"model.safetensors": b"s", "pytorch_model.bin": b"b"},
        "bin": {"pytorch_model.bin": b"b", "optimizer.bin": b"o"},
        "bin shards": {"pytorch_model.bin.index.json": index, "part-1.bin": b"1", "part-2.bin": b"2"},
    }[form] | {"consolidated.safetensors": b"c", "training_args.bin": b"t"}
    taken = {"safetensors": {"model.safetensors"}, "bin": {"pytorch_model.bin"}}.get(form, {"part-1.bin", "part-2.bin"})
    with loopback_hub.hub() as hub:
        hub.put(f"models/{name}", "config.json", b"{}")
        hub.files(f"models/{name}").update(files)
        hub.objects.update({hashlib.sha256(content).hexdigest(): content for content in files.values()})
        code = (
            f"from infuser_core.evaluation.anchors import *; print(anchor_folder(HubAnchor(type='hub', repo={name!r})))"
        )
        call = partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
        environment = os.environ | hub.environment(tmp_path)
        here = call(env=environment)
    found = {path.name for path in Path(here.stdout.strip()).iterdir()}
    assert {each for each in found if each.endswith((".bin", ".safetensors"))} == taken
    assert call(env=environment | {"HF_HUB_OFFLINE": "1"}).stdout == here.stdout
