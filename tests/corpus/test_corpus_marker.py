"""marker runs as a command; what goes wrong with it is named."""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from places import DATA
from reportlab.pdfgen.canvas import Canvas

from corpus.read.convert import SourceFile, convert
from corpus.read.converters import marker
from corpus.read.converters.marker import OPTIONS, clean_markup
from corpus.read.marker_servers import Servers
from corpus.read.page import ConversionJob, SharedResources
from infuser_core.config.corpus import ConvertSettings
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page
from infuser_core.system.worker_pool import LocalPool

PAGES = 7
HELP = DATA / "marker_2.0.0_options.txt"
"""Options that marker-pdf 2.0.0 prints with --help, one a line, with the kind of value that each takes."""
SHIPPED = """
import json, os, pathlib, subprocess, sys, time
known = dict(line.rsplit("--", 1)[1].partition(" ")[::2] for line in open({known!r}).read().split("\\n") if line)
values, words = {}, sys.argv[2:]
while words:
    name = words.pop(0)
    if name[:2] != "--" or name[2:] not in known:
        sys.exit(f"Error: No such option: {name}")
    values[name] = words.pop(0) if known[name[2:]] else True
servers = pathlib.Path.home() / ".cache/datalab/surya"
def serve(code):
    # As marker 2 does it: a session of its own, a log in the home folder, and nobody ends it.
    servers.mkdir(parents=True, exist_ok=True)
    with (servers / "fast_layout_server.log").open("ab") as file:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=file, stderr=file, start_new_session=True)
    log.with_name("pid").write_text(str(child.pid))
first, last = map(int, values["--page_range"].split("-"))
log = pathlib.Path(__file__).with_name("log")
log.open("a").write(f"{first}-{last}\\n")
{trouble}
folder = pathlib.Path(values["--output_dir"]) / "a"
folder.mkdir()
(folder / "a_meta.json").write_text("{}")
shift = {shift}
def printed(page):
    return f"\\n\\n{{{page - shift}}}" + "-" * 48 + f"\\n\\n# Page {page}\\n\\ntext of {page}"
pages = [printed(page) for page in range(first, last + 1)]
(folder / "a.md").write_text("".join(pages))
"""


@pytest.fixture
def book(tmp_path) -> Path:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for _ in range(PAGES):
        canvas.drawString(72, 700, "Hello")
        canvas.showPage()
    canvas.save()
    return tmp_path / "a.pdf"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ConversionJob]:
    """A job whose command is a stand-in: it writes what marker writes, after the trouble it was told to have."""

    def made(
        trouble: str = "",
        *,
        shift: str = "0",
        attempts: int = 1,
        work: Path | None = None,
        resources: SharedResources | None = None,
        **settings: float,
    ) -> ConversionJob:
        script = tmp_path / "marker_single"
        code = SHIPPED.replace("{trouble}", trouble).replace("{shift}", shift).replace("{known!r}", repr(str(HELP)))
        script.write_text(f"#!{sys.executable}\n{code}\n")
        script.chmod(0o755)
        monkeypatch.setenv("INFUSER_MARKER", str(script))
        monkeypatch.setattr(marker, "ATTEMPTS", attempts)
        given = {"seconds": 30.0, **settings}
        return ConversionJob(
            settings=ConvertSettings(type="marker", marker_pages=3, **given), work=work, resources=resources
        )

    return made


def calls(tmp_path: Path) -> list[str]:
    """Page ranges that the command was asked for."""
    return (tmp_path / "log").read_text().split()


def is_gone(tmp_path: Path) -> bool:
    """Whether the process that the command wrote down has ended."""
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


TEXT = "\n\n".join(f"# Page {page}\n\ntext of {page}" for page in range(PAGES)) + "\n"


@pytest.mark.parametrize("shift", ["0", "first"])
def test_ranges_are_put_together_with_their_page_map(book, tmp_path, command, shift):
    job = command(shift=shift)
    page = marker.convert(book, "book", job)
    assert (page.markdown, page.num_pages, page.converter) == (TEXT, PAGES, "marker_single-unknown")
    assert page.page_starts == [TEXT.index(f"# Page {number}\n") for number in range(PAGES)]
    assert calls(tmp_path) == ["0-2", "3-5", "6-6"]


def test_a_version_without_page_marks_has_the_places_of_its_ranges(book, tmp_path, command):
    job = command()
    script = tmp_path / "marker_single"
    script.write_text(script.read_text().replace('"-" * 48', '""'))
    page = marker.convert(book, "book", job)
    starts = [page.markdown.index(f"{{{first}}}") for first in (0, 3, 6)]
    assert page.page_starts == [starts[0]] * 3 + [starts[1]] * 3 + [starts[2]]


def test_finished_ranges_are_kept_for_the_next_attempt(book, tmp_path, command):
    crash = "if first == 3 and not log.with_name('mended').exists(): sys.exit('out of luck')"
    job = command(crash, work=tmp_path / "work")
    page = marker.convert(book, "book", job)
    assert page.reason == "marker: pages 4-6 of 7: exit status 1: out of luck"
    (tmp_path / "mended").touch()
    assert marker.convert(book, "book", job).markdown == TEXT
    assert calls(tmp_path) == ["0-2", "3-5", "3-5", "6-6"]


def test_a_damaged_or_foreign_range_is_converted_again(book, tmp_path, command, monkeypatch):
    job = command(work=tmp_path / "work")
    marker.convert(book, "book", job)
    for file in (tmp_path / "work").rglob("000003-*.json"):
        file.write_text(file.read_text().replace("text of 4", "TEXT of 4"))
    assert marker.convert(book, "book", job).markdown == TEXT
    (tmp_path / "marker_2").symlink_to("marker_single")
    monkeypatch.setenv("INFUSER_MARKER", str(tmp_path / "marker_2"))
    assert marker.convert(book, "book", job).converter == "marker_2-unknown"
    assert calls(tmp_path) == ["0-2", "3-5", "6-6", "3-5", "0-2", "3-5", "6-6"]


def test_a_range_is_tried_again_before_the_book_is_given_up(book, tmp_path, command):
    once = "if log.read_text().split().count('0-2') < 2: sys.exit('a moment of weakness')"
    assert marker.convert(book, "book", command(once, attempts=2)).markdown == TEXT


def test_a_command_that_hangs_is_killed_with_everything_it_started(book, tmp_path, command):
    spawn = (
        "import subprocess; child = subprocess.Popen(['sleep', '60']); log.with_name('pid').write_text(str(child.pid))"
    )
    page = marker.convert(book, "book", command(f"{spawn}; time.sleep(60)", seconds=1.5))
    assert page.reason == "marker: pages 1-3 of 7: still running after 1.5 s"
    assert is_gone(tmp_path)


def test_a_command_that_takes_too_much_memory_is_killed(book, tmp_path, command):
    blow_up = "hoard = [bytearray(b'x') * (1 << 20) for _ in range(400)]; time.sleep(60)"
    page = marker.convert(book, "book", command(blow_up, marker_gigabytes=0.15))
    assert "GB of memory, 0.15 GB are allowed" in page.reason


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("raise SystemExit(0)", "wrote 0 Markdown files"),
        ("(pathlib.Path(values['--output_dir']) / 'b.md').touch(); raise SystemExit(0)", "wrote an empty file"),
    ],
)
def test_a_failed_conversion_is_a_rejected_row(book, tmp_path, command, trouble, reason):
    page = marker.convert(book, "book", command(trouble))
    assert page.status == "rejected" and page.reason.startswith(f"marker: pages 1-3 of 7: {reason}")


@pytest.mark.parametrize("content", [b"", b"<html></html>", b"%PDF-1.7 cut"])
def test_what_is_no_pdf_never_reaches_the_command(tmp_path, command, content):
    (tmp_path / "a.pdf").write_bytes(content)
    page = marker.convert(tmp_path / "a.pdf", "book", command())
    assert page.status == "rejected" and not (tmp_path / "log").exists()


def test_a_missing_command_is_an_error(book, monkeypatch):
    monkeypatch.setenv("INFUSER_MARKER", "no-such-marker")
    with pytest.raises(DocumentError, match="install marker-pdf"):
        marker.convert(book, "book", ConversionJob())


@pytest.mark.parametrize(
    ("said", "missing", "remedy"),
    [
        # What marker-pdf 2.0.0 ends with offline when FONT_PATH is unset.
        (
            "HTTPSConnectionPool(host='models.datalab.to', port=443): Max retries exceeded with url: "
            "/artifacts/GoNotoCurrent-Regular.ttf (Caused by NameResolutionError)",
            "its font",
            "FONT_PATH",
        ),
        ("Failed to download ocr_error_detection/2025_02_18 after 3 attempts.", "its weights", "MODEL_CACHE_DIR"),
        ("llama-server binary not found. Install with:", "its inference server", "SURYA_INFERENCE_URL"),
        ("SURYA_INFERENCE_URL=http://x is not reachable at /health.", "its inference server", "SURYA_INFERENCE_URL"),
    ],
)
def test_what_the_command_lacks_is_named_with_its_remedy(book, tmp_path, command, said, missing, remedy):
    with pytest.raises(DocumentError, match=missing) as caught:
        marker.convert(book, "book", command(f"raise OSError({said!r})"))
    assert remedy in caught.value.hint and said[-40:] in caught.value.message


NO_WEIGHTS = """
import sys
sys.exit("huggingface_hub.errors.LocalEntryNotFoundError: Got: ConnectError: [Errno -2] Name or service not known\\n"
         "the files are neither on the Hub nor on the local disk")
"""


def test_a_server_without_weights_ends_the_silent_wait_for_it(book, tmp_path, command):
    """marker 2.0.0 offline: its layout server dies at once, and the command waits 300 s for it without a word."""
    job = command(f"serve({NO_WEIGHTS!r}); time.sleep(300)", seconds=250.0)
    with pytest.raises(DocumentError, match=r"its weights: huggingface_hub\S*LocalEntryNotFoundError") as caught:
        marker.convert(book, "book", job)
    assert "HF_HOME" in caught.value.hint


LEAVE = "os.path.exists(servers) or serve('import time; time.sleep(300)')"


def test_servers_that_the_command_leaves_behind_serve_all_ranges_and_end_with_the_book(book, tmp_path, command):
    before = set(Path(tempfile.gettempdir()).glob("infuser-marker-*"))
    assert marker.convert(book, "book", command(LEAVE)).markdown == TEXT
    assert is_gone(tmp_path) and calls(tmp_path) == ["0-2", "3-5", "6-6"]
    assert set(Path(tempfile.gettempdir()).glob("infuser-marker-*")) <= before


def test_servers_serve_one_book_after_the_other_and_end_with_the_worker(book, tmp_path, command):
    job = command(LEAVE)
    second = tmp_path / "b.pdf"
    second.write_bytes(book.read_bytes())
    found, served = [], []

    def keep(page: Page) -> None:
        found.append(page)
        served.append((tmp_path / "pid").read_text())
        assert not is_gone(tmp_path)

    convert([SourceFile(path=book, source_id="a"), SourceFile(path=second, source_id="b")], job, LocalPool(1), keep)
    assert [page.markdown for page in found] == [TEXT, TEXT] and len(set(served)) == 1
    assert is_gone(tmp_path)


SERVER = "import http.server as h; h.HTTPServer(('127.0.0.1', 0), h.BaseHTTPRequestHandler).serve_forever()"
NEEDS_IT = f"""
record = servers / 'vlm_server.json'
if not record.exists():
    serve({SERVER!r})
    record.write_text(json.dumps({{"pid": int(log.with_name("pid").read_text()), "cleanup_kind": "process"}}))
    log.with_name('started').open('a').write('x')
if first == 3 and not log.with_name('killed').exists():
    os.kill(json.loads(record.read_text())["pid"], 9)
    log.with_name('killed').touch()
    sys.exit('APIConnectionError: the model has gone away')
"""


def test_a_server_that_is_killed_in_the_middle_of_a_book_is_started_again(book, tmp_path, command):
    with SharedResources() as resources:
        job = command(NEEDS_IT, attempts=2, resources=resources)
        assert marker.convert(book, "book", job).markdown == TEXT
        assert calls(tmp_path) == ["0-2", "3-5", "3-5", "6-6"]
        assert marker.convert(book, "book", job).markdown == TEXT
        assert (tmp_path / "started").read_text() == "xx" and not is_gone(tmp_path)
    assert is_gone(tmp_path)


def test_a_book_that_fails_twice_has_its_reason_and_the_next_one_new_servers(book, tmp_path, command):
    always = NEEDS_IT.replace("not log.with_name('killed').exists()", "not log.with_name('mended').exists()")
    with SharedResources() as resources:
        job = command(always, attempts=2, resources=resources)
        page = marker.convert(book, "book", job)
        assert page.reason == "marker: pages 4-6 of 7: exit status 1: APIConnectionError: the model has gone away"
        assert calls(tmp_path) == ["0-2", "3-5", "3-5"]
        (tmp_path / "mended").touch()
        assert marker.convert(book, "book", job).markdown == TEXT


def test_a_container_with_the_models_is_stopped_by_its_name(tmp_path, monkeypatch):
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho $@ > {tmp_path}/asked\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Servers() as servers:
        folder = servers.home / ".cache/datalab/surya"
        folder.mkdir(parents=True)
        record = {"port": 1, "pid": None, "cleanup_id": "surya-vllm-1", "cleanup_kind": "docker"}
        (folder / "vllm_server.json").write_text(json.dumps(record))
    assert (tmp_path / "asked").read_text() == "stop surya-vllm-1\n"


def test_every_option_is_one_of_the_commands():
    known = HELP.read_text().split()
    assert {option for option in OPTIONS if option.startswith("--")} | {"--page_range", "--output_dir"} <= set(known)
    assert "[markdown|json|html|chunks]" in known and OPTIONS[1] == "markdown"


MARKED = """<span id="page-3-0"></span># <b>Tides</b>

See [Section 2](#page-9-1) and [the moon](https://moon.example), 10<sup>6</sup> of x<sub>1</sub>.<sup>4</sup>

![](_page_3_Picture_1.jpeg)

![A buoy](_page_3_Figure_2.jpeg)

| a<br>b | c |
|---|---|

```
<span id="page-0-0"></span> ![](kept.png)
```
"""


def test_anchors_jumps_and_pictures_do_not_stay():
    pictures: list[str] = []
    text = clean_markup(MARKED, pictures)
    assert text.startswith(
        "# Tides\n\nSee Section 2 and [the moon](https://moon.example), $10^{6}$ of $x_{1}$.$^{4}$\n\n|"
    )
    assert "| a b | c |" in text and '<span id="page-0-0"></span> ![](kept.png)' in text
    assert pictures == ["_page_3_Picture_1.jpeg", "A buoy"]


def test_pictures_of_every_page_are_told_and_offsets_fit_the_cleaned_text(book, tmp_path, command):
    anchor = "text of <span id='page-0-1'></span>![](p.jpeg)"
    job = command()
    script = tmp_path / "marker_single"
    script.write_text(script.read_text().replace("text of ", anchor))
    page = marker.convert(book, "book", job)
    assert page.removed_for == ["image"] * PAGES and set(page.removed) == {"p.jpeg"} and "<span" not in page.markdown
    assert [page.markdown[start : start + 8] for start in page.page_starts] == [f"# Page {n}" for n in range(PAGES)]
