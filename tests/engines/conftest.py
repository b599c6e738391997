"""A tiny anchor that the tests of a module share, and Ray nodes that all share; tests of several ranks are skipped
without DeepSpeed."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from engine_tiny import make_checkpoint

from infuser_core.schemas import Checkpoint

if TYPE_CHECKING:
    from ray_nodes import Nodes

# One for every Ray: the first one that a process starts makes a token of its own, and whatever the process starts later
# would be refused by nodes that are older.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("anchor"))


@pytest.fixture(scope="module", autouse=True)
def _deepspeed(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("distributed"):
        reason = "needs the extra `deepspeed`: make test-distributed"
        pytest.importorskip("deepspeed", reason=reason, exc_type=ImportError)


@pytest.fixture(scope="session")
def _nodes(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Nodes]":
    # Ray loads where it is used.
    from ray_nodes import Nodes

    found = Nodes(tmp_path_factory.mktemp("nodes") / "reads")
    yield found
    found.close()


@pytest.fixture
def nodes(_nodes: "Nodes") -> "Nodes":
    """Both of them alive."""
    _nodes.complete()
    return _nodes
