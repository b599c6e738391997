"""Files of tensors in one pass have the bytes of safetensors' own writer, and the digest of what lies on the disk."""

import errno
import hashlib
import resource
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from infuser_core.engines.training import tensor_files

KINDS = st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16])
SHAPES = st.dictionaries(st.text('ab.\u00e4\u4e2d"0', max_size=6), st.lists(st.integers(0, 5), max_size=3), max_size=5)


def plain(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@given(SHAPES, KINDS)
def test_a_file_has_the_bytes_of_the_formats_own_writer(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, list[int]], kind: torch.dtype
):
    folder = tmp_path_factory.mktemp("files")
    tensors = {name: torch.randn(shape).to(kind) for name, shape in shapes.items()}
    sha256 = tensor_files.write_file(folder / "ours", tensors)
    save_file(tensors, folder / "theirs", metadata={"format": "pt"})
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()
    assert sha256 == plain(folder / "ours")


@pytest.mark.parametrize("size", [tensor_files.LARGE, 3 * tensor_files.BLOCK - 64, 9 * tensor_files.BLOCK + 4])
def test_large_files_are_whole_and_come_in_order(tmp_path: Path, size: int):
    def tensors(number: int) -> dict[str, torch.Tensor]:
        # The second one is not in the order of memory.
        return {"b": torch.full((size // 4,), float(number)), "a": torch.randn(300, 7).T}

    files = {tmp_path / str(number): tensors(number) for number in range(3)}
    written = list(tensor_files.write_files(files))
    assert [path for path, _ in written] == list(files)
    for path, sha256 in written:
        save_file(
            {name: each.contiguous() for name, each in files[path].items()}, tmp_path / "theirs", {"format": "pt"}
        )
        assert sha256 == plain(path) == plain(tmp_path / "theirs")


@pytest.mark.parametrize("size", [2 << 20, tensor_files.LARGE])
def test_a_file_that_finds_no_room_ends_the_writing(tmp_path: Path, size: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            tensor_files.write_file(tmp_path / "a", {"a": torch.zeros(size, dtype=torch.uint8).view(torch.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
