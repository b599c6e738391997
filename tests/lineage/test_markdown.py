"""Pages and bars of the Prefect UI."""

import itertools

from launcher import SmallRun

from infuser_core.results.lineage.markdown import (
    artifact_key,
    artifact_page,
    described,
    heading,
    markdown_table,
    page_key,
)
from infuser_core.store.catalogue import Catalogue
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


def test_a_page_shows_few_columns_with_the_text_first_and_names_the_others(small_run: SmallRun) -> None:
    (written,) = [
        record for record in Catalogue(small_run.root).records_of_phase("generate_questions") if record.iteration == 0
    ][:1]
    page = artifact_page(small_run.store, written, run=small_run.name)
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles.index(f"## questions ({written.rows['questions']} rows)") < titles.index(
        f"## question_labels ({written.rows['question_labels']} rows)"
    )
    heads = [above for above, rule in itertools.pairwise(page.splitlines()) if rule.startswith("|---")]
    assert all(head.count("|") <= 7 for head in heads) and sum(head.startswith("| text |") for head in heads) >= 2
    assert "\nMore columns: " in page and "question_id" in page.split("More columns: ")[1].splitlines()[0]
    assert f"](/view/runs/{small_run.name}/why/{written.key}#used_by)" in page


def test_a_description_begins_with_the_number_of_the_curve(small_run: SmallRun) -> None:
    (measured, *_) = [
        record for record in Catalogue(small_run.root).records_of_phase("validate") if record.iteration == 2
    ]
    assert described(measured, "small").startswith(
        f"accuracy {measured.summary['accuracy']:.6g}, validation, iteration 2"
    )
    assert described(measured, "small").endswith("; run small")
