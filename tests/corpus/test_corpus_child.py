"""A child process that exceeds a limit ends as an error about the file; one that somebody kills does not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from corpus_books import BookPlan, write_book

from corpus.read.converters import pdfium
from corpus.read.file_kinds import COUNTER
from corpus.read.page import ConversionJob
from infuser_core.errors import DocumentError, KilledProcessError, UsageError
from infuser_core.system.child import PROC, ROOT, Limits, call, count_memory_kills


def test_the_result_comes_back():
    assert call("builtins:dict", {"a": 1}, Limits()) == {"a": 1}


def test_libraries_on_the_python_path_are_found_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "library_aside.py").write_text("def read(page):\n    return page + 1\n")
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}{tmp_path.name}")
    assert call("library_aside:read", {"page": 1}, Limits()) == 2


def test_children_that_read_a_pdf_import_no_settings_and_no_rows():
    # A book costs two of these processes, and what they import takes longer than a short book.
    code = f"import {COUNTER.split(':')[0]}, corpus.read.embedded, corpus.read.pdf, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"pydantic", "numpy", "infuser_core.schemas"} & set(done.stdout.split())


def test_the_wall_limit_kills():
    with pytest.raises(DocumentError, match="still running"):
        call("signal:sigwait", {"sigset": [10]}, Limits(wall_seconds=0.3))


def test_the_memory_limit_holds():
    with pytest.raises(DocumentError, match="Cannot allocate memory"):
        call("mmap:mmap", {"fileno": -1, "length": 1 << 31}, Limits(memory_bytes=1 << 29))


def test_the_processor_limit_is_named_where_it_fired():
    with pytest.raises(DocumentError, match="used more than 1 s of processor time"):
        call("timeit:timeit", {"number": 10**12}, Limits(cpu_seconds=1))


def test_a_package_that_is_not_installed_is_no_fault_of_a_file():
    with pytest.raises(UsageError, match="no_such_package:read: ModuleNotFoundError"):
        call("no_such_package:read", {}, Limits())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_child_that_somebody_kills_says_nothing_about_its_file(number: signal.Signals):
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call, "signal:sigwait", {"sigset": [10]}, Limits(wall_seconds=60.0))
        os.kill(child_at_work(), number)
        with pytest.raises(KilledProcessError, match=f"killed from outside .{number.name}"):
            waiting.result()


def test_a_book_whose_converter_is_killed_is_not_rejected(tmp_path: Path):
    write_book(tmp_path / "a.pdf", BookPlan())
    with ThreadPoolExecutor(1) as threads:
        converting = threads.submit(pdfium.convert, tmp_path / "a.pdf", "book", ConversionJob())
        os.kill(child_at_work(), signal.SIGKILL)
        with pytest.raises(KilledProcessError):
            converting.result()
    assert pdfium.convert(tmp_path / "a.pdf", "book", ConversionJob()).reason == ""


def child_at_work() -> int:
    """Process id of the limited child, once it has started."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for pid in children():
            if b"infuser_core.system.child" in (PROC / str(pid) / "cmdline").read_bytes():
                return pid
        time.sleep(0.01)
    raise AssertionError("no child started")


def children() -> Iterator[int]:
    for task in (PROC / "self" / "task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def test_a_low_limit_of_the_shell_holds_and_is_named(tmp_path: Path):
    write_book(tmp_path / "a.pdf", BookPlan())
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from infuser_core.system.child import Limits, call\n"
        f"print(call({COUNTER!r}, {{'path': {str(tmp_path / 'a.pdf')!r}}}, Limits(memory_bytes=1 << 32)))\n"
        "try: call('builtins:bytearray', {'source': 1 << 31}, Limits(memory_bytes=1 << 32))\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    pages, refusal = done.stdout.splitlines()
    assert pages.isdigit() or "pages" in pages
    assert "more than 1 GB of memory, which is what `ulimit -v` allows" in refusal


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("place", ["", "jobs/7"], ids=["container", "group"])
def test_kills_for_want_of_memory_are_those_of_the_control_group(tmp_path: Path, version: int, place: str):
    name, file = ("memory", "memory.oom_control") if version == 1 else ("", "memory.events")
    folder = tmp_path / "groups" / name / place
    folder.mkdir(parents=True)
    (tmp_path / "cgroup").write_text(f"9:pids:/\n4:{name}:/jobs/7\n")
    assert count_memory_kills(tmp_path, tmp_path / "groups") is None
    (folder / file).write_text("oom 4\noom_kill 3\noom_group_kill 1\n")
    assert count_memory_kills(tmp_path, tmp_path / "groups") == 3
    assert count_memory_kills(tmp_path / "nothing", tmp_path / "groups") is None
