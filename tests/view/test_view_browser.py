"""`infuser view` in a real browser, on a run's own store: every page in both themes and at the width of a phone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import COMPLAINTS, Watched, chromium, watched
from launcher import SmallRun
from places import ROOT
from report_runs import HOSTILE, Maker, score, three_runs

from flows import deployment
from infuser_core.store.journal import Journal
from infuser_core.store.runs import hold_run
from infuser_core.store.store import Store

pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.timeout(240),
]
STATEMENT = "select%20*%20from%20question_history"
TALLEST = 5000
"""Pixels of a page at the width of a screen."""
NARROWEST = 390
"""Pixels in the width of a phone, where pages are taller."""


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """The address that `infuser view` prints over a store."""
    environment = {**os.environ, "INFUSER_STORE": str(root)}
    command = [sys.executable, "-m", "flows.cli.main", "view", "--no-browser"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="module")
def address(small_run: SmallRun) -> Iterator[str]:
    with serving(small_run.root) as found:
        yield found


@pytest.fixture
def tab(address: str, tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path / "profile", deployment.free_port()) as found:
        found.open(address)
        found.until("document.title == 'Runs' && document.readyState == 'complete'")
        found.events.clear()
        yield found


def go(tab: Watched, path: str) -> None:
    tab.value("window.left = true")
    tab.open(tab.value("location.origin") + path)
    tab.until("!window.left && document.readyState == 'complete' && !!document.querySelector('h1')")


@pytest.mark.parametrize(("theme", "width"), [("light", 1300), ("dark", 1300), ("dark", NARROWEST)])
def test_every_page_loads_itself_alone_and_fits(
    tab: Watched, small_run: SmallRun, theme: str, width: int, tmp_path: Path
):
    shots = Path(os.environ.get("INFUSER_SCREENSHOTS") or tmp_path)
    origin = tab.value("location.origin")
    tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
    run = f"/runs/{small_run.name}"
    parts = ("", "/iterations/0", "/evaluations", "/lineage", "/corpus", "/questions")
    both = f"/compare?run={small_run.name}&run={small_run.name}"
    for path in (
        "/",
        "/evaluations",
        f"/sql?statement={STATEMENT}",
        both,
        *(f"{run}{part}" for part in parts),
        "story",
    ):
        go(tab, tab.value("document.querySelector('td a').getAttribute('href')") if path == "story" else path)
        tab.until("!document.querySelector('[hx-get*=sheet]') || !!document.querySelector('.sheet img')")
        tab.photograph(shots / f"{tab.value('document.title.split(/ /)[0]')}-{theme}-{width}.png")
        assert tab.value("document.documentElement.scrollWidth") <= width, path
        tallest = TALLEST if width > NARROWEST else 1.3 * TALLEST
        assert tab.value("document.documentElement.scrollHeight") < tallest, path
        assert tab.value(
            "document.querySelectorAll('.plot').length == document.querySelectorAll('.plot canvas').length"
        )
    asked = [e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith((origin, "data:"))] == []
    assert [event for event in tab.events if event.get("method") in COMPLAINTS] == []


def test_from_a_rollout_to_the_page_of_its_textbook_in_three_clicks(tab: Watched, small_run: SmallRun):
    go(tab, "/sql?statement=select%20run,%20rollout_id%20from%20solver_answers%20limit%201")
    tab.click("td a[href*=why]")
    tab.until("document.body.innerText.includes('solver rollout') && !!document.querySelector('.sheet img')")
    assert tab.value("document.querySelector('.sheet img').naturalWidth") > 300
    assert tab.value("document.querySelectorAll('.sheet rect').length") > 0


def test_hostile_text_of_a_model_does_nothing(tmp_path: Path):
    run, *_ = three_runs(tmp_path / "store")
    statement = "select text, subdomain from questions"
    paths = (f"/sql?statement={quote(statement)}", f"/runs/{run}/questions")
    with serving(tmp_path / "store") as address, watched(tmp_path / "profile", deployment.free_port()) as tab:
        tab.open(address)
        tab.until("document.title == 'Runs'")
        tab.events.clear()
        for path in paths:
            go(tab, path)
            assert HOSTILE[:20] in tab.text(), path
            assert tab.value("[...document.scripts].every(each => each.src.startsWith(location.origin))"), path
        noises = (*COMPLAINTS, "Page.javascriptDialogOpening")
        assert [event for event in tab.events if event.get("method") in noises] == []


def test_the_slider_leads_to_another_iteration(tab: Watched, small_run: SmallRun):
    go(tab, f"/runs/{small_run.name}/iterations/0")
    tab.value("document.querySelector('[type=range]').value = 1")
    tab.value("document.querySelector('[type=range]').dispatchEvent(new Event('change', {bubbles: true}))")
    tab.until("document.title.startsWith('Iteration 1 of')")
    assert tab.value("location.pathname") == f"/runs/{small_run.name}/iterations/1"


def test_charts_of_a_running_run_grow_without_a_reload(tmp_path: Path):
    root = tmp_path / "store"
    run, *_ = three_runs(root)
    maker = Maker(store=Store(root), journal=Journal(root, run), run=run)
    points = "document.querySelector('.plot').chart.columns[0].join()"
    with (
        hold_run(root, run),
        serving(root) as address,
        watched(tmp_path / "profile", deployment.free_port()) as tab,
    ):
        maker.journal.start_attempt()
        tab.open(address)
        tab.until("document.title == 'Runs'")
        go(tab, f"/runs/{run}")
        tab.value("window.stays = true")
        assert tab.value(points) == "0,1,2,3" and "running" in tab.text()
        maker.commit("validate", 4, {"benchmark_scores": [score("validation", 0.75, 20.0)]}, of="validation")
        assert tab.until(f"{points} == '0,1,2,3,4' && window.stays") and "75%" in tab.text()


def test_a_finished_run_is_not_polled(tab: Watched, small_run: SmallRun):
    go(tab, f"/runs/{small_run.name}")
    assert tab.value("document.querySelector('[data-live]') == null")


def test_the_list_of_runs_refreshes(tab: Watched):
    go(tab, "/")
    tab.value("document.querySelector('#live td').textContent = 'stale'")
    tab.value("htmx.ajax('GET', '/', {source: '#live', target: '#live', select: '#live', swap: 'outerHTML'})")
    tab.until("!document.querySelector('#live').textContent.includes('stale')")
