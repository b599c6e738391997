"""`infuser serve` for real: server, UI, deployment, kill -9, retry, pages in a browser, and `infuser run` beside it.

`INFUSER_SCREENSHOTS=FOLDER` keeps the photographs.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from browser import Page, browser, chromium
from crash_points import begun
from launcher import SmallRun
from served import CONFIG, SMALL, Served, eventually

from flows import deployment
from infuser_core.results.lineage.graph import graph_of
from infuser_core.results.lineage.markdown import PAGES, artifact_key, page_key
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.runs import list_runs

BROWSER = pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def served(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests of this file, over a store that has the corpus already."""
    running = Served(begun(small_run, tmp_path_factory.mktemp("served") / "store"))
    yield running
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(timeout=20) in (0, 130), running.log.read_text()
    assert not deployment.is_up(running.url)
    assert running.announcement.read_text() == ""


@pytest.fixture
def finished(served: Served) -> str:
    """A run that the server has seen to its end: the one that other tests left, or a new one."""
    found = [name for name in list_runs(served.store) if Journal(served.store, name).is_finished()]
    if not found:
        overlay = served.store.parent / "overlay.yaml"
        # Long enough for a progress bar on a fast machine.
        overlay.write_text(json.dumps(SMALL | {"evaluate": {"benchmarks": [{"name": "nano_target", "samples": 16}]}}))
        done = served.command("flows.cli.main", "run", CONFIG, str(overlay))
        assert done.returncode == 0, done.stderr
        found = list_runs(served.store)
    return found[0]


@pytest.fixture
def page(served: Served, tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path / "profile", deployment.free_port()) as found:
        served.show(found)
        yield found


@pytest.mark.long
def test_a_killed_flow_run_is_crashed_and_retry_goes_on_from_its_last_stage(served: Served) -> None:
    started = served.prefect(
        "deployment", "run", "infuser/full-pipeline",
        "--param", f"configs={json.dumps([CONFIG])}", "--param", f"overrides={json.dumps(SMALL)}",
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    flow_run = re.search(r"UUID: (\S+)", started.stdout).group(1)  # type: ignore[union-attr]
    name = eventually(lambda: runs.list_runs(served.store), 120)[0]
    journal = Journal(served.store, name)
    eventually(lambda: [e for e in journal.entries() if e.iteration == 0 and e.phase == "update_solver"], 120)
    holder = json.loads((runs.runs_folder(served.store) / name / "lease.json").read_text())["pid"]
    os.kill(holder, signal.SIGKILL)
    eventually(lambda: served.state(flow_run) == "Crashed", 60)
    before = {entry.key for entry in journal.entries()}

    retried = served.prefect("flow-run", "retry", flow_run)
    assert retried.returncode == 0, retried.stderr
    eventually(lambda: served.state(flow_run) == "Completed", 150)

    assert runs.list_runs(served.store) == [name]
    second = journal.last_attempt()
    assert {entry.key for entry in second if entry.state == "cached"} == before
    assert {entry.phase for entry in second if entry.state == "ran"} >= {"update_solver", "select", "evaluate"}
    states = [task["state_name"] for task in served.post("task_runs/filter", {})]
    assert states.count("Cached") >= 5
    lines = eventually(lambda: [line for line in messages(served) if line.startswith("rollout_dev, iteration 0:")], 20)
    assert lines == ["rollout_dev, iteration 0: 1 artifact in the store"]


def test_many_writers_at_once_are_all_served(served: Served) -> None:
    flow = served.post("flows/", {"name": "many-writers"})["id"]
    with ThreadPoolExecutor(12) as pool:
        bodies = [{"flow_id": flow, "state": {"type": "RUNNING"}} for _ in range(60)]
        made = list(pool.map(lambda body: served.post("flow_runs/", body)["id"], bodies))
        ends = [{"state": {"type": "COMPLETED"}, "force": True} for _ in made]
        list(pool.map(lambda run, end: served.post(f"flow_runs/{run}/set_state", end), made, ends))
    assert len(set(made)) == 60


def test_artifact_pages_tell_rows_recipe_origin_and_sql(served: Served, finished: str) -> None:
    artifacts = served.post("artifacts/filter", {"sort": "CREATED_DESC"})
    page = next(a["data"] for a in artifacts if a["key"].startswith("solver-after-update-"))
    for part in ("| step |", "## Recipe", "## Made from", "- solver: `", 'infuser sql "select * from updates where'):
        assert part in page, page
    bars = [a for a in artifacts if a["type"] == "progress"]
    assert bars and all(0 <= bar["data"] <= 100 for bar in bars)


def test_a_run_is_tagged_and_its_log_has_the_numbers_of_every_stage(served: Served, finished: str) -> None:
    (run, *_) = [root for root in served.roots() if root["name"] == finished]
    assert {f"run:{finished}", "config:nano", "seed:42"} <= {*run["tags"]}
    # Prefect sends its log every few seconds.
    lines = eventually(
        lambda: [line for line in messages(served) if "score_influence" in line and "mean score" in line], 20
    )
    pages = f"{served.url.removesuffix('/api')}{PAGES}"
    assert all(f"  {pages}/influence-scores-iteration-" in line for line in lines), "the UI makes it a link"


def test_task_runs_are_named_by_what_they_work_on(served: Served, finished: str) -> None:
    names = {task["name"] for task in served.post("task_runs/filter", {})}
    assert names >= {
        "questions dev",
        "questions validation",
        "respond validation, iteration 0",
        "rollout_dev, iteration 1",
    }
    flows = {run["name"] for run in served.post("flow_runs/filter", {})}
    assert flows >= {finished, f"co-training of {finished}", f"evaluation of {finished}", "iteration-1"}


def test_the_page_of_a_run_is_written_after_every_validation(served: Served, finished: str) -> None:
    pages = [page for page in served.post("artifacts/filter", {}) if page["key"] == artifact_key("run", finished)]
    validations = [
        entry
        for entry in Journal(served.store, finished).entries()
        if (entry.phase, entry.state) == ("validate", "ran")
    ]
    assert len(pages) == len(validations) + 1


def test_every_parameter_of_the_deployment_is_described(served: Served) -> None:
    (deployment_row,) = served.post("deployments/filter", {})
    parameters = deployment_row["parameter_openapi_schema"]["properties"]
    assert all(each["description"] for each in parameters.values()) and parameters["configs"]["default"] == ["nano"]
    assert "qwen3-4b" in parameters["configs"]["items"]["anyOf"][0]["enum"]


def messages(served: Served) -> list[str]:
    """The newest lines of Prefect's log."""
    return [each["message"] for each in served.post("logs/filter", {"limit": 200, "sort": "TIMESTAMP_DESC"})]


@BROWSER
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

    page.open(f"{ui}/v2/runs/flow-run/{iteration['id']}")
    page.until("document.body.innerText.includes('Task Runs')")
    page.press("Artifacts")
    name = page_key(written.phase, written.iteration, written.key)
    assert name.startswith("generated-questions-iteration-1-")
    page.until(f"document.body.innerText.includes('{name}')")
    page.photograph(shots / "1-flow-run.png")
    page.press(name)

    page.until("document.body.innerText.includes('Upstream pages')")
    page.until("document.body.innerText.includes('Generated questions, iteration 1')")
    page.photograph(shots / "2-artifact.png")
    above = graph.records[sources["generator"]]
    upstream = f"{PAGES}/{page_key(above.phase, above.iteration, above.key)}"
    link = f"a[href$='{upstream}']"
    # The UI opens links of Markdown pages in a new tab; this one stays to be photographed.
    page.value(f'document.querySelector("{link}").removeAttribute("target")')
    page.click(link)

    page.until("location.pathname.startsWith('/v2/artifacts/artifact/')")
    page.until("document.body.innerText.includes('Generator after update, iteration 0')")
    page.until("document.body.innerText.includes('gradient_norm')")
    page.photograph(shots / "3-upstream.png")

    page.value("document.querySelector(\"a[href^='/view/']\").removeAttribute('target')")
    page.click("a[href^='/view/']")
    page.until(f"location.pathname === '/runs/{finished}/why/{above.key}'")
    page.until("document.body.innerText.includes('update_generator')")
    page.photograph(shots / "5-viewer.png")


@BROWSER
def test_the_page_of_the_run_shows_its_curves_and_leads_to_every_artifact(
    served: Served, finished: str, page: Page, tmp_path: Path
) -> None:
    shots = Path(os.environ.get("INFUSER_SCREENSHOTS") or tmp_path)
    graph = graph_of(Catalogue(served.store), finished)
    (newest,) = [a for a in served.post("artifacts/latest/filter", {}) if a["key"] == artifact_key("run", finished)]
    page.open(f"{served.url.removesuffix('/api')}/v2/artifacts/artifact/{newest['latest_id']}")
    page.until(f"document.body.innerText.includes('Run {finished}')")
    widths = page.until("[...document.querySelectorAll('img[src^=\"data:image\"]')].map(i => i.naturalWidth).join()")
    assert len(widths.split(",")) == 2 and "0" not in widths.split(",")
    page.photograph(shots / "4-run.png")
    linked = page.value("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    pages = {href for href in linked if href and href.startswith(f"{PAGES}/")}
    keys = {page_key(record.phase, record.iteration, record.key) for record in graph.records.values()}
    assert pages >= {f"{PAGES}/{key}" for key in keys}


@pytest.mark.long
def test_a_killed_infuser_run_under_serve_is_settled_and_resumed(served: Served) -> None:
    overlay = served.store.parent / "overlay.yaml"
    overlay.write_text(json.dumps(SMALL))
    # Another learning rate than above: the corpus and the first solver's rollouts are in the store already.
    arguments = ["run", CONFIG, str(overlay), "--set", "cotrain.solver.learning_rate=2e-4"]
    killed = served.command("flows.cli.main", *arguments, INFUSER_CRASH_AT="update_solver:start:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    root = served.roots()[0]
    assert root["state_name"] == "Running"
    eventually(lambda: served.state(root["id"]) == "Crashed", 90)
    running = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    eventually(lambda: not served.post("flow_runs/filter", running), 60)

    resumed = served.command("flows.cli.main", "resume")
    assert resumed.returncode == 0, resumed.stderr
    assert served.roots()[0]["state_name"] == "Completed"
    assert served.roots()[0]["name"] == root["name"]
