"""Markdown pages of the Prefect UI: every artifact of a run, with links between their pages."""

import re
from uuid import uuid4

from launcher import SmallRun

from infuser_core.lineage.graph import graph_of
from infuser_core.store.catalogue import Catalogue
from tasks.lineage import lineage_page, link, page_key


def test_a_link_points_to_the_page_of_the_artifact_where_there_is_one() -> None:
    page = uuid4()
    assert page_key("update_solver-0123456789abcdef") == "update-solver-0123456789abcdef"
    assert link("update_solver-0123", {"update_solver-0123": page}) == (
        f"[update_solver-0123](/artifacts/artifact/{page})"
    )
    assert link("update_solver-0123", {}) == "`update_solver-0123`"


def test_the_run_page_links_every_artifact_and_each_of_its_inputs(small_run: SmallRun) -> None:
    graph = graph_of(Catalogue(small_run.root), small_run.name)
    pages = {key: uuid4() for key in graph.records}
    page = lineage_page(graph, pages)
    assert set(re.findall(r"\(/artifacts/artifact/([a-z0-9-]+)\)", page)) == {str(found) for found in pages.values()}
    for record in graph.records.values():
        start = f"| {record.phase} | {link(record.key, pages)} |"
        (row,) = [line for line in page.splitlines() if line.startswith(start)]
        for name, key in graph.inputs(record.key).items():
            assert f"{name} {link(key, pages)}" in row
