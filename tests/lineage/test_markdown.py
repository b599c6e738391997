"""Pages and bars of the Prefect UI."""

from infuser_core.results.lineage.markdown import artifact_key, heading, markdown_table, page_key
from infuser_core.store.recipe import stage_title


def test_a_key_holds_what_prefect_allows() -> None:
    assert artifact_key("nano-s42.1", "update_solver") == "nano-s42-1-update-solver"


def test_a_title_names_the_iteration_only_inside_the_loop() -> None:
    assert stage_title("update_solver", 0) == "update_solver, iteration 0"
    assert stage_title("judge", -1) == "judge"


def test_a_page_is_called_by_what_the_stage_made() -> None:
    assert heading("score_influence", 3) == "Influence scores, iteration 3"
    assert heading("given_pool", -1) == "Given pool"
    made = page_key("update_solver", 12, "update_solver-8d17edaffa15754a")
    assert made == "solver-after-update-iteration-12-15754a"


def test_a_table_keeps_its_shape_whatever_a_cell_holds() -> None:
    rows = [{"text": "a|b\nc<d>", "value": 0.123456789, "long": "x" * 100, "counts": {"ok": 2}}]
    head, rule, body = markdown_table(rows).splitlines()
    assert head == "| text | value | long | counts |"
    assert rule == "|---|---|---|---|"
    assert body == f"| a\\|b c&lt;d> | 0.123457 | {'x' * 57}... | ok 2 |"
