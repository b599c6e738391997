"""Prompts and ends of responses, for chat models and base models; nothing that comes with a model is run."""

import ast
import json
import re
from pathlib import Path

import pytest
import torch
from engine_family import END, TEMPLATE, TURN, make_source, save_tokenizer
from places import ROOT
from transformers import AutoTokenizer

from infuser_core.engines.hf.causal_lm import folder_ends, load_model, read_config
from infuser_core.engines.hf.renderer import TEMPLATE_FILE, Renderer
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.errors import CheckpointError
from infuser_core.schemas import Checkpoint

MESSAGES = [{"role": "system", "content": "w7"}, {"role": "user", "content": "w8 w9"}]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", "qwen3")


def set_ends(folder: Path, *, generation: object, config: object) -> None:
    for name, value in (("generation_config.json", generation), ("config.json", config)):
        path = folder / name
        content = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(content | {"eos_token_id": value}))


def loaded_ends(folder: Path, out: Path) -> list[int]:
    prepare_anchor(folder, out)
    sampler = HFSampler(device="cpu")
    sampler.load(Checkpoint(checkpoint_id="a", role="solver", path=str(out), step=0))
    return sampler._ends


def test_a_chat_template_of_the_folder_is_used_and_nothing_is_recorded(source: Path, tmp_path: Path) -> None:
    prepare_anchor(source, tmp_path / "anchor")
    assert (tmp_path / "anchor" / TEMPLATE_FILE).read_text() == TEMPLATE
    renderer = Renderer(tmp_path / "anchor")
    assert renderer.own_template
    assert renderer.render(MESSAGES) == [2, 7, TURN, 2, 8, 9, TURN, 3]


def test_a_base_model_gets_plain_turns_and_its_anchor_records_them(source: Path, tmp_path: Path) -> None:
    (source / TEMPLATE_FILE).unlink()
    bare = Renderer(source)
    assert not bare.own_template
    prepare_anchor(source, tmp_path / "anchor")
    template = (tmp_path / "anchor" / TEMPLATE_FILE).read_text()
    stock = AutoTokenizer.from_pretrained(tmp_path / "anchor")
    text = stock.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert text == "System:\nw7\n\nUser:\nw8 w9\n\nAssistant:\n"
    recorded = Renderer(tmp_path / "anchor")
    assert recorded.own_template
    assert recorded.render(MESSAGES) == bare.render(MESSAGES)
    # A checkpoint saved from the anchor carries the file on.
    trainer = LocalTrainer(device="cpu")
    trainer.load(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "anchor"), step=0))
    (tmp_path / "next").mkdir()
    trainer.save(tmp_path / "next")
    assert (tmp_path / "next" / TEMPLATE_FILE).read_text() == template


def test_a_template_inside_the_tokenizers_configuration_counts(source: Path, tmp_path: Path) -> None:
    (source / TEMPLATE_FILE).unlink()
    path = source / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE}))
    prepare_anchor(source, tmp_path / "anchor")
    assert not (tmp_path / "anchor" / TEMPLATE_FILE).exists()
    assert Renderer(tmp_path / "anchor").render(MESSAGES) == [2, 7, TURN, 2, 8, 9, TURN, 3]


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "ends"),
    [
        # A base model: the end of text alone, whatever ends a turn in its template.
        (END, END, "w1", [END]),
        # A chat model whose tokenizer ends turns, beside the end of text of its configuration.
        (END, END, "w4", [END, TURN]),
        ([TURN, END], END, "w4", [TURN, END]),
        (None, END, "w1", [END]),
        (None, None, "w4", [TURN]),
    ],
)
def test_responses_end_at_what_model_and_tokenizer_name(
    source: Path, tmp_path: Path, generation: object, config: object, tokenizer: str, ends: list[int]
) -> None:
    set_ends(source, generation=generation, config=config)
    save_tokenizer(source, template=TEMPLATE, end=tokenizer)
    assert folder_ends(source, Renderer(source).end_token) == ends
    assert loaded_ends(source, tmp_path / "anchor") == ends


def test_code_that_comes_with_a_model_is_refused_unrun(source: Path, tmp_path: Path) -> None:
    (source / "payload.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    path = source / "config.json"
    content = json.loads(path.read_text()) | {
        "model_type": "payload",
        "auto_map": {"AutoConfig": "payload.Config", "AutoModelForCausalLM": "payload.Model"},
    }
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="code that comes with a model is never run"):
        read_config(source)
    tokenizer = source / "tokenizer_config.json"
    remote = {"tokenizer_class": "Payload", "auto_map": {"AutoTokenizer": ["payload.Config", None]}}
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()) | remote))
    (source / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="never run"):
        Renderer(source)
    assert not (tmp_path / "ran").exists()


def calls_of_loaders(path: Path) -> list[ast.Call]:
    """Calls of `Auto....from_pretrained` in a file."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [call for call in calls if re.fullmatch(r"Auto\w+\.from_pretrained", ast.unparse(call.func))]


def test_every_loader_says_that_it_trusts_no_code() -> None:
    """Left unsaid, transformers asks at the terminal."""
    found = [(path, call) for path in (ROOT / "infuser_core").rglob("*.py") for call in calls_of_loaders(path)]
    said = {f"{path.name}:{call.lineno}": [ast.unparse(each) for each in call.keywords] for path, call in found}
    assert len(said) >= 3
    assert [place for place, keywords in said.items() if "trust_remote_code=False" not in keywords] == []
    engine = (ROOT / "infuser_core/engines/vllm/worker.py").read_text()
    assert engine.count("trust_remote_code=False") == 1


def test_a_known_architecture_with_code_beside_it_loads_without_the_code(source: Path, tmp_path: Path) -> None:
    (source / "payload.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoModelForCausalLM": "payload.Model"}}))
    assert load_model(source, dtype=torch.float32, device=torch.device("cpu")).config.vocab_size == 64
    assert not (tmp_path / "ran").exists()
