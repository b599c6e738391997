"""Accelerators that ranks ask Ray for: one each, or half of one that two roles share rank by rank."""

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.config.run import EngineSettings
from infuser_core.engines.cluster.places import SHARE, Request, requests
from infuser_core.engines.configured import TRAINERS


@given(ranks=st.integers(1, 16), gpus=st.sampled_from([0.0, 1.0]), shared=st.booleans())
def test_two_roles_that_share_ask_for_no_more_than_one_alone(ranks: int, gpus: float, shared: bool) -> None:
    asked = requests(ranks, gpus=gpus, shared=shared)
    assert len(asked) == ranks
    assert sum(each.gpus for each in asked) * (2 if shared else 1) == ranks * gpus
    bundles = [each.bundle for each in asked if each.bundle is not None]
    assert bundles == (list(range(ranks)) if shared and gpus else [])


def test_a_rank_of_its_own_lets_ray_choose() -> None:
    assert requests(2, gpus=1.0, shared=False) == [Request(gpus=1.0, bundle=None)] * 2
    assert requests(1, gpus=1.0, shared=True) == [Request(gpus=SHARE, bundle=0)]


def test_ranks_share_where_engines_take_turns() -> None:
    for placement, shared in (("colocated", True), ("split", False)):
        engine = EngineSettings(trainer="deepspeed", ranks=8, placement=placement)
        assert TRAINERS["deepspeed"](engine)["shared"] is shared
