"""Every row of the page of commands works on a finished run."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun
from places import CONFIGS, ROOT

from infuser_core.store.journal import Journal

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
TABLES = [PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0] for title in ("I want to...", "Textbooks")]
ROWS = re.findall(r"^\| [^|]+ \| (.*) \|$", "\n".join(TABLES), re.M)
SNIPPETS = [code for row in ROWS for code in re.findall(r"`((?:infuser |--)[^`]+)`", row)]
# Where a row's own numbers would take minutes, or where it goes on from the row before.
SHORTER = {
    "infuser run nano": "infuser run nano --dry-run",
    "infuser run configs/nano.yaml --set cotrain.iterations=40": "infuser run CONFIG --set cotrain.iterations=1",
    "infuser run CONFIG --until rollout_questions@3": "infuser run CONFIG --until rollout_questions@1",
    "infuser run CONFIG --profile 2": "infuser run CONFIG --profile 2 --from update_solver@1",
    "--only validate@4": "infuser run CONFIG --only validate@1",
    "--from update_solver@2": "infuser run CONFIG --from update_solver@1",
    "infuser run --fork RUN@10 --set cotrain.solver.learning_rate=5e-5": "infuser run --fork RUN@1 --set cotrain.solver.learning_rate=5e-5",
    "infuser sweep configs/sweep/nano.yaml --jobs 2 --against nano-infuser": "infuser sweep configs/sweep/nano.yaml --against nano-infuser --dry-run",
    "infuser doctor RUN --repair --iteration 7": "infuser doctor RUN --repair --iteration 1",
    "infuser gc --pin RUN@7": "infuser gc --pin RUN@1",
    "infuser gc --unpin RUN@7": "infuser gc --unpin RUN@1",
    "infuser report quality RUN --iterations 0,10,last --solver RUN@0 --solver RUN@selected": "infuser report quality RUN --iterations 0 --solver RUN@0 --solver RUN@1 --samples 1",
    "infuser eval --model nano --benchmarks all --limit 20": "infuser eval --model nano --benchmarks nano_target --limit 1",
    "infuser eval probe --model nano --benchmarks nano_target": "infuser eval probe --model nano --benchmarks nano_target --limit 2",
    "infuser eval passk FOLDER_OR_RUN --k 1,2,4,8": "infuser eval passk FOLDER_OR_RUN --k 1",
    "infuser why RUN@4 --html why.html": "infuser why RUN@1 --html why.html",
    "infuser study prediction RUN --iteration 1": "infuser study prediction RUN --questions 2 --answers 2",
    "infuser study selection RUN --iteration 1": "infuser study selection RUN --steps 1 --draws 1 --samples 1",
    "infuser study lds RUN --iteration 1": "infuser study lds RUN --steps 1 --subsets 5",
    "infuser study gradient-quality RUN": "infuser study gradient-quality RUN --batches 10 --answers 2",
    "infuser study frozen RUN": "infuser study frozen RUN --updates 1",
    "infuser anchor import SOURCE OUT": f"infuser anchor import {ROOT}/infuser_core/nano/anchor OUT",
    "infuser nano build OUT": "infuser nano build OUT --scale 0.001",
    "infuser corpus build --source book.pdf book.epub repository/ https://... --out DIR": "infuser corpus build --source notes.md --out DIR",
}
# These have tests of their own, which take a server, an endpoint, standard input or minutes.
ELSEWHERE = {
    "infuser serve": "test_serve_live.py",
    "infuser serve --login": "test_serve_doors.py",
    "infuser view": "test_view_browser.py",
    "infuser export RUN --iteration selected --out DIR --push hf://OWNER/NAME": "test_hub_round_trip.py",
    "--questions": "test_hub_round_trip.py",
    "infuser quickstart": "test_crash.py",
    "infuser verify < lines.jsonl": "test_verify_lines.py",
    "--model openai:NAME@http://host:port/v1": "test_evaluate.py",
}


@pytest.fixture
def place(small_run: SmallRun, tmp_path: Path) -> Path:
    """A folder to stand in: the configurations, some files, and a store of its own with the small run."""
    for folder in small_run.root.iterdir():
        copy = os.link if folder.name == "artifacts" else shutil.copy2
        if folder.is_dir() and folder.name != "prefect":
            shutil.copytree(folder, tmp_path / "store" / folder.name, copy_function=copy, symlinks=True)
    (tmp_path / "configs").symlink_to(CONFIGS)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "notes.md").write_text(
        "# Sums\n\n" + "The sum of two numbers is found by counting on from the first. " * 40
    )
    return tmp_path


def words_of(line: str, run: SmallRun, overlay: Path) -> list[str]:
    """A row's words with what stands for them here."""
    entries = Journal(run.root, run.name).latest()
    stands_for = {
        "RUN...": [run.name, run.fixed],
        "RUN_A": [run.name],
        "RUN_B": [run.fixed],
        "CONFIG": ["configs/nano.yaml", str(overlay)],
        "FOLDER_OR_RUN": [run.name],
        "FILE_OR_FOLDER": ["notes.jsonl"],
        "KEY": [next(entry.key for entry in entries if entry.phase == "pool")],
        "ID": [documents(run)[0]],
    }
    return [
        part for word in shlex.split(line)[1:] for part in stands_for.get(word, [re.sub(r"^RUN\b", run.name, word)])
    ]


def documents(run: SmallRun) -> list[str]:
    """Chunks that the run wrote questions from."""
    from infuser_core.store.views import Lens

    lens = Lens(run.store, runs=[run.name])
    try:
        return [row["document_id"] for row in lens.query("select distinct document_id from questions order by 1")]
    finally:
        lens.close()


def test_the_tables_have_rows_and_the_lists_here_name_no_other():
    assert len(SNIPPETS) > 45 and {*SHORTER, *ELSEWHERE} <= set(SNIPPETS)
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(ELSEWHERE.values()) <= files


# What a row needs that an earlier one leaves behind.
BEFORE = {
    "infuser study prediction RUN --iteration 1": ["infuser study prediction RUN --check --questions 2 --rollouts 2"],
    "infuser gc --unpin RUN@7": ["infuser gc --pin RUN@1"],
    **{
        snippet: ["infuser corpus build --source notes.md --out DIR"]
        for snippet in SNIPPETS
        if snippet.startswith(("infuser corpus audit", "infuser corpus convert", "infuser corpus report"))
    },
    "infuser corpus merge DIR DIR2 --out DIR3": [
        "infuser corpus build --source notes.md --out DIR",
        "infuser corpus build --source notes.md --out DIR2",
    ],
    "infuser corpus convert documents.json --out DIR": [
        "infuser corpus build --source notes.md --out OTHER",
        "infuser corpus convert OTHER --format documents-json --out documents.json",
    ],
}


@pytest.mark.parametrize("snippet", [code for code in SNIPPETS if code not in ELSEWHERE])
def test_the_row_works(launch: Launcher, small_run: SmallRun, small_overlay: Path, place: Path, snippet: str) -> None:
    (place / "notes.jsonl").write_text(json.dumps({"text": "Counting on from the first number gives the sum."}) + "\n")
    for line in [*BEFORE.get(snippet, []), SHORTER.get(snippet, snippet)]:
        ended = launch(*words_of(line, small_run, small_overlay), store=place / "store", folder=place)
        assert ended.code == 0, f"{line}: {ended.err}"
        assert ended.out or ended.err, "silence"
