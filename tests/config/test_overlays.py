"""Files and overrides merge in order; a wrong or vast value is refused with its key and a remedy."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from places import CONFIGS

from flows.pipeline import resolve
from infuser_core.config.overlays import load, merge, parse_override, validate
from infuser_core.config.shipped import BYTES, DEPTH, VALUES, parse_yaml, read_yaml
from infuser_core.errors import ConfigError, InfuserError

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


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
DEEP = "[" * 20_000 + "]" * 20_000

REFUSED = {
    "bomb": (BOMB, f"has more than {VALUES} values"),
    "many": ("[" + "1," * VALUES + "]", f"has more than {VALUES} values"),
    "deep": (DEEP, f"has more than {DEPTH} levels of nesting"),
    "deep mappings": ("{a: " * 20_000 + "1" + "}" * 20_000, f"has more than {DEPTH} levels of nesting"),
    "deep aliases": (
        "".join(f"a{n}: &a{n} [{f'*a{n - 1}' if n else 1}]\n" for n in range(40)),
        f"has more than {DEPTH} levels",
    ),
    "itself": ("a: &a [*a]", f"has more than {DEPTH} levels of nesting"),
    "long": ("x" * (BYTES + 1), "is longer than 1 MB"),
    "twice": ("cotrain:\n  iterations: 3\n  iterations: 5\n", "the key iterations is here twice"),
    "twice in a flow": ("{a: 1, 'a': 2}", "the key a is here twice"),
    "a list as a key": ("{[a]: 1}", "a key is no word"),
    "object": ("!!python/object/apply:os.system [true]", "the tag tag:yaml.org,2002:python/object/apply:os.system"),
    "binary": ("name: !!binary aGVsbG8=", "the tag tag:yaml.org,2002:binary is not supported"),
    "octal by its tag": ("seed: !!int 010", "the tag tag:yaml.org,2002:int is not supported"),
    "unknown alias": ("*nobody", "found undefined alias 'nobody'"),
    "two documents": ("a\n---\nb", "line 2: a second document begins with `---`"),
    "surrogate": ("a\udcff", "special characters are not allowed"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_beyond_the_limits_is_refused_at_once(text: str, said: str):
    started = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, name="it", hint="mend it")
    assert time.monotonic() - started < 10
    assert caught.value.message.startswith("it ") and said in caught.value.message
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700 and caught.value.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("3e5", 3e5),
        (".5", 0.5),
        ("-1_000", -1000),
        ("yes", True),
        ("null", None),
        ("010", "010"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("2020-13-41", "2020-13-41"),
        ("9" * 10_000, "9" * 10_000),
        ("{a: &x [1, 2], b: *x}", {"a": [1, 2], "b": [1, 2]}),
        ("{<<: 1}", {"<<": 1}),
        ("", None),
    ],
)
def test_words_and_numbers_mean_what_people_mean(text: str, value: object):
    assert parse_yaml(text, name="it", hint="") == value


def test_a_file_without_end_and_a_binary_one_are_named(tmp_path: Path):
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for path, said in (
        (Path("/dev/zero"), "is longer than"),
        (tmp_path / "binary", "is not valid YAML: it is not UTF-8, byte 0x80"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_yaml(path, hint="")
        assert caught.value.message.startswith(f"{path} {said}")


def test_values_on_the_command_line_have_the_same_limits():
    for override in (f"name={DEEP}", f"{'.'.join(['a'] * 20_000)}=1", "cotrain.sampling={top_p: 0.5, top_p: 0.9}"):
        with pytest.raises(ConfigError, match=r"^--set .{1,60}: the value "):
            parse_override(override)


def test_parameters_of_a_served_run_have_them_too():
    deep: object = 1
    for _ in range(20_000):
        deep = {"a": deep}
    base = load([NANO]).model_dump(mode="json")
    for overrides in ({"cotrain": deep}, {"corpus": {"exclude": {"sources": ["x"] * 100_000}}}):
        with pytest.raises(InfuserError, match="the configuration has more than"):
            validate(merge(base, overrides))


def test_a_flow_run_takes_dotted_overrides_as_the_command_line_does() -> None:
    overrides = {"cotrain.iterations": 4, "cotrain": {"group_size": 6}}
    config = load([Path("nano")], ["cotrain.iterations=4", "cotrain.group_size=6"])
    assert resolve(["nano"], overrides, None, None) == config


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("data.dev=dev.jsonl", "--set 'data.dev={type: file, path: dev.jsonl}'"),
        ("cotrain.solver=fast", "--set 'cotrain.solver.KEY=VALUE'"),
    ],
)
def test_a_value_in_place_of_a_group_says_how_to_write_the_group(change: str, hint: str):
    with pytest.raises(ConfigError, match="it is a group of settings, not one value") as caught:
        load([Path("nano")], [change])
    assert str(caught.value.hint).startswith(hint)
