from pathlib import Path

import pytest
from planner_fit import anchors, left_out, refit, residuals, root_mean_square

from infuser_core.capacity.hardware import calibrated

CONFIGS = [Path("configs/qwen3-4b.yaml"), Path("configs/qwen3-8b.yaml")]


@pytest.fixture(scope="module")
def asked(request):
    return anchors([request.config.rootpath / path for path in CONFIGS])


def test_every_phase_is_within_a_quarter_of_the_paper(asked):
    cells = [row for row in residuals(asked, calibrated()) if row.phase != "total"]
    assert len(cells) == 16
    assert {(row.model, row.phase): row.error for row in cells if abs(row.error) > 0.25} == {}


def test_totals_are_within_a_tenth_of_the_paper(asked):
    totals = [row for row in residuals(asked, calibrated()) if row.phase == "total"]
    assert [row.paper for row in totals] == [1730, 2761]
    assert all(abs(row.error) < 0.10 for row in totals), totals


def test_gpu_hours_of_the_published_runs(asked):
    for anchor, hours in (("Qwen3-4B-Base", 384), ("Qwen3-8B-Base", 614)):
        plan = asked[anchor]
        seconds = sum(row.ours for row in residuals({anchor: plan}, calibrated()) if row.phase == "total")
        assert abs(seconds * 100 * 8 / 3600 / hours - 1) < 0.10


def test_the_constants_are_those_that_the_fit_finds(asked):
    found, kept = refit(asked), calibrated()
    for name in kept.__dataclass_fields__:
        assert getattr(kept, name) == pytest.approx(getattr(found, name), rel=0.03), name


def test_constants_of_one_model_predict_the_other(asked):
    cells = left_out(asked)
    assert root_mean_square(cells) < 0.20
    assert all(abs(row.error) < 0.10 for row in cells if row.phase == "total")
    assert all(abs(row.error) < 0.30 for row in cells)
