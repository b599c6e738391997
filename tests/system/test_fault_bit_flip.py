"""One flipped bit in a needed artifact stops the run with the file's name; nothing wrong is computed from it."""

import pytest
from fault_tools import EVALUATION, artifact, own_copy, store_without
from launcher import Launcher, SmallRun


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "name"),
    [
        pytest.param("update_solver", "model.safetensors", marks=pytest.mark.long),
        ("questions", "reference_questions.parquet"),
    ],
)
def test_a_flipped_bit_is_named_and_repaired_by_computing_again(
    launch: Launcher, small_run: SmallRun, tmp_path, phase: str, name: str
):
    store = store_without(small_run, tmp_path / "store", *EVALUATION)
    harmed = [own_copy(path.parent, name) for path in (store / "artifacts" / phase).glob(f"*/{name}")]
    for path in harmed:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    ended = launch(*small_run.arguments, store=store)
    assert ended.code == 3
    message, hint = ended.err.splitlines()
    assert any(str(path) in message for path in harmed) and "does not match the digest" in message
    assert "infuser doctor --repair" in hint

    repaired = launch("repair", store=store)
    assert repaired.code == 0, repaired.err
    assert all(f"set aside {path.parent.name}" in repaired.out for path in harmed)
    assert launch("resume", store=store).code == 0
    assert launch("digest", store=store).out == launch("digest", "small", store=small_run.root).out


def test_the_helper_harms_a_copy_of_its_own(small_run: SmallRun, tmp_path):
    store = store_without(small_run, tmp_path / "store")
    folder = artifact(store, "questions")
    path = own_copy(folder, "reference_questions.parquet")
    assert path.stat().st_nlink == 1
