"""In a real browser on a real server: from a flow run to an artifact's page, and on to what it was made from.

`INFUSER_SCREENSHOTS=FOLDER` keeps the photographs.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, browser, chromium
from served import CONFIG, SMALL, Served

from flows import server
from infuser_core.lineage.graph import graph_of
from infuser_core.lineage.index import Catalogue
from infuser_core.runs import Journal, list_runs
from tasks.lineage import page_key

pytestmark = [
    pytest.mark.xdist_group("served"),
    pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium"),
]


@pytest.fixture
def finished(served: Served) -> str:
    """A run that the server has seen to its end: the one that other tests left, or a new one."""
    found = [name for name in list_runs(served.store) if Journal(served.store, name).is_finished()]
    if not found:
        overlay = served.store.parent / "overlay.yaml"
        overlay.write_text(json.dumps(SMALL))
        done = served.command("flows.cli", "run", CONFIG, str(overlay))
        assert done.returncode == 0, done.stderr
        found = list_runs(served.store)
    return found[0]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path / "profile", server.free_port()) as found:
        yield found


def test_a_person_clicks_from_a_flow_run_to_an_artifact_to_its_upstream_artifact(
    served: Served, finished: str, page: Page, tmp_path: Path
) -> None:
    shots = Path(os.environ.get("INFUSER_SCREENSHOTS") or tmp_path)
    graph = graph_of(Catalogue(served.store), finished)
    (written,) = graph.of("generate_questions", iteration=1)
    sources = graph.inputs(written.key)
    ui = served.url.removesuffix("/api")
    iterations = [r for r in served.post("flow_runs/filter", {}) if r["name"] == "iteration-1"]
    iteration = next(r for r in iterations if r["parameters"]["run"] == finished and r["state_name"] == "Completed")

    page.open(f"{ui}/runs/flow-run/{iteration['id']}")
    page.until("document.body.innerText.includes('Task runs')")
    page.press("Artifacts")
    page.until(f"document.body.innerText.includes('{page_key(written.key)}')")
    page.photograph(shots / "1-flow-run.png")
    page.press(page_key(written.key))

    page.until("document.body.innerText.includes('Upstream pages')")
    assert f"{written.phase}, iteration 1" in page.text()
    page.photograph(shots / "2-artifact.png")
    (upstream,) = [a for a in served.post("artifacts/latest/filter", {}) if a["key"] == page_key(sources["generator"])]
    link = f"a[href$='/artifacts/artifact/{upstream['latest_id']}']"
    # The UI opens links of Markdown pages in a new tab; this one stays to be photographed.
    page.value(f'document.querySelector("{link}").removeAttribute("target")')
    page.click(link)

    page.until(f"location.pathname.endsWith('{upstream['latest_id']}')")
    page.until("document.body.innerText.includes('update_generator, iteration 0')")
    assert "gradient_norm" in page.text()
    page.photograph(shots / "3-upstream.png")


def test_the_lineage_page_of_the_run_leads_to_every_artifact(
    served: Served, finished: str, page: Page, tmp_path: Path
) -> None:
    shots = Path(os.environ.get("INFUSER_SCREENSHOTS") or tmp_path)
    graph = graph_of(Catalogue(served.store), finished)
    (newest,) = [a for a in served.post("artifacts/latest/filter", {}) if a["key"] == f"{page_key(finished)}-lineage"]
    page.open(f"{served.url.removesuffix('/api')}/artifacts/artifact/{newest['latest_id']}")
    page.until(f"document.body.innerText.includes('Lineage of {finished}')")
    page.photograph(shots / "4-lineage.png")
    linked = page.value("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    pages = {href for href in linked if href and href.startswith("/artifacts/artifact/")}
    assert len(pages) == len(graph.records)
