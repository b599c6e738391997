"""Warnings about a run are computed from its rows, once for all iterations, and shown with its result."""

from pathlib import Path

from places import CONFIGS
from report_runs import Maker, make, row

from infuser_core.config.overlays import load
from infuser_core.cotrain.phases.parts.health import missing_inclusions_warning, small_pool_warning
from infuser_core.results.lineage.outcome import describe_result, result
from infuser_core.results.lineage.run_warnings import run_warnings
from infuser_core.schemas import Document, KeyAccuracy, Leak, Page, Question, Rollout, Update
from infuser_core.store.journal import Journal
from infuser_core.store.runs import create_run
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.terminal import number_ranges


def warnings_of(root: Path, run: str) -> list[str]:
    lens = Lens(Store(root), runs=[run])
    try:
        return [str(warning) for warning in run_warnings(lens, run)]
    finally:
        lens.close()


def test_a_healthy_run_has_no_warning(tmp_path: Path):
    make(tmp_path, "one")
    assert warnings_of(tmp_path, "one") == [] and "warning" not in describe_result(tmp_path, "one")


def test_each_kind_of_warning_names_its_iterations_and_its_worst_value(tmp_path: Path):
    make(tmp_path, "one", documents=9, key_floor=0.4)
    maker = Maker(store=Store(tmp_path), journal=Journal(tmp_path, "one"), run="one")
    maker.journal.start_attempt()
    pool = maker.commit("pool", -1, {"documents": [row(Document, document_id="d0")]}, of="small")
    maker.commit("convert", -1, {"pages": [row(Page, source_id="s0", removed_for=["image", "missing", "missing"])]})
    maker.commit("generate_questions", 7, {}, of="small", pool=pool)
    for iteration, share in ((3, 0.2), (4, 0.0), (5, 0.6)):
        keys = KeyAccuracy(told_by="majority", questions=7, accuracy=share, low=0.0, high=share + 0.1)
        maker.commit("rollout_questions", iteration, {"key_accuracies": [keys]}, of="keys")
    for iteration, fraction in ((0, 0.5), (2, 0.9)):
        step = row(Update, role="solver", num_tokens=9, num_responses=2, clip_fraction=fraction, entropy=1.0)
        maker.commit("update_solver", iteration, {"updates": [step]})
    maker.commit("leakage", -1, {"leaks": [Leak(benchmark="medqa", num_questions=4, num_seen=1, share=0.25)]})

    books, documents, keys, clipped, leak = warnings_of(tmp_path, "one")
    assert books == missing_inclusions_warning(2) and books.startswith("2 inclusions name files outside")
    assert documents == small_pool_warning(9, 1)
    assert keys.startswith("iterations 3-4: keys right by the majority of 7 questions: 0.00")
    assert clipped.startswith("iterations 0, 2: solver: share of clipped tokens is 0.9, above 0.3")
    assert leak.startswith("1 of 4 benchmark questions are in the validation set")
    assert f"\nwarning: {keys}\n" in describe_result(tmp_path, "one")
    assert [entry["iterations"] for entry in result(tmp_path, "one")["warnings"]] == [(), (), (3, 4), (0, 2), ()]


def test_gauges_of_the_questions_warn_with_value_limit_and_remedy(tmp_path: Path):
    """Eight different questions on four topics in three iterations; then one question, long and on one topic."""
    create_run(tmp_path, "one", load([CONFIGS / "nano.yaml"]).model_dump(mode="json"))
    maker = Maker(store=Store(tmp_path), journal=Journal(tmp_path, "one"), run="one")
    maker.journal.start_attempt()
    for iteration in range(5):
        early = iteration < 3
        questions = [
            row(
                Question,
                question_id=f"q{iteration}-{n}",
                text=f"What is {n} + {iteration}?" if early else f"What  IS 0 + 0 {'more ' * 9}?",
                subdomain="abcdefgh"[n] if early else "a",
            )
            for n in range(8)
        ]
        texts = [
            row(Rollout, rollout_id=f"r{iteration}-{n}", role="generator", malformed_reason="x" * (not early and n > 1))
            for n in range(8)
        ]
        maker.commit("generate_questions", iteration, {"questions": questions, "rollouts": texts}, of="gauges")
    copies, topics, length, valid = warnings_of(tmp_path, "one")
    assert copies.startswith(
        "iterations 3-4: share of questions that copy an earlier one is 1, above 0.5: the generator"
    )
    assert topics.startswith(
        "iterations 3-4: effective number of topics, divided by that of the first iterations, is 0.125, below 0.2"
    )
    assert ", is 4.29" in length and ", above 2: the questions grow" in length
    assert ", is 0.25, below 0.5: the generator forgets the format" in valid
    assert all("cotrain." in line for line in (copies, topics, length, valid))
    lens = Lens(Store(tmp_path), runs=["one"])
    rows = lens.query("select * from question_gauges order by iteration")
    assert [row["copies"] for row in rows] == [0.0, 0.0, 0.0, 7 / 8, 1.0]
    assert [round(row["topics"], 6) for row in rows] == [8.0, 8.0, 8.0, 1.0, 1.0]
    lens.close()


def test_ranges_of_numbers():
    assert [number_ranges(numbers) for numbers in ([], [4], [0, 1], [0, 1, 2, 5, 7, 8])] == [
        "",
        "4",
        "0-1",
        "0-2, 5, 7-8",
    ]
