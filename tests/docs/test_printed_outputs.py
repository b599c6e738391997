"""The README and pages with outputs, pasted into a plain shell of a checkout, print what the pages show.

`INFUSER_REFRESH_GOLDEN=1 .venv/bin/pytest tests/docs/test_printed_outputs.py` writes what is printed into the pages.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher import ENVIRONMENT
from places import ROOT
from torch.backends.cpu import get_cpu_capability

STEP = re.compile(r"^<!-- run -->\n```bash\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
"""Commands, and what they print if the page shows it."""
SHORTENED = re.compile(r"^make quickstart\n```\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CUT = "-------- next block --------"
ACTIVATE = "source .venv/bin/activate\n"
SHELL = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **ENVIRONMENT}
PROCESSOR = "AVX2"
"""Vector instructions with which the pages were written. With others, sums round differently and other texts follow."""
VOLATILE = [
    (re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d)?"), "TIME"),
    (re.compile(r"[\d,.]+ (ms|s|min|h)\b( [\d,.]+ (s|min)\b)?"), "# s"),
    (re.compile(r"[\d,.]+ (kB|MB|GB)\b"), r"# \1"),
    # The run that is first makes the stages that both share.
    (re.compile(r"\d+ ran, \d+ cached"), "# ran, # cached"),
    (re.compile(r"\S*/store/"), ".infuser/"),
    (re.compile(r"  +"), "  "),
    (re.compile(r"---+"), "---"),
]
"""What differs between two machines, and what is printed in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quickstart:
    """The ended command `infuser quickstart`."""

    store: Path
    """Its store, with the two runs."""
    out: str
    """Its standard output."""


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Quickstart:
    """The quickstart of a newcomer, in full."""
    store = tmp_path_factory.mktemp("quickstart") / "store"
    command = [str(Path(sys.prefix) / "bin" / "infuser"), "quickstart"]
    environment = SHELL | {"INFUSER_STORE": str(store)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    return Quickstart(store=store, out=done.stdout)


def checkout(folder: Path, store: Path) -> Path:
    """A folder that looks like a checkout after `make quickstart`."""
    for name in ("configs", "docs", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / ".infuser").symlink_to(store)
    return folder


def paste(page: str, folder: Path) -> list[str]:
    """What each block of the page's commands prints, in one shell without the user's settings."""
    text = (ROOT / page).read_text(encoding="utf-8")
    script = f"echo '{CUT}'\n".join(commands for commands, _ in STEP.findall(text))
    # Tutorials say it themselves.
    script = script if script.startswith(ACTIVATE) else ACTIVATE + script
    shell = ["bash", "--noprofile", "--norc", "-e", "-c", script]
    environment = SHELL | {"HOME": str(folder)}
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.replace(f"{folder}/", "").split(f"{CUT}\n")


def steady(text: str) -> list[str]:
    """Lines without what differs between two machines."""
    for pattern, replacement in VOLATILE:
        text = pattern.sub(replacement, text)
    if get_cpu_capability() != PROCESSOR:
        text = re.sub(r"\d[\d.,]*", "#", text)
    return [line.strip() for line in text.strip().splitlines()]


def require_shown(page: str, printed: list[str]) -> None:
    """Compare what the blocks of a page print with what it shows; with INFUSER_REFRESH_GOLDEN, show that."""
    text = (ROOT / page).read_text(encoding="utf-8")
    steps = STEP.findall(text)
    assert len(steps) == len(printed)
    if os.environ.get("INFUSER_REFRESH_GOLDEN"):
        outputs = iter(printed)
        (ROOT / page).write_text(STEP.sub(lambda step: _renewed(step, next(outputs)), text), encoding="utf-8")
        return
    for (commands, shown), out in zip(steps, printed, strict=True):
        assert not shown or steady(out) == steady(shown), f"{page}: {commands}"
    assert any(shown for _, shown in steps)


def _renewed(step: re.Match[str], out: str) -> str:
    if step[2] is None:
        return step[0]
    lines = "\n".join(line.rstrip() for line in out.strip().splitlines())
    return step[0].replace(f"```text\n{step[2]}", f"```text\n{lines}\n")


@pytest.mark.parametrize("page", ["README.md", "docs/first-hour.md", "docs/troubleshooting.md"])
def test_the_quickstart_and_what_follows_print_what_the_page_shows(
    quickstart: Quickstart, tmp_path: Path, page: str
) -> None:
    printed = iter(steady(quickstart.out))
    for shown in SHORTENED.findall((ROOT / page).read_text(encoding="utf-8")):
        assert [line for line in steady(shown) if line and line not in printed] == []
    require_shown(page, paste(page, checkout(tmp_path, quickstart.store)))


@pytest.mark.parametrize("page", ["docs/my-books.md", "docs/first-settings.md", "docs/costs.md", "docs/guards.md"])
def test_pages_without_a_run_print_what_they_show(tmp_path: Path, page: str) -> None:
    (tmp_path / "store").mkdir()
    require_shown(page, paste(page, checkout(tmp_path, tmp_path / "store")))


def test_the_quickstart_leaves_a_small_store_and_lines_to_paste(quickstart: Quickstart) -> None:
    size = sum(file.stat().st_size for file in quickstart.store.rglob("*") if file.is_file())
    assert size < 150e6
    lines = quickstart.out.partition("\nnext:\n")[2].splitlines()
    assert lines[0].endswith("/bin/activate") and sum("infuser " in line for line in lines) >= 3
