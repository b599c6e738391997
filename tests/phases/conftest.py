"""A trainer without a model at its anchor, for the phases that score and update."""

from pathlib import Path

import pytest

from infuser_core.engines.fake import FakeTrainer, fake_anchor
from infuser_core.schemas import Checkpoint


@pytest.fixture
def trainer(tmp_path: Path) -> FakeTrainer:
    fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "anchor"), step=0))
    return trainer
