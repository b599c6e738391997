"""A trainer without a model at its anchor, for the phases that score and update."""

from pathlib import Path

import pytest
from solver_rows import anchor

from infuser_core.engines.fake import FakeTrainer, fake_anchor


@pytest.fixture
def trainer(tmp_path: Path) -> FakeTrainer:
    fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(anchor(tmp_path))
    return trainer
