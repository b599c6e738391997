"""An imported anchor holds the file's model and cuts text as it was trained; what cannot be kept is refused."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import numpy as np
import pytest
import torch
import yaml
from engine_tiny import make_source, save_tokenizer, trainer
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from stock_engines import hf_sampler
from tiny_gguf import PIECES, stored, tiny_llama, write_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.config.sources import FolderAnchor
from infuser_core.engines.hf.renderer import PLAIN, Renderer
from infuser_core.engines.training.self_test import seal_of_test
from infuser_core.errors import UsageError
from infuser_core.evaluation.anchors import ORIGIN, PLAIN_TURNS, anchor_digest, anchor_notes, origin_of
from infuser_core.protocols import PromptGroup, SamplingParams, TrainGroup, TrainRow
from infuser_core.results.export.anchor import import_anchor, text
from infuser_core.schemas import Checkpoint

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)
QUESTION = [{"role": "user", "content": "What is 2 + 2?"}]


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    write_gguf(folder / "tiny.gguf")
    return Path(import_anchor(folder / "tiny.gguf", folder / "anchor")["out"])


def checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(checkpoint_id="imported", role="solver", path=str(folder), step=0)


def test_the_weights_are_the_files(anchor: Path):
    found = load_file(anchor / "model.safetensors")
    expected = dict(tiny_llama().named_parameters())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_a_quantised_weight_is_unpacked(tmp_path: Path):
    model = write_gguf(tmp_path / "tiny.gguf", packed="blk.1.attn_k.weight")
    import_anchor(tmp_path / "tiny.gguf", tmp_path / "anchor")
    name = "model.layers.1.self_attn.k_proj.weight"
    original = model.get_parameter(name).detach().numpy()
    kind = gguf.GGMLQuantizationType.Q8_0
    expected = gguf.dequantize(gguf.quantize(stored(name, original), kind), kind)
    found = load_file(tmp_path / "anchor/model.safetensors")[name].numpy()
    assert np.array_equal(stored(name, found), expected) and not np.array_equal(found, original)


def test_greedy_answers_are_those_of_transformers(anchor: Path):
    sampler = hf_sampler()
    sampler.load(checkpoint(anchor))
    prompt = sampler.tokenizer.render(QUESTION)
    tokenizer = AutoTokenizer.from_pretrained(anchor)
    assert prompt == tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)
    ids = torch.tensor([prompt])
    model = AutoModelForCausalLM.from_pretrained(anchor)
    said = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=GREEDY.max_tokens)
    ours = sampler.sample([PromptGroup(group_id="q", token_ids=prompt, seeds=[0])], GREEDY)[0][0]
    assert ours.token_ids == said[0, len(prompt) :].tolist()


def test_the_trainer_starts_from_it_with_the_log_probabilities_of_transformers(anchor: Path):
    prompt, response = [5, 6, 7, 8], [9, 10, 11]
    row = TrainRow(token_ids=response, advantage=1.0, sampler_logprobs=[-1.0] * 3)
    group = TrainGroup(group_id="g", prompt_token_ids=prompt, rows=[row])
    found = trainer(checkpoint(anchor)).logprobs([group], temperature=1.0)[0][0]
    with torch.no_grad():
        every = tiny_llama()(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
    expected = every[len(prompt) - 1 : -1].gather(1, torch.tensor(response)[:, None])[:, 0]
    assert torch.allclose(torch.tensor(found), expected, atol=1e-4)


def test_its_origin_is_recorded_beside_the_digest(anchor: Path):
    recorded = (anchor / ORIGIN).read_text()
    origin = yaml.safe_load(recorded)
    assert origin["file"] == "tiny.gguf" and origin["licence"] == "cc0-1.0" and origin["architecture"] == "llama"
    assert origin["quantisation"] == "F32 (20)" and len(origin["sha256"]) == 64
    assert origin["weights"] == sum(weight.numel() for weight in tiny_llama().parameters())
    before = anchor_digest(anchor)
    (anchor / ORIGIN).write_text("file: renamed\n")
    assert anchor_digest(anchor) == before
    (anchor / ORIGIN).write_text(recorded)


def test_a_wheel_gives_the_same_anchor(tmp_path: Path, anchor: Path):
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.write(anchor.parent / "tiny.gguf", "tiny/tiny.gguf")
        wheel.writestr("tiny/__init__.py", "")
    found = import_anchor(tmp_path / "tiny-1.0-py3-none-any.whl", tmp_path / "anchor")
    assert anchor_digest(tmp_path / "anchor") == anchor_digest(anchor)
    assert found["file"] == "tiny.gguf in tiny-1.0-py3-none-any.whl"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["anchor", "tiny-1.0-py3-none-any.whl"]


def test_what_lies_beside_the_file_is_not_taken_for_its_own(tmp_path: Path, anchor: Path):
    (tmp_path / "tiny.gguf").write_bytes((anchor.parent / "tiny.gguf").read_bytes())
    make_source(tmp_path, "qwen3")
    import_anchor(tmp_path / "tiny.gguf", tmp_path / "anchor")
    for path in anchor.iterdir():
        assert path.read_bytes() == (tmp_path / "anchor" / path.name).read_bytes(), path.name


def test_a_model_folder_is_imported_too(tmp_path: Path):
    source = make_source(tmp_path / "source", "qwen3")
    (source / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    found = import_anchor(source, tmp_path / "anchor")
    assert found["licence"] == "apache-2.0" and found["remarks"] == []
    trainer(checkpoint(tmp_path / "anchor"))


@pytest.mark.parametrize(
    ("splitting", "expected"),
    [
        ("smollm", ["a", "ĊĊ", "1", "2", "ĠĠ", "3"]),
        ("default", ["a", "Ċ", "Ċ", "1", "2", "Ġ", "Ġ", "3"]),
    ],
)
def test_text_is_cut_as_the_vocabulary_was_learned(tmp_path: Path, splitting: str, expected: list[str]):
    write_gguf(tmp_path / "tiny.gguf", splitting=splitting)
    found = import_anchor(tmp_path / "tiny.gguf", tmp_path / "anchor")
    renderer = Renderer(tmp_path / "anchor")
    assert [renderer.token(each) for each in renderer.encode("a\n\n12  3")] == expected
    assert found["remarks"] == []


def test_a_response_ends_where_the_chat_template_ends_a_turn(anchor: Path):
    sampler = hf_sampler()
    sampler.load(checkpoint(anchor))
    assert [sampler.tokenizer.token(each) for each in sampler._ends] == ["<|endoftext|>", "<|im_end|>"]


def test_a_model_without_a_chat_template_gets_plain_turns_and_says_so(tmp_path: Path):
    write_gguf(tmp_path / "tiny.gguf", template=None)
    found = import_anchor(tmp_path / "tiny.gguf", tmp_path / "anchor")
    assert (tmp_path / "anchor/chat_template.jinja").read_text() == PLAIN
    assert found["ends"] == "<|endoftext|>" and "no chat template" in text(found)


def _cut(path: Path) -> None:
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:-5000])


def _archive(count: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(count):
                archive.writestr(f"{number}.gguf", b"GGUF")
            archive.writestr("readme.txt", "")

    return write


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "random": (lambda path: path.write_bytes(bytes(range(256)) * 9), "is not a GGUF file: it begins with b'\\x00"),
    "empty": (lambda path: path.write_bytes(b""), "is not a GGUF file: it begins with b''"),
    "header alone": (lambda path: path.write_bytes(b"GGUF\x03\x00\x00\x00"), "(8 bytes): it is damaged or truncated"),
    "cut": (_cut, "(108,536 bytes): it is damaged or truncated"),
    "zip without": (_archive(0), "holds 0 .gguf files, not one"),
    "zip of two": (_archive(2), "holds 2 .gguf files, not one"),
    "unknown architecture": (lambda path: write_gguf(path, architecture="grok"), "architecture grok is not supported"),
    "unknown cuts of text": (
        lambda path: write_gguf(path, splitting="unknown"),
        "its vocabulary splits text by the rule 'unknown', which transformers does not know",
    ),
    "recurrent": (
        lambda path: write_gguf(path, architecture="mamba"),
        "mixes tokens in layers that the engines cannot replace",
    ),
    "a tensor too many": (
        lambda path: write_gguf(path, extra="rope_freqs.weight"),
        f"weights, and transformers' model of it {sum(each.numel() for each in tiny_llama().parameters()):,}",
    ),
    "a tensor missing": (
        lambda path: write_gguf(path, left_out="blk.0.attn_v.weight"),
        f"weights, and transformers' model of it {sum(each.numel() for each in tiny_llama().parameters()):,}",
    ),
    "wider than memory": (lambda path: write_gguf(path, claimed=1 << 38), "GB of memory, 12 bytes each, and"),
    "folder without config": (lambda path: path.mkdir(), "holds no config.json"),
    "nothing": (lambda path: None, "no such file or folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_source_that_cannot_be_imported_is_refused_and_leaves_nothing(tmp_path: Path, case: str):
    make, message = BAD[case]
    make(tmp_path / "in.gguf")
    with pytest.raises(UsageError) as refused:
        import_anchor(tmp_path / "in.gguf", tmp_path / "anchor")
    assert message in refused.value.message and refused.value.hint
    assert [path.name for path in tmp_path.iterdir() if path.name != "in.gguf"] == []


def test_a_reader_of_the_numbers_learns_where_the_anchor_is_from(tmp_path: Path, anchor: Path):
    assert anchor_notes(FolderAnchor(type="folder", path=str(anchor))) == (
        "The anchor was imported from tiny.gguf (quantisation F32 (20); licence cc0-1.0).",
    )
    save_tokenizer(tmp_path / "bare", template=None)
    assert anchor_notes(FolderAnchor(type="folder", path=str(tmp_path / "bare"))) == (PLAIN_TURNS,)
    save_tokenizer(tmp_path / "own")
    assert anchor_notes(FolderAnchor(type="folder", path=str(tmp_path / "own"))) == ()
    assert anchor_notes(FolderAnchor(type="folder", path=str(tmp_path / "gone"))) == ()


def test_nothing_is_overwritten(tmp_path: Path, anchor: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine")
    with pytest.raises(UsageError, match="there is something already"):
        import_anchor(anchor.parent / "tiny.gguf", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_the_vocabulary_is_as_wide_as_the_model(anchor: Path):
    assert len(AutoTokenizer.from_pretrained(anchor)) == len(PIECES) == tiny_llama().config.vocab_size


def _without(folder: Path, name: str) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({key: value for key, value in weights.items() if key != name}, folder / "model.safetensors")


def _other_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 40}))


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "cannot be read: Error no file named"),
    "random weights": (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "cannot be read: Error"),
    "random config": (lambda folder: (folder / "config.json").write_bytes(b"\x9c"), "config.json cannot be read: "),
    "a weight missing": (
        lambda folder: _without(folder, "model.layers.0.mlp.up_proj.weight"),
        "lacks 1 of the model's weights or has other shapes: model.layers.0.mlp.up_proj.weight",
    ),
    "another size": (_other_size, "lacks 12 of the model's weights or has other shapes: "),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{"), "the tokenizer in "),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_model_folder_is_refused_and_leaves_nothing(tmp_path: Path, case: str):
    damage, message = DAMAGED[case]
    damage(make_source(tmp_path / "source", "qwen3"))
    with pytest.raises(UsageError) as refused:
        import_anchor(tmp_path / "source", tmp_path / "anchor")
    assert message in refused.value.message and refused.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 9000), byte=st.integers(0, 255), cut=st.floats(0.0, 1.0))
def test_a_damaged_file_is_imported_or_refused(anchor: Path, place: int, byte: int, cut: float):
    raw = bytearray((anchor.parent / "tiny.gguf").read_bytes())
    raw[place] = byte
    with TemporaryDirectory() as folder:
        damaged = Path(folder) / "damaged.gguf"
        damaged.write_bytes(raw if cut < 0.5 else raw[: int(2 * (cut - 0.5) * len(raw))])
        try:
            import_anchor(damaged, Path(folder) / "anchor")
        except UsageError as refused:
            assert refused.hint


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count"])
@pytest.mark.parametrize("byte", [1, 3], ids=["hundreds", "millions"])
def test_sizes_that_the_weights_cannot_have_are_refused(anchor: Path, tmp_path: Path, key: str, byte: int):
    raw = bytearray((anchor.parent / "tiny.gguf").read_bytes())
    name = f"llama.{key}".encode()
    # Behind the key stand four bytes of type and four of value, the lowest first.
    place = raw.index(name) + len(name) + 4
    raw[place + byte] = byte
    (tmp_path / "damaged.gguf").write_bytes(raw)
    with pytest.raises(UsageError) as refused:
        import_anchor(tmp_path / "damaged.gguf", tmp_path / "anchor")
    assert "damaged.gguf" in refused.value.message and refused.value.hint


def _tested(folder: Path) -> bool:
    return origin_of(folder).get("tested") == seal_of_test(anchor_digest(folder))


def test_a_passed_test_is_recorded_until_a_weight_changes(tmp_path: Path, anchor: Path):
    source = make_source(tmp_path / "source", "qwen3")
    import_anchor(source, tmp_path / "anchor")
    assert _tested(anchor) and _tested(tmp_path / "anchor") and not _tested(source)
    weights = load_file(tmp_path / "anchor/model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, tmp_path / "anchor/model.safetensors", metadata={"format": "pt"})
    assert not _tested(tmp_path / "anchor")


def test_a_gguf_file_of_a_broken_model_is_refused_at_import(tmp_path: Path):
    write_gguf(tmp_path / "tiny.gguf")
    tensors = gguf.GGUFReader(tmp_path / "tiny.gguf", "r+").tensors
    norm = next(tensor.data for tensor in tensors if tensor.name == "output_norm.weight")
    norm[0] = np.nan
    norm.flush()
    with pytest.raises(UsageError, match=r"model.norm.weight holds 1 values"):
        import_anchor(tmp_path / "tiny.gguf", tmp_path / "anchor")
    assert not (tmp_path / "anchor").exists()
