"""A wrong setting fails before anything runs, with its key, its value and what to do."""

from pathlib import Path

import pytest
from places import CONFIGS

from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError

NANO = CONFIGS / "nano.yaml"
ITERATIONS = "did you mean cotrain.iterations?"
TOP = "keys: name, variant, seed, prompts, anchor, data, corpus, cotrain, engine, cluster, evaluate, store, track"
SOLVER = (
    "keys of cotrain.solver: update, learning_rate, warmup, schedule, minibatch, advantage, accuracy_band, "
    "accuracy_quantiles"
)
QUESTIONS = "keys of data.dev: type, split, topics, size, world"
AGAIN = "correct the value and start again"

WRONG = [
    ("cotrain.iteration=5", "cotrain.iteration = 5: unknown key", ITERATIONS),
    ("iterations=5", "iterations = 5: unknown key", f"{ITERATIONS} {TOP}"),
    ("epochs=5", "epochs = 5: unknown key", TOP),
    ("cotrain.solver.lr=1e-4", "cotrain.solver.lr = 0.0001: unknown key", SOLVER),
    ("data.dev.sise=9", "data.dev.sise = 9: unknown key", "did you mean data.dev.size?"),
    ("data.dev.tokens=9", "data.dev.tokens = 9: unknown key", QUESTIONS),
    (
        "evaluate.benchmarks=[{name: medqa, lable: x}]",
        "evaluate.benchmarks.0.lable = 'x': unknown key",
        "did you mean evaluate.benchmarks.0.label?",
    ),
    ("cotrain.iterations=many", "cotrain.iterations = 'many': Input should be a valid integer", AGAIN),
    ("cotrain.iterations='5'", "cotrain.iterations = '5': Input should be a valid integer", AGAIN),
    ("cotrain.iterations=-1", "cotrain.iterations = -1: Input should be greater than or equal to 0", AGAIN),
    ("cotrain.group_size=1", "cotrain.group_size = 1: Input should be greater than or equal to 2", AGAIN),
    ("cotrain.frozen_batch=1", "cotrain.frozen_batch = 1: Input should be a valid boolean", AGAIN),
    ("cotrain.optimizer.beta2=1", "cotrain.optimizer.beta2 = 1: Input should be less than 1", AGAIN),
    ("engine.dtype=int8", "engine.dtype = 'int8': Input should be 'float32', 'bfloat16' or 'float64'", AGAIN),
    ("seed=-1", "seed = -1: Input should be greater than or equal to 0", AGAIN),
    (
        "data.dev.split=held_out",
        "data.dev.split = 'held_out': Input should be 'train', 'dev', 'validation' or 'test'",
        AGAIN,
    ),
    (
        "anchor={type: cloud}",
        "anchor: Input tag 'cloud' found using 'type' does not match any of the expected tags: 'nano', 'folder', 'hub'",
        AGAIN,
    ),
    (
        "anchor={type: folder}",
        "anchor.path is missing",
        "add the key; configs/ has complete examples",
    ),
    (
        "cotrain.dev_only=true",
        "cotrain: dev_only trains no generator: set generator.update to false",
        AGAIN,
    ),
    (
        "cotrain.sampling.top_p=0.9",
        "cotrain.sampling: top_p 0.9 would cut off tokens that the trainer counts, so that importance ratios are "
        "wrong: leave it out (evaluate.sampling may have it)",
        AGAIN,
    ),
    (
        "cotrain.question.min_choices=6",
        "cotrain: question.min_choices is above question.max_choices",
        AGAIN,
    ),
    (
        "cotrain.one_backward=true",
        "cotrain.one_backward = True: no longer a setting",
        "the backward pass shared by scores and update is gone: leave it out, each has its own",
    ),
    ("corpus.catalogue.type=local", "corpus.catalogue: a local catalogue needs `url`", AGAIN),
    ("corpus.chunk.min_tokens=129", "corpus.chunk: min_tokens 129 is above max_tokens 128", AGAIN),
    (
        "evaluate.benchmarks=[{name: released, path: a}, {name: released, path: b}]",
        "evaluate: two benchmarks are called released: give each its own `label`",
        AGAIN,
    ),
]


@pytest.mark.parametrize(("override", "message", "hint"), WRONG, ids=[override for override, _, _ in WRONG])
def test_a_wrong_setting_is_named_with_value_and_remedy(override: str, message: str, hint: str):
    with pytest.raises(ConfigError) as caught:
        load([NANO], [override])
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.exit_code == 2


def test_further_mistakes_are_counted():
    with pytest.raises(ConfigError) as caught:
        load([NANO], ["cotrain.iterations=-1", "cotrain.documents=0", "seed=x"])
    assert caught.value.message.endswith("(and 2 more)")


@pytest.mark.parametrize("override", ["nothing", "=5", " =5", ""])
def test_an_override_without_a_key_shows_the_form(override: str):
    with pytest.raises(ConfigError, match="not of the form key=value") as caught:
        load([NANO], [override])
    assert caught.value.hint == "e.g. --set cotrain.iterations=40"


def test_an_override_that_is_no_yaml_says_so_in_one_line():
    with pytest.raises(ConfigError, match="the value is not valid YAML") as caught:
        load([NANO], ["evaluate.benchmarks=[{name: exam"])
    assert "\n" not in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read {path}: No such file or directory"),
        ("- a list\n", "{path} holds no settings"),
        ("", "{path} holds no settings"),
        ("just text", "{path} holds no settings"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str | None, message: str):
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load([NANO, path])
    assert caught.value.message == message.format(path=path)
    assert caught.value.hint


@pytest.mark.parametrize("content", [b"cotrain: [1", b"a: b: c", b"\xff\xfe\x00", b"cotrain: !!python/object:x {}"])
def test_a_file_that_is_no_yaml_is_named_in_one_line(tmp_path: Path, content: bytes):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load([path])
    assert caught.value.message.startswith(f"{path} is not valid YAML: ")
    assert "\n" not in caught.value.message


def test_a_missing_part_is_named(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    with pytest.raises(ConfigError) as caught:
        load([tmp_path / "mine.yaml"])
    assert caught.value.message == "anchor is missing (and 3 more)"


def test_settings_do_not_change_after_loading():
    config = load([NANO])
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 5
