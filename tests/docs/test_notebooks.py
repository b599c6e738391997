"""The notebooks run in a fresh folder, and their stored outputs are those of a run.

`INFUSER_REFRESH_GOLDEN=1 .venv/bin/pytest tests/docs/test_notebooks.py` runs them at full size and stores the outputs;
it needs the model of `make models/smollm2`.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from launcher import ENVIRONMENT
from nbclient import NotebookClient
from places import ROOT
from torch.backends.cpu import get_cpu_capability

from infuser_core.nano import lab

FOLDER = ROOT / "examples" / "notebooks"
LAB = "influence_on_a_laptop"
RANKING = "which_of_my_questions_teach_my_model"
REFRESH = "INFUSER_REFRESH_GOLDEN" in os.environ
PROCESSOR = "AVX2"
"""Vector instructions with which the outputs were made. With others, sums round differently and other texts follow."""


def notebook(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def run(name: str, folder: Path, changes: Mapping[str, str]) -> Any:
    """The notebook after all of its cells were run in a copy of its folder; with small settings unless refreshed."""
    for part in ("configs", "models"):
        (folder / part).symlink_to(ROOT / part)
    place = shutil.copytree(FOLDER, folder / "examples" / "notebooks", ignore=shutil.ignore_patterns(".*"))
    ran = notebook(name)
    for old, new in {} if REFRESH else changes.items():
        (cell,) = [cell for cell in ran.cells if cell.cell_type == "code" and old in cell.source]
        cell.source = cell.source.replace(old, new)
    # A user's store and settings take no part.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("INFUSER_")} | ENVIRONMENT
    resources = {"metadata": {"path": str(place)}}
    client = NotebookClient(ran, timeout=3000, kernel_name="python3", resources=resources, coalesce_streams=True)
    client.execute(env=environment)
    if REFRESH:
        store_outputs(name, ran)
    return ran


def store_outputs(name: str, ran: Any) -> None:
    """Write the outputs, without lines of progress, times of cells and the version of Python."""
    ran.metadata.language_info = {"name": "python"}
    for cell in ran.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    (FOLDER / f"{name}.ipynb").write_text(nbformat.writes(ran, indent=1) + "\n", encoding="utf-8")


def code_cells(shown: Any, ran: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of code cells."""
    pairs = list(zip(shown.cells, ran.cells, strict=True))
    return ((old, new) for old, new in pairs if old.cell_type == "code")


def kinds(cell: Any) -> list[list[str]]:
    """Media types of each output, without lines of progress."""
    outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return [sorted(output.get("data", {"stream": ""})) for output in outputs]


def lines(cell: Any) -> list[str]:
    """Printed lines and tables as text, with single spaces."""
    texts = [
        output.text if output.output_type == "stream" else output.data["text/plain"]
        for output in cell.outputs
        if output.get("name") != "stderr" and "image/png" not in output.get("data", {})
    ]
    return [" ".join(line.split()) for text in texts for line in text.splitlines()]


def steady(cell: Any) -> list[str]:
    """Those lines; with other vector instructions, without numbers."""
    if get_cpu_capability() == PROCESSOR:
        return lines(cell)
    return [re.sub(r"[+-]?\d[\d.,]*", "#", line) for line in lines(cell)]


def test_the_lab_runs_and_shows_what_a_run_prints(tmp_path: Path) -> None:
    ran = run(LAB, tmp_path, {"ITERATIONS = 30": "ITERATIONS = 5"})
    for shown, new in code_cells(notebook(LAB), ran):
        assert kinds(shown) == kinds(new), new.source
        tags = shown.metadata.get("tags", [])
        if "curve" in tags:
            # Five iterations are the first five of thirty.
            assert steady(new) and {*steady(new)} <= {*steady(shown)}
        elif "result" not in tags:
            assert steady(shown) == steady(new), new.source


def test_the_lab_ends_where_the_readme_does() -> None:
    curve = re.findall(r"^\d+ +0\.\d{3} +0\.\d{3}$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = [line for cell in notebook(LAB).cells if cell.cell_type == "code" for line in lines(cell)]
    assert len(curve) == 5 and {" ".join(line.split()) for line in curve} <= {*shown}


@pytest.mark.long
def test_the_ranking_runs_on_other_questions_and_another_model(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    sets = {"dev": [("target", "dev", 12)], "questions": [("target", "test", 8), ("transfer", "test", 8)]}
    for name, parts in sets.items():
        drawn = [each for part in parts for each in lab.draw_questions(*part, 42, "hard")]
        rows = [{"question_text": each.text, "choices": each.choices, "ground_truth": each.answer} for each in drawn]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {
        '"../../models/smollm2"': '"nano"',
        '"questions.jsonl"': f'"{folder / "questions.jsonl"}"',
        '"dev.jsonl"': f'"{folder / "dev.jsonl"}"',
        'configs=CONFIGS, adapter="lora"': "samples=8",
    }
    ran = run(RANKING, tmp_path, changes)
    for shown, new in code_cells(notebook(RANKING), ran):
        assert kinds(shown) == kinds(new), new.source
    rows = (tmp_path / "examples/notebooks/questions.kept.jsonl").read_text().splitlines()
    assert 0 < len(rows) <= (8 if REFRESH else 4)


def test_the_ranking_shows_the_questions_of_its_file() -> None:
    rows = [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    keys = {f"{row['question_text']} {row['ground_truth']}" for row in rows}
    text = "\n".join(line for cell in notebook(RANKING).cells if cell.cell_type == "code" for line in lines(cell))
    shown = re.findall(r"^\d+ (.*) (-?\d\.\d{3}) \d\.\d{3}$", text, re.MULTILINE)
    scores = [float(score) for _, score in shown]
    assert len(scores) > 10 and scores == sorted(scores, reverse=True)
    assert {question for question, _ in shown} <= keys


def test_what_the_notebooks_quote_is_on_the_pages_that_they_name() -> None:
    pages = " ".join(
        " ".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split()) for name in ("claims", "measured")
    )
    texts = [cell.source for name in (LAB, RANKING) for cell in notebook(name).cells if cell.cell_type == "markdown"]
    quoted = re.findall(r"[+-]?\d?\.\d+ \[[^\]]+\](?!\()", " ".join(" ".join(texts).split()))
    assert len(quoted) > 4 and [each for each in quoted if each not in pages] == []
