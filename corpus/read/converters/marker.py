"""marker as a converter of PDFs: the command that `INFUSER_MARKER` names, on ranges of pages."""

from pathlib import Path

from corpus.read.marker import MarkerConfig, convert_marker, is_installed
from corpus.read.marker_servers import Servers
from corpus.read.page import Job
from infuser_core import settings
from infuser_core.schemas import Page


def trouble(job: Job) -> str:
    """Reason for which it cannot work here; empty when nothing speaks against it."""
    command = settings.marker_command()
    return "" if is_installed(command) else f"no command {command!r} is installed"


def convert(path: Path, source_id: str, job: Job) -> Page:
    """One PDF. Raises DocumentError when the command cannot work at all."""
    config = MarkerConfig(
        command=settings.marker_command(),
        wall_seconds=job.settings.seconds,
        memory_bytes=int(job.settings.marker_gigabytes * 10**9),
        pages_per_range=job.settings.marker_pages,
        work=job.work / "marker" if job.work else None,
    )
    servers = job.kept.once(Servers) if job.kept else None
    return convert_marker(path, source_id, config, servers=servers, progress=job.progress)
