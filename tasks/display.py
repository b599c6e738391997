"""Show a run in Prefect's UI: progress bar of the running stage, a page per artifact with links, a page per run.

Prefect is imported inside the functions, because it takes seconds and only runs that are shown in it need it.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from infuser_core.results.lineage.addresses import PAGES, UI
from infuser_core.results.lineage.graph import graph_of
from infuser_core.results.lineage.markdown import artifact_key, artifact_page, described, page_key, run_page
from infuser_core.results.trackers.parts.files import redacted
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.runs import read_config
from infuser_core.store.store import Store
from infuser_core.system import fault_points as faults
from infuser_core.terminal import printable
from tasks.run import Execution, Run, unpublish

RUN_PAGE = "curves, and what was made from what"
"""Description of a run's page in Prefect's lists."""
_FIRST = 0.5
"""Seconds before a stage gets a progress bar."""
_EVERY = 2.0
"""Seconds between updates of the progress bar."""


class Ticker:
    """Receives a phase's progress and passes it to the terminal, to Prefect and to the crash points of tests."""

    def __init__(self, run: Execution, recipe: Recipe) -> None:
        self._run = run
        self._recipe = recipe
        self._due = time.monotonic() + _FIRST
        self._artifact: UUID | None = None

    def __call__(self, current: int, total: int, tokens: int) -> None:
        faults.point(f"{self._recipe.phase}:inside")
        self._run.console.progress(current, total, tokens)
        if self._run.published and time.monotonic() >= self._due:
            self._publish(100.0 * current / max(1, total))
            self._due = time.monotonic() + _EVERY

    def finish(self) -> None:
        """Set the stage's progress bar to 100%."""
        if self._artifact is not None and self._run.published:
            self._publish(100.0)

    def _publish(self, percent: float) -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        with _tolerating_loss(self._run):
            if self._artifact is None:
                key = artifact_key(self._run.name, self._recipe.phase, "progress")
                text = self._recipe.title
                created: Any = create_progress_artifact(progress=percent, key=key, description=text)
                self._artifact = created
            else:
                update_progress_artifact(artifact_id=self._artifact, progress=percent)


@contextmanager
def _tolerating_loss(run: Execution) -> Iterator[None]:
    """Continue the run without Prefect if publishing inside the block fails."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        unpublish(run)
        run.console.say(f"the Prefect server was lost, the run continues without it: {' '.join(str(error).split())}")


def log(line: str) -> None:
    """Write a line to Prefect's log of the current task run, if any."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    with suppress(MissingContextError):
        get_run_logger().info(redacted(printable(line)))


def show_tags(run: Run, flow_run: str) -> None:
    """Tag Prefect's flow run with the run's name, configuration, variant and seed."""
    from prefect.client.orchestration import get_client

    config = run.config
    facts = {"run": run.name, "config": config.name, "variant": config.variant, "seed": config.seed}
    tags = {f"{name}:{value}" for name, value in facts.items() if value != ""}
    with _tolerating_loss(run), get_client(sync_client=True) as client:
        present = client.read_flow_run(UUID(flow_run)).tags
        client.update_flow_run(UUID(flow_run), tags=sorted({*present, *tags}))


def show_page(run: Execution, ref: ArtifactRef) -> None:
    """Publish an artifact's page in Prefect, with links to the pages of its inputs."""
    from prefect.artifacts import create_markdown_artifact

    record = run.store.manifest(ref)
    with _tolerating_loss(run):
        create_markdown_artifact(
            key=page_key(record.phase, record.iteration, record.key),
            markdown=artifact_page(run.store, record, run=run.name),
            description=described(record, run.name),
        )


def page_address(key: str) -> str:
    """Address of a page by its Prefect key, which Prefect's UI makes a link in its logs; empty without a UI."""
    from prefect.settings import PREFECT_UI_URL

    ui = str(PREFECT_UI_URL.value() or "").removesuffix(UI)
    return f"{ui}{PAGES}/{key}" if ui else ""


def show_run(run: Execution) -> None:
    """Publish the run's page in Prefect if anything ran: curves, and artifacts by iteration with links."""
    if not any(entry.state == "ran" for entry in run.journal.last_attempt()):
        return
    from prefect.artifacts import create_markdown_artifact

    with _tolerating_loss(run):
        page = page_of_run(run.store.root, run.name)
        key = artifact_key("run", run.name)
        create_markdown_artifact(key=key, markdown=page, description=RUN_PAGE)
        log(f"curves and artifacts of the run: {page_address(key)}")


def page_of_run(root: Path, name: str) -> str:
    """Markdown page of a run, with images of its validation accuracy and mean influence curves."""
    from infuser_core.results.report import charts, training
    from infuser_core.results.report.queries import report_runs
    from infuser_core.store.views import Lens

    store = Store(root)
    with closing(Lens(store, runs=[name])) as lens:
        variants = report_runs({name: read_config(root, name)})
        sections = [build(lens.query, variants) for build in (training.validation, training.influence)]
    figures = [(one.title, charts.svg(one, themed=False)) for section in sections for one in section.figures]
    return run_page(graph_of(Catalogue(root), name), figures)
