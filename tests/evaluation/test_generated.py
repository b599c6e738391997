"""`infuser quality`: the questions that a run generated, judged by solvers."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from launcher import Launcher, SmallRun
from test_endpoint_replies import refused, said, server

from infuser_core.evaluation.generated import agreements
from infuser_core.evaluation.statistics.question_quality import CheckedQuestion, side_by_side
from infuser_core.evaluation.statistics.tally import Tally, accuracy, from_counts
from infuser_core.results.report.quality import quality_section
from infuser_core.store.tables import read_rows

JUDGING = "You check examination questions"


@pytest.fixture(scope="module")
def store(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of our own: evaluations are written into it."""
    return Path(shutil.copytree(small_run.root, tmp_path_factory.mktemp("quality") / "store"))


class Script:
    """A server that answers A, finds every other question lacking, and breaks down once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.judged: list[str] = []
        self.breaks_after = 3

    def __call__(self, body: dict, times: int):
        text = body["messages"][-1]["content"]
        if not body["messages"][0]["content"].startswith(JUDGING):
            self.asked.append(f"{text}/{body['seed']}")
            return said("\\boxed{A}")
        if len(self.judged) == self.breaks_after:
            return refused(400, "out of order")
        self.judged.append(text)
        alone = len(self.judged) % 2 == 0
        return said(json.dumps({"self_contained": alone, "missing": "" if alone else "the unit"}))


@pytest.fixture(scope="module")
def ended(launch: Launcher, store: Path) -> dict:
    """The second of two commands: the first one lost its judge."""
    script = Script()
    with server(script) as (url, _):
        model = f"openai:tiny@{url}"
        command = ["report", "quality", "small", "--iterations", "first,last", "--samples", "1", "--judge", model]
        command += ["--solver", "small@0", "--solver", model, "--json"]
        stopped = launch(*command, store=store, NO_PROXY="127.0.0.1")
        script.breaks_after = 10_000
        found = launch(*command, store=store, NO_PROXY="127.0.0.1")
        again = launch(*command, store=store, NO_PROXY="127.0.0.1")
    assert stopped.code == 3 and found.code == 0, found.err
    return {"first": stopped, "found": json.loads(found.out), "again": json.loads(again.out), "script": script}


def test_a_command_that_broke_down_asks_nothing_twice(ended: dict):
    script, found = ended["script"], ended["found"]
    total = sum(row["questions"] for row in found["iterations"])
    assert len(script.asked) == len({*script.asked}) == total
    assert len({*script.judged}) == total and ended["again"] == found


def test_every_solver_has_its_agreement_and_the_gap_to_the_base(ended: dict):
    found = ended["found"]
    assert [row["iteration"] for row in found["iterations"]] == [0, 1]
    for iteration in (0, 1):
        base, other = [row for row in found["solvers"] if row["iteration"] == iteration]
        assert base["solver"] == found["base"] == "small@0" and base["gap"] is None
        assert other["gap"] == pytest.approx(other["agreement"] - base["agreement"])
        assert other["low"] <= other["gap"] <= other["high"]
        assert other["agreement_low"] <= other["agreement"] <= other["agreement_high"]


def test_the_judge_decides_who_stands_alone_and_the_solver_who_has_a_wrong_key(ended: dict, store: Path):
    (path,) = (store / "artifacts" / "quality").glob("*/checked_questions.parquet")
    rows = read_rows(path, CheckedQuestion)
    found = ended["found"]
    assert {row.decided_by for row in rows} == {"judge"} and all(not row.points_at for row in rows)
    assert {row.missing for row in rows if not row.self_contained} == {"the unit"}
    per = {row["iteration"]: row for row in found["iterations"]}
    for iteration, one in per.items():
        mine = [row for row in rows if row.iteration == iteration]
        assert one["questions"] == one["judged"] == len(mine) == sum(one["keys"].values())
        assert one["overruled"] == sum(not row.self_contained for row in mine) > 0
        assert one["oracle_checked"] == sum(row.oracle in ("sound", "unsound") for row in mine)
    strong = [name["solver"] for name in found["solvers"][:2]].index(found["strongest"])
    assert all((row.key == "agrees") == (row.agreement[strong] == 1.0) for row in rows)


def test_questions_of_one_document_stand_side_by_side(ended: dict, store: Path):
    found = ended["found"]
    assert (
        found["examples"] == [] and "No document was read at two of these iterations" in Path(found["page"]).read_text()
    )
    (path,) = (store / "artifacts" / "quality").glob("*/checked_questions.parquet")
    rows = [replace(row, document_id="d") for row in read_rows(path, CheckedQuestion)]
    table = quality_section({**found, "examples": side_by_side(rows, count=1)}).tables[-1]
    assert [row[:2] for row in table.rows] == [["d", "0"], ["d", "1"]] and all("key " in row[3] for row in table.rows)


def test_page_and_report_of_the_run_show_it(ended: dict, launch: Launcher, store: Path):
    page = Path(ended["found"]["page"]).read_text()
    assert "Solvers against the generator&#39;s keys" in page and "quality-swg" in page
    assert launch("report", "small", store=store).code == 0
    told = (store / "runs" / "small" / "report" / "report.md").read_text()
    assert "Checks of the questions" in told and "Form of the answers by checkpoint" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--iterations", "0,7"), "--iterations 7"),
        (("--solver", "small@0", "--solver", "small@0"), "named twice"),
        (("--solver", "small@0", "--strong", "small@1"), "not among the solvers"),
    ],
)
def test_what_cannot_be_is_named(options: tuple[str, ...], said: str, launch: Launcher, store: Path):
    found = launch("report", "quality", "small", *options, store=store)
    assert found.code == 2 and said in found.err


def test_without_solvers_and_judge_rules_alone_look_at_a_few(launch: Launcher, store: Path):
    command = ("report", "quality", "small", "--iterations", "all", "--limit", "2", "--examples", "0", "--json")
    found = json.loads(launch(*command, store=store).out)
    assert [row["questions"] for row in found["iterations"]] == [2, 2] and found["solvers"] == []
    assert {row["judged"] for row in found["iterations"]} == {0} and found["strongest"] == ""


# Several solvers answer the generated questions of an iteration; the gap to the base has its paired interval


SOLVERS = ("--solver", "small@0", "--solver", "small@2")


@pytest.fixture(scope="module")
def solver_store(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of our own: examinations are written into it."""
    return Path(shutil.copytree(small_run.root, tmp_path_factory.mktemp("solvers") / "store"))


@pytest.fixture(scope="module")
def found(launch: Launcher, solver_store: Path) -> dict:
    ended = launch("report", "quality", "small", "--iterations", "1", *SOLVERS, "--json", store=solver_store)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_the_base_comes_first_and_the_others_beside_it(found: dict, launch: Launcher, solver_store: Path):
    base, other = found["solvers"]
    said = launch("sql", "select count(*) as n from questions where iteration = 1 and run = 'small'", "--json",
                  store=solver_store)  # fmt: skip
    assert base["solver"] == found["base"] == "small@0" and other["solver"] == "small@2"
    assert base["questions"] == other["questions"] == json.loads(said.out)[0]["n"] > 0
    assert other["gap"] == pytest.approx(other["agreement"] - base["agreement"])
    assert other["low"] <= other["gap"] <= other["high"]


def test_asked_again_it_says_the_same(found: dict, launch: Launcher, solver_store: Path):
    ended = launch("report", "quality", "small", "--iterations", "1", *SOLVERS, "--json", store=solver_store)
    assert json.loads(ended.out)["solvers"] == found["solvers"]


def test_a_missing_iteration_is_named(launch: Launcher, solver_store: Path):
    ended = launch("report", "quality", "small", "--iterations", "99", *SOLVERS, store=solver_store)
    assert ended.code == 2 and "--iterations 99" in ended.err


# Strong solvers against the base on generated questions, for any set of solvers


def solvers() -> dict[str, Tally]:
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.2, 0.6, 300)
    return {
        name: from_counts({f"q{n}": int(rng.binomial(4, min(1.0, p + more))) for n, p in enumerate(chance)}, 4)
        for name, more in (("base", 0.0), ("strong", 0.2), ("same", 0.0))
    }


def test_every_solver_stands_beside_the_first():
    found = solvers()
    base, *others = agreements(found, 3)
    assert base["solver"] == "base" and base["gap"] is None and [row["solver"] for row in others] == ["strong", "same"]
    for row in others:
        assert row["iteration"] == 3 and row["agreement"] == accuracy(found[row["solver"]])
        assert row["gap"] == pytest.approx(row["agreement"] - base["agreement"])
    assert others[0]["low"] > 0.1 and others[1]["low"] < 0 < others[1]["high"]


def test_only_common_questions_are_compared():
    short, base = from_counts({"a": 1, "b": 0}, 1), from_counts({"a": 0, "b": 0, "c": 1}, 1)
    row = agreements({"base": base, "strong": short}, 0)[1]
    assert (row["questions"], row["gap"]) == (2, 0.5)
