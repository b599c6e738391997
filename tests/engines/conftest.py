"""A tiny anchor that the tests of a module share; tests of several ranks are skipped without DeepSpeed."""

import pytest
from engine_tiny import make_checkpoint

from infuser_core.schemas import Checkpoint


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("anchor"))


@pytest.fixture(scope="module", autouse=True)
def _deepspeed(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("distributed"):
        reason = "needs the extra `deepspeed`: make test-distributed"
        pytest.importorskip("deepspeed", reason=reason, exc_type=ImportError)
