"""The graph of a run: above and below an artifact, its drawing, and pages in the Prefect UI."""

import itertools
import json
import re
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun

from infuser_core.config.phase_table import LOOP, Phase
from infuser_core.results.lineage.addresses import PAGES
from infuser_core.results.lineage.graph import Graph, graph_of, stale_reasons
from infuser_core.results.lineage.markdown import (
    artifact_key,
    artifact_page,
    described,
    heading,
    markdown_table,
    page_key,
    run_page,
)
from infuser_core.results.lineage.pages import folds, graph_html, links
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import Recipe, stage_title
from infuser_core.store.store import Outcome, Store


@pytest.fixture(scope="module")
def graph(small_run: SmallRun) -> Graph:
    return graph_of(Catalogue(small_run.root), small_run.name)


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


def test_every_artifact_has_one_box_of_its_own_and_no_boxes_overlap(graph: Graph):
    found = folds(graph)
    assert sorted(record.key for fold in found for record in fold.records) == sorted(graph.records)
    assert [fold.title for fold in found][:2] == ["before the iterations", "iteration 0"]
    for fold in found:
        assert len({box.corner for box in fold.boxes}) == len(fold.boxes)
        assert {box.record.key for box in fold.boxes if box.own} == {record.key for record in fold.records}


def test_a_validation_is_drawn_in_the_iteration_that_begins_with_its_checkpoint(graph: Graph):
    places = {record.key: fold for fold in folds(graph) for record in fold.records}
    loop = {record.iteration for record in graph.of(*LOOP)}
    validations = graph.of(Phase.VALIDATE)
    assert validations and all(
        places[record.key].iteration == (record.iteration if record.iteration in loop else None)
        for record in validations
    )


def test_an_artifact_is_stale_when_a_newer_version_of_a_phase_before_it_was_used(tmp_path: Path):
    store = Store(tmp_path)

    def commit(phase: str, version: int, **inputs: str) -> str:
        recipe = Recipe(phase=phase, version=version, config={}, seed=0, inputs=inputs)
        with store.exclusive(recipe), store.workspace(recipe) as workspace:
            return store.commit(recipe, workspace, Outcome(tables={}), seconds=0.1).id

    chunk = commit("chunk", 1)
    pool = commit("pool", 1, chunks=chunk)
    keys = [identity.split("@")[0] for identity in (chunk, pool)]
    assert stale_reasons(Graph(Catalogue(tmp_path), "r", keys)) == {}
    commit("chunk", 2)
    reasons = stale_reasons(Graph(Catalogue(tmp_path), "r", keys))
    assert "version 2 is newer" in reasons[keys[0]] and reasons[keys[1]] == "its input chunks is stale"


def test_inputs_stand_to_the_left(graph: Graph):
    for fold in folds(graph):
        left = {box.record.key: box.corner[0] for box in fold.boxes}
        drawn = [
            (source, box.record.key)
            for box in fold.boxes
            if box.own
            for source in graph.inputs(box.record.key).values()
        ]
        assert len(drawn) == len(fold.curves)
        assert [link for link in drawn if left[link[0]] >= left[link[1]]] == []


def test_every_link_of_the_page_leads_to_a_box(graph: Graph):
    page = graph_html(graph)
    assert page.count("<path") == len(links(graph))
    assert set(re.findall(r'href="#([^"]+)"', page)) == set(re.findall(r' id="([^"]+)"', page)) == set(graph.records)
    assert "<script" not in page and "http://" not in page and "prefers-color-scheme" in page


def test_the_command_prints_lines_json_or_a_page(small_run: SmallRun, launch: Launcher, tmp_path, graph: Graph):
    text = launch("why", "--graph", small_run.name, store=small_run.root)
    assert text.code == 0 and all(key in text.out for key in graph.records), text.err
    told = json.loads(launch("why", "--graph", small_run.name, "--json", store=small_run.root).out)
    assert {node["key"] for node in told["nodes"]} == set(graph.records)
    page = launch(
        "why", "--graph", small_run.name, "--html", str(tmp_path / "deep" / "graph.html"), store=small_run.root
    )
    assert page.code == 0 and (tmp_path / "deep" / "graph.html").read_text().count("<svg") == len(folds(graph))


def test_the_prefect_page_of_a_run_has_its_figures_a_row_per_iteration_and_every_artifact_once(graph: Graph):
    page = run_page(graph, [("Accuracy", "<svg/>")])
    assert "![Accuracy](data:image/svg+xml;base64,PHN2Zy8+)" in page
    assert f"](/view/runs/{graph.run})" in page
    linked = re.findall(rf"\({PAGES}/([a-z0-9-]+)\)", page)
    keys = {page_key(record.phase, record.iteration, record.key) for record in graph.records.values()}
    assert sorted(linked) == sorted(keys) and len(keys) == len(graph.records)
    assert page.count("\n| ") == 1 + len({record.iteration for record in graph.records.values()})


def test_a_key_holds_what_prefect_allows() -> None:
    assert artifact_key("nano-s42.1", "update_solver") == "nano-s42-1-update-solver"


def test_a_title_names_the_iteration_only_inside_the_loop() -> None:
    assert stage_title("update_solver", 0) == "update_solver, iteration 0"
    assert stage_title("judge", -1) == "judge"


def test_a_page_is_called_by_what_the_stage_made() -> None:
    assert heading("score_influence", 3) == "Influence scores, iteration 3"
    assert heading("given_pool", -1) == "Given pool"
    made = page_key("update_solver", 12, "update_solver-8d17edaffa15754a")
    assert made == "solver-after-update-iteration-12-15754a"


def test_a_table_keeps_its_shape_whatever_a_cell_holds() -> None:
    rows = [{"text": "a|b\nc<d>", "value": 0.123456789, "long": "x" * 100, "counts": {"ok": 2}}]
    head, rule, body = markdown_table(rows).splitlines()
    assert head == "| text | value | long | counts |"
    assert rule == "|---|---|---|---|"
    assert body == f"| a\\|b c&lt;d> | 0.123457 | {'x' * 57}... | ok 2 |"


def test_a_page_shows_few_columns_with_the_text_first_and_names_the_others(small_run: SmallRun) -> None:
    (written,) = [
        record for record in Catalogue(small_run.root).records_of_phase("generate_questions") if record.iteration == 0
    ][:1]
    page = artifact_page(small_run.store, written, run=small_run.name)
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles.index(f"## questions ({written.rows['questions']} rows)") < titles.index(
        f"## question_labels ({written.rows['question_labels']} rows)"
    )
    heads = [above for above, rule in itertools.pairwise(page.splitlines()) if rule.startswith("|---")]
    assert all(head.count("|") <= 7 for head in heads) and sum(head.startswith("| text |") for head in heads) >= 2
    assert "\nMore columns: " in page and "question_id" in page.split("More columns: ")[1].splitlines()[0]
    assert f"](/view/runs/{small_run.name}/why/{written.key}#used_by)" in page


def test_a_description_begins_with_the_number_of_the_curve(small_run: SmallRun) -> None:
    (measured, *_) = [
        record for record in Catalogue(small_run.root).records_of_phase("validate") if record.iteration == 2
    ]
    assert described(measured, "small").startswith(
        f"accuracy {measured.summary['accuracy']:.6g}, validation, iteration 2"
    )
    assert described(measured, "small").endswith("; run small")
