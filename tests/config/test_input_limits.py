"""YAML from anywhere ends in values or in one line, at once: vast, deep, repeating, tagged, doubled and binary."""

import time
from pathlib import Path

import pytest
from places import ROOT

from infuser_core.config.overlays import load, merge, parse_override, validate
from infuser_core.config.shipped import BYTES, DEPTH, VALUES, parse_yaml, read_yaml
from infuser_core.errors import ConfigError, InfuserError

NANO = ROOT / "configs" / "nano.yaml"
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
