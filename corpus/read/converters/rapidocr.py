"""PDF converter for scanned books: RapidOCR reads the rendered pages on the CPU, without a network.

Batches of pages are read by limited processes, one for each core. Every page that a batch has read is stored, so the
next attempt resumes with the others.
"""

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from corpus.read.file_kinds import COUNTER, pdf_fault
from corpus.read.page import ConversionJob, page_of, reason_of
from corpus.read.printed import RemovedText
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system import child, sealed

INSTALL = "pip install 'infuser[scans]'"
PACKAGES = {"rapidocr": "rapidocr", "rapid_layout": "rapid-layout", "onnxruntime": "onnxruntime"}
"""Distributions by module."""
VERSION = 1
BATCH = 4
"""Most pages that one process reads: it starts in two seconds, and a page takes four."""
MEMORY_BYTES = 8 << 30
"""Address space of such a process; its resident memory is a tenth of that."""
CORES = os.cpu_count() or 1
_idle_cores = BoundedSemaphore(CORES)


def name() -> str:
    """Name and version of the converter."""
    return f"rapidocr-{VERSION}-" + "-".join(version(package) for package in PACKAGES.values())


def trouble(job: ConversionJob) -> str:
    """Return why RapidOCR cannot run here; empty if it can."""
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    return f"{', '.join(missing)} not installed: {INSTALL}" if missing else ""


def convert(path: Path, source_id: str, job: ConversionJob) -> Page:
    """Convert one PDF to Markdown with its page map. Returns a rejected page row for a file that cannot be read.

    Raises DocumentError if RapidOCR is not installed.
    """
    if fault := trouble(job):
        raise DocumentError(f"rapidocr: {fault}", hint=INSTALL)
    if fault := pdf_fault(path):
        return page_of(source_id, converter=name(), reason=fault)
    try:
        num_pages = int(child.call(COUNTER, {"path": str(path)}, job.limits))
    except DocumentError as error:
        return page_of(source_id, converter=name(), reason=reason_of(error))
    if num_pages > job.settings.max_pages:
        reason = f"too_long: {num_pages} pages, at most {job.settings.max_pages} are converted"
        return page_of(source_id, converter=name(), num_pages=num_pages, reason=reason)
    with ExitStack() as stack:
        folder = _page_folder(path, job.work or Path(stack.enter_context(tempfile.TemporaryDirectory())))
        try:
            pages = read_pages(path, folder, num_pages, job)
            reading = child.call("corpus.read.scans:assemble", {"path": str(path), "pages": pages}, job.limits)
        except DocumentError as error:
            return page_of(source_id, converter=name(), num_pages=num_pages, reason=f"rapidocr: {error.message}")
    return page_of(
        source_id,
        reading["markdown"],
        num_pages=num_pages,
        converter=name(),
        reason="" if reading["markdown"].strip() else "rapidocr: no page has text",
        page_starts=reading["page_starts"],
        removed=[RemovedText(**row) for row in reading["removed"]],
        chosen="rapidocr was asked for",
    )


def _page_folder(path: Path, work: Path) -> Path:
    """Create the folder of a book's finished pages, named by the file's content and the converter's version."""
    folder = work / "rapidocr" / sealed.digest_of([sealed.digest_of_file(path), name()])[:24]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def read_pages(path: Path, folder: Path, num_pages: int, job: ConversionJob) -> list[Any]:
    """Read the pages that are not in the folder on all cores, and return all. Raises DocumentError if a batch fails."""
    files = [folder / f"{index:06}.json" for index in range(num_pages)]
    missing = [index for index, file in enumerate(files) if _load_page(file) is None]
    count = 0

    def read_batch(batch: Sequence[int]) -> int:
        limits = child.Limits(
            wall_seconds=job.settings.seconds, cpu_seconds=int(job.settings.seconds) + 1, memory_bytes=MEMORY_BYTES
        )
        with _idle_cores:
            pages = child.call("corpus.read.scans:recognize", {"path": str(path), "pages": batch}, limits)
        for index, page in zip(batch, pages, strict=True):
            sealed.write(files[index], page)
        return len(batch)

    threads = ThreadPoolExecutor(CORES, thread_name_prefix="rapidocr")
    try:
        step = min(BATCH, -(-len(missing) // CORES)) or 1
        batches = [missing[start : start + step] for start in range(0, len(missing), step)]
        for batch in as_completed([threads.submit(read_batch, batch) for batch in batches]):
            count += batch.result()
            job.progress(count, len(missing), 0)
    finally:
        threads.shutdown(cancel_futures=True)
    return [sealed.read(file) for file in files]


def _load_page(file: Path) -> dict[str, Any] | None:
    """Load a page that was read earlier; None if it was not read, or its file is damaged."""
    try:
        return sealed.read(file)
    except (OSError, ValueError):
        return None
