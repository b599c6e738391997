"""Charts are well-formed and coloured for page or file; settings that differ are found whatever they are."""

import xml.etree.ElementTree as ElementTree
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.results.report import charts
from infuser_core.results.report.charts import COLOURS, ChartSeries, Figure
from infuser_core.results.report.queries import differing, flat, report_runs

HOSTILE = '_$x$ </svg><script>alert("x")</script> & \x1b[31m'
ONE = ChartSeries(label=HOSTILE, x=[1, 2, 4], y=[0.1, 0.4, 0.2], low=[0.0, 0.3, 0.1], high=[0.2, 0.5, 0.3])
NAMES = ["first", HOSTILE, "a heading that is far too long to stand below a bar of a chart"]
GROUPED = ChartSeries(label=HOSTILE, x=[0, 1, 2], y=[0.1, 0.4, 0.2], low=[0.0, 0.3, 0.1], high=[0.2, 0.5, 0.3])
KINDS = {
    "lines": charts.lines(HOSTILE, [ONE], name="a", label=HOSTILE, share=True),
    "ticks": charts.lines(HOSTILE, [ONE, ONE], name="b", label="y", ticks=[1, 2, 4]),
    "groups": charts.groups(HOSTILE, NAMES, [GROUPED, GROUPED], name="d", label="y", share=True),
    "points": charts.points(HOSTILE, [ONE], name="e", label="y", xlabel="x", fit=(0.1, 0.2)),
}


@pytest.mark.parametrize("figure", KINDS.values(), ids=KINDS)
def test_a_chart_is_well_formed_and_coloured_for_a_page_or_a_file(figure: Figure):
    themed, alone = charts.svg(figure), charts.svg(figure, themed=False)
    for written in (themed, alone):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(written).iter()}
        assert "path" in tags and not tags & {"script", "image"}
    assert "var(--c0)" in themed and "currentColor" in themed and charts.INK not in themed + alone
    assert not any(colour in themed for colour in COLOURS)
    assert "var(" not in alone and "currentColor" not in alone and COLOURS[0] in alone
    assert charts.png(figure).startswith(b"\x89PNG")


def test_the_picture_of_the_prediction_study_has_a_bar_per_predictor_and_change():
    rows = [
        RankCorrelation(predictor=name, target=target, spearman=0.5, low=0.2, high=0.7, count=9)
        for target in ("dev", "held_out")
        for name in ("raw_cosine", "tokens")
    ]
    figure = charts.correlations(rows)
    assert figure.labels == ("dev", "held_out")
    assert all(name in charts.svg(figure, themed=False) for name in ("raw cosine", "tokens", "held_out"))


def test_the_page_has_every_colour_in_every_theme():
    style = resources.files("infuser_core.results.view").joinpath("static", "page.css").read_text()
    assert all(style.count(f"--c{index}:") == 3 for index in range(len(COLOURS)))
    assert all(style.count(colour) == 2 for colour in COLOURS), "on the light page and on paper"


SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)


@given(
    config=st.dictionaries(st.text("abc", min_size=1, max_size=2), SETTINGS, min_size=1), value=st.integers(-9999, 9999)
)
def test_one_changed_leaf_is_the_one_that_differs(config: dict[str, object], value: int):
    same = report_runs({"a": {**config, "seed": 1}, "b": {**config, "seed": 2}})
    assert differing(same) == []
    changed = {**config, "z": {"y": value + 1}}
    first, second = report_runs({"a": {**config, "name": "n", "z": {"y": value}}, "b": {**changed, "name": "n"}})
    assert differing([first, second]) == ["z.y"]
    assert (first.variant, second.variant) == (f"n z.y={value}", f"n z.y={value + 1}")
    assert flat({"z": {"y": value}}) == {"z.y": value}
