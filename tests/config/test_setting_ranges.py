"""Every number of the settings has a floor and a ceiling, and no value of any kind breaks the check itself."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from infuser_core.config.overlays import load, validate
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError
from infuser_core.evaluation.settings import EvaluationSettings

NANO = ROOT / "configs" / "nano.yaml"
BASE = load([NANO]).model_dump(mode="json")


def numbers(schema: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every number of a schema, with its rules."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and not {"enum", "const"} & {*schema}:
            yield name, {*schema}
        for key, value in schema.items():
            yield from numbers(value, f"{name}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from numbers(value, name)


@pytest.mark.parametrize("model", [RunConfig, EvaluationSettings])
def test_every_number_has_a_floor_and_a_ceiling(model: type[RunConfig | EvaluationSettings]):
    found = dict(numbers(model.model_json_schema()))
    assert len(found) > 10
    bounds = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
    assert [name for name, rules in found.items() if not all(bound & rules for bound in bounds)] == []


def leaves(values: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(values, dict | list):
        for key, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from leaves(value, (*path, key))


def put(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    copy = place = json.loads(json.dumps(BASE))
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return copy


PLACES = list(leaves(BASE))
ODD = [
    10**20,
    -(10**20),
    10**400,
    -1,
    0,
    0.5,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    "",
    "a" * 300,
    "a\0b",
    "../x",
    "a\nb",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def test_a_value_of_many_parts_is_cut():
    many = [{f"key {n}": ["a" * 50] * 9 for n in range(9)}] * 9
    with pytest.raises(ConfigError) as refused:
        validate(put(("cotrain", "loss", "tis_cap"), many))
    assert len(str(refused.value)) < 1000


@settings(deadline=2000, max_examples=300)
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_at_any_place_is_taken_or_refused_in_one_line(path: tuple[str | int, ...], value: Any):
    try:
        config = validate(put(path, value))
    except ConfigError as error:
        assert error.hint and len(error.message.splitlines()) <= 1 and len(str(error)) < 1000
    else:
        json.dumps(config.model_dump(mode="json"), allow_nan=False)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_numbers_beyond_any_experiment_are_refused_everywhere(path: tuple[str | int, ...]):
    for value in (10**20, -(10**20), 10**400, math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigError):
            validate(put(path, value))
