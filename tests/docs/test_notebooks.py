"""The notebooks run in a fresh folder, and their stored outputs are those of a run.

`INFUSER_REFRESH_GOLDEN=1 .venv/bin/pytest tests/docs/test_notebooks.py` runs them at full size and stores their outputs;
it needs models/smollm2 of `make small-model`.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from launcher import ENVIRONMENT
from nbclient import NotebookClient
from places import ROOT
from torch.backends.cpu import get_cpu_capability

FOLDER = ROOT / "examples" / "notebooks"
LAB = "influence_on_a_laptop"
PROCESSOR = "AVX2"
"""Vector instructions with which the outputs were made. With others, sums round differently and other texts follow."""


def notebook(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def run(name: str, folder: Path, *changes: tuple[str, str]) -> Any:
    """The notebook after all of its cells were run in a copy of its folder, with changed settings."""
    copy = shutil.copytree(FOLDER, folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    ran = notebook(name)
    for old, new in changes:
        (cell,) = [cell for cell in ran.cells if cell.cell_type == "code" and old in cell.source]
        cell.source = cell.source.replace(old, new)
    # A user's store and settings take no part.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("INFUSER_")} | ENVIRONMENT
    client = NotebookClient(ran, timeout=3000, kernel_name="python3", resources={"metadata": {"path": str(copy)}})
    client.execute(env=environment)
    return ran


def store_outputs(name: str, ran: Any) -> None:
    """Write the outputs, without lines of progress and times of cells."""
    for cell in ran.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    (FOLDER / f"{name}.ipynb").write_text(nbformat.writes(ran, indent=1) + "\n", encoding="utf-8")


def cells_with_outputs(shown: Any, ran: Any) -> Iterator[tuple[Any, Any]]:
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
    refresh = "INFUSER_REFRESH_GOLDEN" in os.environ
    ran = run(LAB, tmp_path, *[("ITERATIONS = 30", "ITERATIONS = 5")][refresh:])
    if refresh:
        store_outputs(LAB, ran)
    for shown, new in cells_with_outputs(notebook(LAB), ran):
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
