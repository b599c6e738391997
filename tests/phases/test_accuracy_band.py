"""Questions whose accuracy lies outside the solver's band are not trained on, and stay on record."""

from dataclasses import replace
from pathlib import Path

import pytest
from places import CONFIGS
from solver_rows import answers, question

from infuser_core.config.overlays import load
from infuser_core.engines.fake import FakeTrainer, fake_anchor
from infuser_core.phases import update_solver as phase
from infuser_core.phases.training import by_group
from infuser_core.schemas import Checkpoint

CONFIG = load([CONFIGS / "nano.yaml"])
RIGHT = {"never": 0, "rarely": 1, "half": 2, "mostly": 3, "always": 4}
ROWS = [row for name, won in RIGHT.items() for row in answers(name, ["x"] * 4, correct=[n < won for n in range(4)])]


@pytest.fixture
def trainer(tmp_path: Path) -> FakeTrainer:
    fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "anchor"), step=0))
    return trainer


@pytest.mark.parametrize(
    ("band", "groups"), [(None, 3), ((0.25, 0.75), 3), ((0.3, 0.75), 2), ((0.5, 0.5), 1), ((0.9, 1.0), 0)]
)
def test_only_the_band_is_trained_on(
    trainer: FakeTrainer, tmp_path: Path, band: tuple[float, float] | None, groups: int
):
    settings = replace(phase.settings_of(CONFIG, iteration=0), band=band)
    done = phase.update_solver(
        [question(name) for name in RIGHT], ROWS, trainer, settings, workspace=tmp_path, first_step=0,
    )  # fmt: skip
    assert sum(update.num_groups for update in done.updates) == groups


def test_every_question_stays_on_record_with_its_accuracy():
    rows = phase.difficulties(by_group(ROWS), (0.25, 0.5))
    assert {row.question_id: (row.accuracy, row.inside) for row in rows} == {
        "never": (0.0, False), "rarely": (0.25, True), "half": (0.5, True), "mostly": (0.75, False),
        "always": (1.0, False),
    }  # fmt: skip
