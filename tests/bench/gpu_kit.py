"""Wheels for a bare GPU machine without a network: downloaded, trimmed, and packed into parts of limited size.

    python tests/bench/gpu_kit.py build/gpu-kit               # what one GPU needs for gpu_first.py and `infuser run nano`
    python tests/bench/gpu_kit.py build/gpu-kit --vllm        # and vLLM

The machine has Python 3.12, torch, transformers, accelerate, peft, pyarrow and scipy. There, in the checkout:

    python3 -m pip install --no-index --no-deps --upgrade build/gpu-kit/part-*/*.whl

A file that is larger than a part is split: `cat NAME.whl.* > NAME.whl` joins it.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDS = [
    "pydantic",
    "pydantic_core",
    "annotated-types",
    "typing-inspection",
    "reportlab",
    "pypdfium2",
    "tenacity",
    "protego",
    "langchain-text-splitters",
    "datasketch",
    "math-verify",
    "latex2sympy2-extended",
    "antlr4-python3-runtime",
    "duckdb",
    "fastapi",
    "starlette",
    "opentelemetry-api",
    "gguf",
    "transformers",
    "jsonschema",
    "jsonschema-specifications",
    "referencing",
    "rpds-py",
    "attrs",
    "protobuf",
    "ray",
]
"""Packages that such a machine lacks; versions are those of constraints.txt."""
DEEPSPEED = ("hjson", "einops", "msgpack", "py-cpuinfo")
"""What DeepSpeed imports: newest versions."""
VLLM = [
    "vllm==0.26.0",
    "apache-tvm-ffi",
    "llguidance",
    "openai-harmony",
    "openai",
    "xgrammar",
    "pyzmq",
    "cbor2",
    "msgspec",
    "pybase64",
]
"""vLLM for torch 2.11 and CUDA 13, and its needs: newest versions."""
UNUSED: Mapping[str, Sequence[str]] = {
    "ray": [f"ray/{name}/" for name in ("jars", "rllib", "serve", "tune", "data", "train", "llm", "dashboard/client", "cpp")],
    "vllm": [
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "vllm/_moe_C_stable_libtorch.abi3.so", "vllm/vllm-rs",
        "vllm/_flashmla", "vllm/_qutlass", "vllm/entrypoints/serve/instrumentator/static",
    ],
}  # fmt: skip
"""Parts of wheels that a dense model on one GPU does not use, as beginnings of file names."""
GLIBC = (17, 24, 27, 28, 31, 34, 35)
PYTHON = "3.12"
PART = 56_000_000
"""Default size of a part, bytes."""


def pinned(names: Iterable[str]) -> list[str]:
    """Requirements with the versions of constraints.txt; DeepSpeed, with that of pyproject.toml, and what it needs.

    Raises KeyError for a package without a version.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {canonical(line.split("==")[0]): line for line in lines if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*(pins[canonical(name)] for name in names), *project["optional-dependencies"]["deepspeed"], *DEEPSPEED]


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def download(requirements: Sequence[str], folder: Path) -> None:
    """Download wheels for the machine, or build one from source where a package has no wheel."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in GLIBC] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
    options = ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    options += [word for name in platforms for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip"]
    for requirement in requirements:
        done = subprocess.run([*pip, "download", "-q", "--no-deps", *options, "-d", folder, requirement])
        if done.returncode:
            command = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, requirement]
            subprocess.run(command, check=True, env={**os.environ, "DS_BUILD_OPS": "0"})


def trim(wheel: Path, unused: Sequence[str]) -> int:
    """Repack a wheel without the files whose names begin with one of `unused`; returns the bytes saved."""
    draft = wheel.with_suffix(".trimmed")
    size, start = wheel.stat().st_size, tuple(unused)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for entry in source.infolist():
            if entry.filename.startswith(start):
                continue
            data = source.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                # The installer refuses a record that names absent files.
                lines = data.decode().splitlines(keepends=True)
                data = "".join(line for line in lines if not line.startswith(start)).encode()
            target.writestr(entry, data)
    draft.replace(wheel)
    return size - wheel.stat().st_size


def pack(wheels: Sequence[Path], folder: Path, limit: int) -> list[int]:
    """Move wheels into folders part-1, part-2, ... of at most `limit` bytes, the largest first; returns their sizes.

    A larger wheel is split into files of that size.
    """
    sizes: list[int] = []
    pieces: list[tuple[Path, int]] = []
    for wheel in wheels:
        pieces += [(piece, piece.stat().st_size) for piece in split(wheel, limit)]
    for piece, size in sorted(pieces, key=lambda pair: -pair[1]):
        number = next((place for place, used in enumerate(sizes) if used + size <= limit), len(sizes))
        sizes += [0] * (number == len(sizes))
        sizes[number] += size
        part = folder / f"part-{number + 1}"
        part.mkdir(parents=True, exist_ok=True)
        piece.replace(part / piece.name)
    return sizes


def split(wheel: Path, limit: int) -> list[Path]:
    """Split a file that is larger than the limit; returns its pieces, or itself."""
    if wheel.stat().st_size <= limit:
        return [wheel]
    content = wheel.read_bytes()
    pieces = []
    for number, start in enumerate(range(0, len(content), limit)):
        pieces.append(wheel.with_name(f"{wheel.name}.{number:02}"))
        pieces[-1].write_bytes(content[start : start + limit])
    wheel.unlink()
    return pieces


def main(arguments: Sequence[str]) -> None:
    """Make the kit, and print the size of each part."""
    parser = argparse.ArgumentParser(description="wheels for a bare GPU machine")
    parser.add_argument("out", type=Path)
    parser.add_argument("--vllm", action="store_true", help="with vLLM for torch 2.11")
    parser.add_argument("--part", type=int, default=PART, help="most bytes of a part")
    options = parser.parse_args(arguments)
    folder = options.out / "wheels"
    folder.mkdir(parents=True)
    download([*pinned(NEEDS), *(VLLM if options.vllm else [])], folder)
    for name, unused in UNUSED.items():
        for wheel in folder.glob(f"{name}-*.whl"):
            print(f"{wheel.name}: {trim(wheel, unused) / 1e6:.1f} MB less")
    sizes = pack(sorted(folder.glob("*.whl")), options.out, options.part)
    for number, size in enumerate(sizes, 1):
        print(f"part-{number}: {size / 1e6:.1f} MB of {options.part / 1e6:.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
