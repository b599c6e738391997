"""What a recipe and the name of a run record of the settings, and settings that are retired."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_jsonable_python

from infuser_core.config.overlays import load, validate, with_overrides
from infuser_core.config.recorded import Mark, recorded
from infuser_core.config.retired import RETIRED
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import Settings
from infuser_core.errors import ConfigError


class Inner(Settings):
    plain: int = 1
    later: Annotated[float, Mark.NEUTRAL] = 0.5
    marked_late: Annotated[str | None, Mark.NEUTRAL_IN_KEYS] = None
    shown: Annotated[bool, Mark.UNRECORDED] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner
    parts: Annotated[dict[str, int], Mark.NEUTRAL] = field(default_factory=dict)
    several: tuple[Inner, ...] = ()


def test_marked_fields_at_their_defaults_leave_no_trace():
    outer = Outer(inner=Inner(), several=(Inner(plain=2),))
    assert recorded(outer) == {"inner": {"plain": 1}, "several": [{"plain": 2}]}
    assert recorded(outer, naming=True)["inner"] == {"plain": 1, "marked_late": None}


@given(
    plain=st.integers(), later=st.floats(0, 1), late=st.none() | st.text(), shown=st.booleans(),
    parts=st.dictionaries(st.text(), st.integers()),
)  # fmt: skip
def test_other_values_are_recorded_and_what_changes_no_result_never_is(plain, later, late, shown, parts):
    inner = Inner(plain=plain, later=later, marked_late=late, shown=shown)
    values = {"plain": plain, "later": later, "marked_late": late}
    neutral = {name for name, value in values.items() if (name, value) in (("later", 0.5), ("marked_late", None))}
    expected = {name: value for name, value in values.items() if name not in neutral}
    assert recorded(Outer(inner=inner, parts=parts)) == {
        "inner": expected, **({"parts": parts} if parts else {}), "several": []
    }  # fmt: skip
    assert recorded(inner, only=("plain", "later"), without=("later",)) == {"plain": plain}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_values_without_fields_are_plain_json(value):
    assert recorded(value) == to_jsonable_python(value)


@pytest.mark.parametrize("change", ["track=[tensorboard]", "store.keep={full: 3}", "data.allow_overlap=true"])
def test_a_setting_that_changes_no_result_changes_no_name(change):
    config = load([Path("nano")])
    assert with_overrides(config, [change]).digest() == config.digest()
    assert with_overrides(config, ["seed=7"]).digest() != config.digest()


NANO = Path("configs/nano.yaml")


@pytest.mark.parametrize("name", RETIRED)
def test_a_retired_setting_that_is_off_changes_nothing(name: str):
    off = {None: "null", True: "true", False: "false"}.get(RETIRED[name].off, RETIRED[name].off)
    config = load([NANO], [f"{name}={off}"])
    assert config == load([NANO]) and config.digest() == load([NANO]).digest()
    values = config.model_dump(mode="json")
    assert validate(values) == RunConfig.model_validate(values) == config


@pytest.mark.parametrize("name", RETIRED)
def test_one_that_is_on_is_refused_with_advice(name: str):
    with pytest.raises(ConfigError, match="no longer a setting") as refused:
        load([NANO], [f"{name}=77"])
    assert name in refused.value.message and refused.value.hint == RETIRED[name].advice
