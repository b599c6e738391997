"""Right keys on and off the dev set's topics, at the start and at the end of a run."""

from typing import Any

import duckdb

from infuser_core.results.lineage.outcome import count_keys


def asked(*labels: tuple[int, str, str]) -> Any:
    """A query over labels (iteration, topic, key); the given questions are about clocks."""
    connection = duckdb.connect(":memory:")
    connection.execute("create table reference_questions as select 'r' as run, 'clock' as subdomain")
    connection.execute("create table question_labels (run text, iteration int, topic text, key text)")
    for label in labels:
        connection.execute("insert into question_labels values ('r', ?, ?, ?)", label)

    def query(statement: str) -> list[dict[str, Any]]:
        found = connection.execute(statement)
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    return query


def test_keys_are_counted_on_and_off_the_given_questions_topics_at_both_ends():
    found = count_keys(
        asked(
            (0, "clock", "unsound"), (2, "clock", "sound"), (2, "tank", "sound"), (1, "tank", "unknown"),
            (4, "clock", "unsound"), (7, "clock", "sound"), (9, "clock", "sound"), (9, "tank", "unsound"),
        ),
        "r",
    )  # fmt: skip
    assert found == {"first": {"target": (1, 2), "other": (1, 1)}, "last": {"target": (2, 2), "other": (0, 1)}}


def test_a_run_without_labels_has_no_counts():
    assert count_keys(asked((0, "clock", "unknown")), "r") == {}
