"""Two ranks with unequal rows and a vocabulary too large to keep its logits are the local trainer."""

from pathlib import Path

import pytest
from distributed_tiny import LIMIT, error, local, ranks
from engine_tiny import OBJECTIVE, anchored, make_groups, make_source

from infuser_core.algorithm.score import cosine
from infuser_core.engines.training.output_layer import LOGIT_CELLS
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed

QWEN3 = 151_936
"""Words of the vocabulary of Qwen3."""
SHAPES = [(3, [450, 40]), (5, [220]), (4, [30, 8])]
"""Rows of which no two ranks can have the same number of tokens."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A narrow model with Qwen3's vocabulary."""
    sizes = {"vocab_size": QWEN3, "hidden_size": 16, "head_dim": 4, "intermediate_size": 24, "num_hidden_layers": 2}
    return anchored(make_source(tmp_path_factory.mktemp("wide") / "source", **sizes, max_position_embeddings=1024))


@pytest.mark.parametrize("stage", [2, 3])
def test_unequal_rows_of_a_real_vocabulary_are_the_local_ones(wide: Checkpoint, tmp_path: Path, stage: int) -> None:
    groups = make_groups(SHAPES)
    assert len(groups[0].rows[0].token_ids) * QWEN3 > 2 * LOGIT_CELLS
    pair = ranks(2, stage, token_budget=800), local(wide, token_budget=800)
    pair[0].load(wide)
    losses, cosines = [], []
    for trainer, name in zip(pair, "ab", strict=True):
        losses.append(trainer.forward_backward(groups, OBJECTIVE, denominator=3).loss)
        trainer.keep_gradient(tmp_path / name)
        found = trainer.probe(groups, OBJECTIVE, tmp_path / "a").similarities
        cosines.append([cosine(each.dot, each.direction_norm, each.reference_norm) for each in found])
        trainer.optim_step(1e-3)
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT
    assert losses[0] == pytest.approx(losses[1], rel=LIMIT)
    assert cosines[0] == pytest.approx(cosines[1], abs=LIMIT)
    found, expected = (trainer.logprobs(groups, temperature=0.7) for trainer in pair)
    for rows, wanted in zip(found, expected, strict=True):
        for values, others in zip(rows, wanted, strict=True):
            assert values == pytest.approx(others, abs=1e-4)
