"""The first measurements on a card run at a toy shape on the CPU; wheels for a bare machine are trimmed and packed."""

import importlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from places import TESTS

from infuser_core.memory.hardware import find_gpu

Bench = Callable[[str], ModuleType]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.syspath_prepend(str(TESTS / "bench"))
    return importlib.import_module


def test_everything_is_measured_at_a_toy_shape(bench: Bench, tmp_path: Path):
    out = tmp_path / "lines.json"
    short = ["--groups", "2", "--prompt", "16", "--response", "16", "--decode", "4", "--repeats", "1"]
    assert bench("gpu_first").main(["all", "--device", "cpu", "--shape", "tiny", *short, "--out", str(out)]) == 0
    lines = json.loads(out.read_text())
    assert {"card", "commit", "torch"} <= lines[0].keys()
    assert [line["done"] for line in lines if "done" in line] == ["floor", "exact", "train", "peer", "sample"]
    exact = {line["exact"].split()[0]: line for line in lines if "cosine" in line}
    assert exact["float32"]["cosine"] < 1e-6 < exact["bfloat16"]["cosine"] < 0.01
    assert 0 < exact["float32"]["gradient"] < 1e-4 < exact["bfloat16"]["gradient"] < 0.1
    steps = {line["step"]: line for line in lines if "step" in line}
    assert steps.keys() == {"update", "logprobs", "scoring", "adamw"} and steps["update"]["mfu"] is None


@pytest.mark.parametrize(
    ("text", "name"),
    [("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA L40S", "L40S"), ("NVIDIA L4", "L4"), ("NVIDIA H100 PCIe", None)],
)
def test_a_card_is_known_by_the_name_of_its_driver(text: str, name: str | None):
    gpu = find_gpu(text)
    assert (gpu and gpu.name) == name


def make_wheel(folder: Path, sizes: dict[str, int]) -> Path:
    """A wheel that pip installs."""
    record = "thing-1.0.dist-info/RECORD"
    metadata = {
        "thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
        "thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = folder / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name, size in sizes.items():
            file.writestr(name, b"x" * size)
        for name, text in metadata.items():
            file.writestr(name, text)
        file.writestr(record, "".join(f"{name},,\n" for name in [*sizes, *metadata, record]))
    return wheel


def test_a_trimmed_wheel_installs_without_the_files(bench: Bench, tmp_path: Path):
    wheel = make_wheel(tmp_path, {"thing/__init__.py": 0, "thing/big/blob.so": 100_000})
    assert bench("gpu_kit").trim(wheel, ["thing/big/"]) > 90_000
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        str(tmp_path / "to"),
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    assert (tmp_path / "to" / "thing" / "__init__.py").exists() and not (tmp_path / "to" / "thing" / "big").exists()


def test_parts_stay_below_the_limit_and_join_to_the_same_bytes(bench: Bench, tmp_path: Path):
    sizes = {"a": 250, "b": 60, "c": 50, "d": 40}
    for name, size in sizes.items():
        (tmp_path / f"{name}.whl").write_bytes(name.encode() * size)
    totals = bench("gpu_kit").pack(sorted(tmp_path.glob("*.whl")), tmp_path / "kit", 100)
    assert sum(totals) == 400 and max(totals) <= 100
    pieces = sorted((tmp_path / "kit").rglob("a.whl.*"), key=lambda path: path.name)
    assert b"".join(piece.read_bytes() for piece in pieces) == b"a" * 250
    assert {path.name for path in (tmp_path / "kit").rglob("?.whl")} == {"b.whl", "c.whl", "d.whl"}


def test_every_package_of_the_kit_has_a_pin(bench: Bench):
    kit = bench("gpu_kit")
    assert all("=" in requirement for requirement in kit.pinned(kit.NEEDS)[: len(kit.NEEDS)])
    with pytest.raises(KeyError, match="no-such-thing"):
        kit.pinned(["no_such.thing"])
