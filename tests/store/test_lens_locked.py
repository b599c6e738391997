"""A person's SQL reads the store's tables, and nothing else: no other file, no change, no extension."""

from pathlib import Path

import pytest
from launcher import SmallRun

from infuser_core.errors import UsageError
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

QUESTIONS = "select count(*) as n from questions"


def asked(root: Path, statement: str) -> list[dict[str, object]]:
    lens = Lens(Store(root))
    try:
        return lens.query_untrusted(statement)
    finally:
        lens.close()


@pytest.mark.parametrize(
    "statement",
    [
        QUESTIONS,
        f"explain {QUESTIONS}",
        f"explain analyze {QUESTIONS}",
        "show tables",
        "describe questions",
        "summarize scores",
        "from questions limit 1",
        "pivot questions on iteration using count(*)",
    ],
)
def test_statements_that_read_are_answered(small_run: SmallRun, statement: str):
    assert len(asked(small_run.root, statement)) > 0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("copy (select 1) to '{file}'", "COPY"),
        ("explain analyze copy (select 1) to '{file}'", "EXPLAIN COPY"),
        ("/* */ explain analyze copy (select 1) to '{file}'", "EXPLAIN"),
        ("select 1; copy (select 1) to '{file}'", "COPY"),
        ("export database '{file}'", "EXPORT"),
        ("attach '{file}'", "ATTACH"),
        ("install httpfs", "LOAD"),
        ("set enable_external_access = true", "SET"),
        ("select * from read_text('/etc/passwd')", "Permission Error"),
        ("select * from read_blob('/proc/self/environ')", "Permission Error"),
        ("select * from '{other}'", "Permission Error"),
        ("pragma enable_external_access = true", "SET"),
    ],
)
def test_no_statement_writes_or_reads_elsewhere(small_run: SmallRun, tmp_path: Path, statement: str, said: str):
    other = next(small_run.root.glob("artifacts/*/*/artifact.json"), None) or next(small_run.root.rglob("*.json"))
    file = next(small_run.root.rglob("questions.parquet"))
    before = file.read_bytes()
    with pytest.raises(UsageError, match=said):
        asked(small_run.root, f"{statement.format(file=file, other=other)}")
    assert file.read_bytes() == before
