"""Two runs side by side: what was set differently, where they part, and what came of it."""

import json

from launcher import Launcher, SmallRun

from infuser_core.lineage.diff import compare
from infuser_core.store.views import Lens


def test_a_run_is_the_same_as_itself(small_run: SmallRun):
    found = compare(small_run.root, small_run.name, small_run.name)
    assert (list(found.config), list(found.versions), found.first) == ([], [], None)
    assert all(row["b - a"] == 0 for row in found.metrics)
    assert "none: every artifact is the same" in found.text()


def test_the_control_parts_where_its_generator_is_not_updated(small_run: SmallRun):
    found = compare(small_run.root, small_run.name, small_run.fixed)
    assert {row["key"]: (row["a"], row["b"]) for row in found.config}["cotrain.generator.update"] == (True, False)
    assert found.first is not None
    assert found.first["iteration"] == 0 and found.first["why"] == ["only run a has it"]
    assert found.shared > 10


def test_metrics_are_those_of_the_store(small_run: SmallRun):
    found = {row["metric"]: row for row in compare(small_run.root, small_run.name, small_run.fixed).metrics}
    lens = Lens(small_run.store)
    rows = lens.query("select * from benchmark_scores where phase = 'validate'")
    lens.close()
    for row in rows:
        side = "a" if row["run"] == small_run.name else "b"
        assert found[f"validate validation @{row['iteration']}"][side] == row["accuracy"]


def test_the_command_prints_text_or_json(small_run: SmallRun, launch: Launcher):
    text = launch("diff", small_run.name, small_run.fixed, store=small_run.root)
    assert text.code == 0 and "first artifact that differs:" in text.out, text.err
    told = json.loads(launch("diff", small_run.name, small_run.fixed, "--json", store=small_run.root).out)
    assert told["runs"] == [small_run.name, small_run.fixed]
    assert launch("diff", small_run.name, "nowhere", store=small_run.root).code == 2
