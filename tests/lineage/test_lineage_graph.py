"""The graph of a run: what is above and below an artifact, how it is drawn, and its page in the Prefect UI."""

import json
import re

import pytest
from launcher import Launcher, SmallRun

from infuser_core.lineage.graph import Graph, graph_of
from infuser_core.lineage.markdown import artifact_key, lineage_page, link
from infuser_core.lineage.pages import Overview, of_run
from infuser_core.store.catalogue import Catalogue


@pytest.fixture(scope="module")
def graph(small_run: SmallRun) -> Graph:
    return graph_of(Catalogue(small_run.root), small_run.name)


@pytest.fixture(scope="module")
def overview(small_run: SmallRun) -> Overview:
    return of_run(small_run.root, small_run.name)


def reachable(links: set[tuple[str, str]], start: str) -> set[str]:
    """Everything that follows from `start`, by widening until nothing is new."""
    found = {start}
    while more := {b for a, b in links if a in found} - found:
        found |= more
    return found


def test_above_and_below_are_what_the_recipes_inputs_reach(graph: Graph):
    ids = {record.ref.id: key for key, record in graph.records.items()}
    links = {(ids[source], key) for key, record in graph.records.items() for source in record.inputs.values()}
    for key in graph.records:
        assert {record.key for record in graph.below([key])} == reachable(links, key)
        back = {(b, a) for a, b in links}
        assert {record.key for record in graph.above(key)} == reachable(back, key) - {key}


def test_below_stands_in_the_order_of_the_pipeline(graph: Graph):
    for key in graph.records:
        order = [record.key for record in graph.below([key])]
        for place, name in enumerate(order):
            assert not set(graph.inputs(name).values()) & set(order[place:])


def test_checkpoints_lead_back_to_the_anchor(graph: Graph):
    for role in ("solver", "generator"):
        last = graph.checkpoint(role, 2)
        assert last is not None
        phases = [record.phase for record in graph.trained(last.key)]
        assert phases == ["anchor", f"update_{role}", f"update_{role}"]
    anchor = graph.checkpoint("solver", 0)
    assert anchor is not None and anchor.phase == "anchor"


def test_boxes_do_not_overlap_and_inputs_stand_left_or_in_the_same_column(overview: Overview):
    places = overview.places
    assert places and len(set(places.values())) == len(places)
    for edge in overview.links:
        assert places[edge["source"]][0] <= places[edge["target"]][0]


def test_a_phase_stands_in_one_row_through_all_iterations(overview: Overview):
    rows: dict[str, set[int]] = {}
    for key, (column, row) in overview.places.items():
        phase = overview.graph.records[key].phase
        if 0 < column <= len(overview.iterations) and phase != "respond":
            rows.setdefault(phase, set()).add(row)
    assert len(rows) >= 7
    assert {phase: found for phase, found in rows.items() if len(found) > 1} == {}


def test_the_page_draws_every_artifact_and_link_and_every_link_leads_somewhere(overview: Overview):
    page = overview.html()
    assert page.count("<rect") == len(overview.graph.records)
    assert page.count("<path") == len(overview.links)
    assert (
        set(re.findall(r'href="#([^"]+)"', page))
        == set(re.findall(r' id="([^"]+)"', page))
        == set(overview.graph.records)
    )
    assert "<script" not in page and "http://" not in page.replace('"http-equiv', "") and "prefers-color-scheme" in page


def test_the_command_prints_lines_json_or_a_page(small_run: SmallRun, launch: Launcher, tmp_path, graph: Graph):
    text = launch("lineage", small_run.name, store=small_run.root)
    assert text.code == 0 and all(key in text.out for key in graph.records), text.err
    told = json.loads(launch("lineage", small_run.name, "--json", store=small_run.root).out)
    assert {node["key"] for node in told["nodes"]} == set(graph.records)
    page = launch("lineage", small_run.name, "--html", str(tmp_path / "deep" / "graph.html"), store=small_run.root)
    assert page.code == 0 and (tmp_path / "deep" / "graph.html").read_text().count("<svg") == 1


def test_the_prefect_page_of_a_run_links_every_artifact_and_each_of_its_inputs(graph: Graph):
    page = lineage_page(graph)
    linked = re.findall(r"\(/artifacts/key/([a-z0-9-]+)\)", page)
    assert set(linked) == {artifact_key(key) for key in graph.records}
    for record in graph.records.values():
        start = f"| {record.phase} | [{record.key}](/artifacts/key/{artifact_key(record.key)}) |"
        (row,) = [line for line in page.splitlines() if line.startswith(start)]
        for name, key in graph.inputs(record.key).items():
            assert f"{name} {link(key)}" in row
