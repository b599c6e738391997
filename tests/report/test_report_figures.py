"""Charts: the same numbers give the same bytes, and settings that differ are found whatever they are."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.report import figures
from infuser_core.report.figures import COLOURS, Drawing, Series
from infuser_core.report.queries import choose, differing, flat

HOSTILE = '_$x$ </svg><script>alert("x")</script> & \x1b[31m'
ONE = Series(label=HOSTILE, x=[1, 2, 4], y=[0.1, 0.4, 0.2], low=[0.0, 0.3, 0.1], high=[0.2, 0.5, 0.3])
NAMES = ["first", HOSTILE, "a heading that is far too long to stand below a bar of a chart"]
GROUPED = Series(label=HOSTILE, x=[0, 1, 2], y=[0.1, 0.4, 0.2], low=[0.0, 0.3, 0.1], high=[0.2, 0.5, 0.3])
KINDS = {
    "lines": figures.lines([ONE], name="a", label=HOSTILE, share=True, mark=2),
    "ticks": figures.lines([ONE, ONE], name="b", label="y", ticks=[1, 2, 4]),
    "bars": figures.bars([ONE] * 14, name="c", label="y"),
    "groups": figures.groups(NAMES, [GROUPED, GROUPED], name="d", label="y", share=True),
    "points": figures.points([ONE], name="e", label="y", xlabel="x", fit=(0.1, 0.2)),
    "radar": figures.radar(NAMES, [GROUPED], name="f"),
    "stacks": figures.stacks(NAMES, [GROUPED, GROUPED], name="g", label="seconds"),
}


@pytest.mark.parametrize("drawing", KINDS.values(), ids=KINDS)
def test_a_chart_is_the_same_twice_and_is_well_formed(drawing: Drawing):
    assert figures.svg(drawing) == figures.svg(drawing)
    assert figures.png(drawing) == figures.png(drawing)
    for themed in (True, False):
        tags = {
            element.tag.rpartition("}")[2]
            for element in ElementTree.fromstring(figures.svg(drawing, themed=themed)).iter()
        }
        assert "script" not in tags and "image" not in tags


@pytest.mark.parametrize("drawing", KINDS.values(), ids=KINDS)
def test_a_page_colours_its_charts_and_a_file_is_on_its_own(drawing: Drawing):
    themed, alone = figures.svg(drawing), figures.svg(drawing, themed=False)
    assert "var(--c0)" in themed and "currentColor" in themed and figures.INK not in themed + alone
    assert not any(colour in themed for colour in COLOURS)
    assert "var(" not in alone and "currentColor" not in alone and COLOURS[0] in alone


def test_the_page_has_every_colour_in_every_theme():
    from importlib import resources

    style = resources.files("infuser_core.report").joinpath("page.css").read_text()
    assert all(style.count(f"--c{index}:") == 3 for index in range(len(COLOURS)))
    assert all(style.count(colour) == 2 for colour in COLOURS), "on the light page and on paper"


SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)


@given(config=st.dictionaries(st.text("abc", min_size=1, max_size=2), SETTINGS, min_size=1, max_size=4))
def test_equal_settings_differ_in_nothing(config: dict[str, object]):
    first, second = choose({"a": {**config, "seed": 1}, "b": {**config, "seed": 2}})
    assert differing([first, second]) == []


@given(
    config=st.dictionaries(st.text("abc", min_size=1, max_size=2), SETTINGS, min_size=1), value=st.integers(-9999, 9999)
)
def test_one_changed_leaf_is_the_one_that_differs(config: dict[str, object], value: int):
    changed = {**config, "z": {"y": value + 1}}
    first, second = choose({"a": {**config, "name": "n", "z": {"y": value}}, "b": {**changed, "name": "n"}})
    assert differing([first, second]) == ["z.y"]
    assert (first.variant, second.variant) == (f"n z.y={value}", f"n z.y={value + 1}")
    assert flat({"z": {"y": value}}) == {"z.y": value}
