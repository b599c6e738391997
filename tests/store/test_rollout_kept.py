"""A killed rollout phase goes on from its finished groups, and ends with what an undisturbed one ends with."""

from pathlib import Path

import pytest
from engine_tiny import make_checkpoint
from stock_engines import hf_sampler

from infuser_core.evaluation import resumable_sampling
from infuser_core.evaluation.resumable_sampling import Drawn, sample_resumably
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.store.pieces import Pieces

PARAMS = SamplingParams(temperature=1.0, max_tokens=30)
GROUPS = [
    PromptGroup(group_id=f"g{place}", token_ids=[2 + place] * (3 + place % 4), seeds=[10 * place, 10 * place + 1])
    for place in range(12)
]


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_killed_draw_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    monkeypatch.setattr(resumable_sampling, "SAVE_SECONDS", 0.0)
    # Room for two or three groups: several batches, whose make-up decides about the last bits.
    sampler = hf_sampler(cache_tokens=200)
    sampler.load(make_checkpoint(tmp_path))
    expected = sample_resumably(GROUPS, sampler, PARAMS)
    seen: list[tuple[int, int, int]] = []

    def kill(*numbers: int) -> None:
        seen.append(numbers)
        if len(seen) == calls:
            raise Killed

    kept = Pieces(tmp_path / "kept", Drawn)
    with pytest.raises(Killed):
        sample_resumably(GROUPS, sampler, PARAMS, saved_rows=kept, progress=kill)
    before = {row.group_id for row in kept.rows()}
    assert 0 < len(before) < len(GROUPS)
    after: list[tuple[int, int, int]] = []
    found = sample_resumably(GROUPS, sampler, PARAMS, saved_rows=kept, progress=lambda *numbers: after.append(numbers))
    # To the last bit: the log-probabilities as well.
    assert found == expected
    assert after[0][0] > seen[-1][0]
    assert after[-1] == (24, 24, sum(len(each.token_ids) for samples in expected.values() for each in samples))


def test_short_draws_write_nothing(tmp_path: Path) -> None:
    sampler = hf_sampler()
    sampler.load(make_checkpoint(tmp_path))
    kept = Pieces(tmp_path / "kept", Drawn)
    sample_resumably(GROUPS, sampler, PARAMS, saved_rows=kept)
    assert kept.rows() == []
