import pytest

from infuser_core.capacity.hardware import cluster, gpus, of_size
from infuser_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "nodes", "per_node", "name"),
    [
        ("8xH100", 1, 8, "H100"),
        ("1xRTX4090", 1, 1, "RTX4090"),
        ("2x8xH100", 2, 8, "H100"),
        ("2X8xh100", 2, 8, "H100"),
        ("64xH200", 8, 8, "H200"),
        ("4xA100-40", 1, 4, "A100-40"),
        ("4xA100-80GB", 1, 4, "A100-80"),
        ("3x4xB200", 3, 4, "B200"),
        (" 1 x rtx 3090 ", 1, 1, "RTX3090"),
    ],
)
def test_forms_of_a_cluster(text: str, nodes: int, per_node: int, name: str):
    found = cluster(text)
    assert (found.nodes, found.per_node, found.gpu.name) == (nodes, per_node, name)
    assert found.ranks == nodes * per_node
    assert cluster(found.label) == found


def test_an_unknown_gpu_lists_the_known_ones():
    with pytest.raises(UsageError, match="unknown GPU 'V100'") as caught:
        cluster("8xV100")
    assert all(name in caught.value.hint for name in gpus())


@pytest.mark.parametrize("text", ["H100", "0xH100", "8x0xH100", "x8xH100", "", "8x", "-1xH100", "2x2x2xH100"])
def test_what_is_no_cluster_is_refused(text: str):
    with pytest.raises(UsageError) as caught:
        cluster(text)
    assert caught.value.hint


def test_partly_empty_nodes_are_refused():
    with pytest.raises(UsageError, match="whole nodes"):
        cluster("12xH100")


def test_the_table_names_its_sources_and_has_sane_numbers():
    assert {"H100", "H200", "A100-80", "A100-40", "L40S", "RTX4090", "RTX3090", "B200"} <= set(gpus())
    for gpu in gpus().values():
        assert gpu.source
        assert 20e9 < gpu.memory < 200e9
        assert gpu.flops / gpu.bandwidth > 50, "matrix products are bound by arithmetic"
        assert gpu.bandwidth > gpu.link >= gpu.network


def test_nodes_have_eight_gpus_where_only_a_total_is_given():
    assert (of_size(gpus()["H100"], 512).nodes, of_size(gpus()["H100"], 4).nodes) == (64, 1)
