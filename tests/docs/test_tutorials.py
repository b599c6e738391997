"""Blocks of commands in the README and the tutorials are run, or say why they are not; the site builds strictly."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from care_tools import copy_run
from launcher import Launcher, SmallRun
from places import ROOT

from flows.cli.main import app
from infuser_core.config import shipped
from infuser_core.nano import world
from infuser_core.nano.lab import anchor_path
from infuser_core.store.views import TABLES

# Commands of the page on deployment have a test of their own.
TUTORIALS = [
    path.name
    for path in sorted((ROOT / "docs").glob("*.md"))
    if path.name != "deploy.md" and "```bash" in path.read_text()
]
PAGES = ["README.md", *(f"docs/{name}" for name in TUTORIALS)]
# test_printed_outputs.py runs them in a shell.
PRINTED = {"README.md"} | {
    f"docs/{name}.md" for name in ("first-hour", "my-books", "first-settings", "costs", "guards", "troubleshooting")
}
BLOCK = re.compile(r"^(?:<!-- (run|not run: [^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """Every block of commands with its mark."""
    found = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return [(mark, code) for mark, language, code in found if language in ("", "bash", "sh")]


def run(page: str, launch: Launcher, *, store: Path, folder: Path) -> list[str]:
    """Output of every command that the page marks to be run, in order."""
    said = []
    for line in [line for mark, code in blocks(page) if mark == "run" for line in code.splitlines()]:
        ended = launch(*shlex.split(line)[1:], store=store, folder=folder)
        assert ended.code == 0, f"{line}: {ended.err}"
        said.append(ended.out + ended.told)
    return said


def test_the_readme_is_read_in_one_sitting():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_marked(page: str):
    marks = [mark for mark, _ in blocks(page)]
    assert marks and all(marks)


@pytest.mark.parametrize("page", sorted({*PAGES} - PRINTED - {"docs/my-model.md"}))
def test_the_blocks_work_on_a_finished_run(launch: Launcher, small_run: SmallRun, tmp_path: Path, page: str):
    """In a folder with the examples, a model, a file of questions, and one that could hold a store."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "shared").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine").symlink_to(anchor_path("basic"))
    rows = [
        {"question_id": q.question_id, "question_text": q.text, "choices": q.choices, "ground_truth": q.answer}
        for q in world.draw_questions("test", world.TARGET, 4, 0)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert all(run(page, launch, store=copy_run(small_run, tmp_path / "store"), folder=tmp_path))


@pytest.mark.parametrize("name", sorted({*TUTORIALS} - {"my-model.md"}))
def test_a_tutorial_is_short(name: str):
    text = BLOCK.sub("", (ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert len(text.split()) <= 800


def test_the_site_builds_strictly_and_its_references_are_whole(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = ("commands", "tables", "configurations")
    page = {name: (tmp_path / "reference" / name / "index.html").read_text() for name in names}
    assert [name for name in shipped.names() if name not in page["configurations"]] == []
    assert [name for name in TABLES if f'id="{name}"' not in page["tables"]] == []
    words = [command.name or command.callback.__name__ for command in app.registered_commands if not command.hidden]
    assert words and [name for name in words if f'id="infuser-{name}"' not in page["commands"]] == []
    settings = (tmp_path / "reference" / "settings" / "index.html").read_text()
    assert "<td></td>\n</tr>" not in settings, "a setting without a meaning"
    assert "<math" in (tmp_path / "method" / "index.html").read_text()
    for key in ("cotrain.group_size", "corpus.chunk", "engine.token_budget", "data.dev", "store.keep.weights_every"):
        assert key in settings
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://(?!github|squidfunk)', settings)
