"""Engines on the same accelerators: one sleeps before the other wakes, and neither loads what it still holds."""

from pathlib import Path

import napping_engines
import pytest

from infuser_core.engines.fake import fake_anchor
from infuser_core.engines.pool import EnginePool, Placement
from infuser_core.schemas import Checkpoint


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (
            "colocated",
            [
                "trainer loads a",
                "trainer sleeps",
                "sampler loads a",
                "sampler sleeps",
                "trainer wakes",
                "trainer sleeps",
                "sampler wakes",
            ],
        ),
        ("split", ["trainer loads a", "sampler loads a"]),
    ],
)
def test_engines_take_turns(tmp_path: Path, placement: Placement, expected: list[str]) -> None:
    fake_anchor(tmp_path / "a")
    checkpoint = Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "a"), step=0)
    pool = EnginePool(
        sampler="napping_engines:Sampler", trainer="napping_engines:Trainer", max_trainers=1, placement=placement
    )
    napping_engines.happened.clear()
    for _ in range(2):
        pool.trainer(checkpoint)
        pool.sampler(checkpoint)
    assert napping_engines.happened == expected
