"""Pages of `infuser view`: nothing without the token, nothing of a model's text as code, filters and pages in SQL."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from report_runs import HOSTILE, Maker, make, row, three_runs

from infuser_core.errors import UsageError
from infuser_core.results.view.app import application, serve
from infuser_core.results.view.evaluations import sheet
from infuser_core.results.view.questions import find
from infuser_core.results.view.site import Listing
from infuser_core.results.view.statements import saved
from infuser_core.schemas import InfluenceScore, Question, Rollout, Update
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

TOKEN = "a-token"
HERE = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("view") / "store"
    return root, three_runs(root)


@pytest.fixture
def stranger(store: tuple[Path, list[str]]) -> TestClient:
    return TestClient(application(store[0], TOKEN), base_url=HERE)


@pytest.fixture
def guest(stranger: TestClient) -> TestClient:
    assert stranger.get(f"/?token={TOKEN}").status_code == 200
    return stranger


@pytest.fixture
def asked(store: tuple[Path, list[str]]) -> Callable[..., Listing]:
    def ask(**wanted) -> Listing:
        with closing(Lens(Store(store[0]), runs=[store[1][0]])) as lens:
            return find(lens, **wanted)["listing"]

    return ask


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/style.css", "/static/view.js", "/runs/x", "/compare"])
def test_nothing_is_shown_without_the_token(stranger: TestClient, path: str):
    answer = stranger.get(path)
    assert answer.status_code == 403 and len(answer.text) < 100


def test_the_token_leaves_the_address_for_a_cookie_that_scripts_cannot_read(stranger: TestClient):
    answer = stranger.get(f"/?token={TOKEN}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{HERE}/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert stranger.get("/").status_code == 200


def test_a_foreign_name_of_this_machine_is_refused(guest: TestClient):
    assert guest.get("/", headers={"host": "evil.example"}).status_code == 400


def test_the_policy_allows_only_own_scripts(guest: TestClient):
    policy = guest.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


def test_a_models_text_is_text(guest: TestClient, store: tuple[Path, list[str]]):
    assert "<script>" in HOSTILE
    page = guest.get(f"/runs/{store[1][0]}/questions").text
    assert "&lt;script&gt;alert(1)" in page and "<script>" not in page
    searched = guest.get(f"/runs/{store[1][0]}/questions", params={"search": '"><script>x\x1b[31m</script>'}).text
    assert "<script>" not in searched


def test_every_page_names_files_of_its_own_alone(guest: TestClient, store: tuple[Path, list[str]]):
    first, second = store[1][:2]
    of_run = ("", "/questions", "/evaluations", "/corpus", "/lineage", "/iterations/1", "/why/d1")
    for path in ("/", "/sql", *(f"/runs/{first}{part}" for part in of_run), f"/compare?run={first}&run={second}"):
        answer = guest.get(path)
        assert answer.status_code == 200, path
        assert re.findall(r'(?:src|href)="(?:https?:)?//', answer.text) == []
    assert all(run in guest.get("/").text for run in store[1])


def test_an_iteration_tells_the_way_from_documents_to_questions_and_leads_to_its_neighbours(
    guest: TestClient, store: tuple[Path, list[str]]
):
    page = guest.get(f"/runs/{store[1][0]}/iterations?number=1").text
    counts = dict(re.findall(r"<dt>(.*?)</dt>.*?<b>([\d,]+)</b>", page))
    assert (counts["documents drawn"], counts["texts written by the generator"], counts["questions"]) == ("2", "8", "8")
    assert [re.search(f'rel="{way}" href="([^"]+)"', page)[1][-1] for way in ("prev", "next")] == ["0", "2"]


def test_an_evaluation_shows_how_each_checkpoint_answered_and_filters_what_was_won(
    store: tuple[Path, list[str]],
):
    with closing(Lens(Store(store[0]), runs=[store[1][0]])) as lens:
        everything = sheet(lens, benchmark="math500", search="", change="all", page=1)
        won = sheet(lens, benchmark="math500", search="", change="won: more right at the end", page=1)
        beyond = sheet(lens, benchmark="math500", search="", change="all", page=9)
        named = sheet(lens, benchmark="math500", search="QUESTION 7?", change="all", page=1)
    rows = everything["listing"].rows
    assert (everything["listing"].total, everything["checkpoints"]) == (24, [0, 3])
    assert won["listing"].total == sum(row["cells"][1] > row["cells"][0] for row in rows) > 3
    assert [row["text"] for row in named["listing"].rows] == ["math500 question 7?"]
    assert beyond == everything


@pytest.mark.parametrize(("ending", "start"), [("csv", b"run,n"), ("parquet", b"PAR1")])
def test_a_statement_is_answered_and_its_rows_are_a_file(guest: TestClient, ending: str, start: bytes):
    asked = {"statement": "select run, count(*) as n from questions group by run order by run"}
    page = guest.get("/sql", params=asked).text
    assert "3 rows" in page and '<a href="/runs/fixed-1">' in page and all(title in page for title in saved())
    assert guest.get(f"/sql/rows.{ending}", params=asked).content.startswith(start)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("copy (select 1) to '/tmp/infuser-leak.csv'", "only statements that read"),
        ("select * from read_csv('/etc/passwd')", "disabled"),
        ("selct 1", "syntax error"),
    ],
)
def test_a_statement_reads_the_store_alone(guest: TestClient, statement: str, said: str):
    assert said in guest.get("/sql", params={"statement": statement}).text
    assert guest.get("/sql/rows.csv", params={"statement": statement}).status_code == 404


def test_a_statement_that_takes_too_long_is_stopped(store: tuple[Path, list[str]]):
    with closing(Lens(Store(store[0]))) as lens, pytest.raises(UsageError, match=r"more than 0\.2 s"):
        lens.query_untrusted("select count(*) from range(1000000) a, range(1000000) b", seconds=0.2)


@pytest.mark.parametrize(
    "path",
    ["/runs/none", "/runs/none/questions", "/compare?run=one", "/runs/none/why/1", "/runs/plain-1/iterations/99"],
)
def test_what_is_not_there_is_said_in_one_sentence(guest: TestClient, path: str):
    answer = guest.get(path)
    assert answer.status_code == 404 and "<h1>Not found</h1>" in answer.text


def test_a_run_shows_its_warnings(tmp_path: Path):
    make(tmp_path, "one")
    maker = Maker(store=Store(tmp_path), journal=Journal(tmp_path, "one"), run="one")
    maker.journal.start_attempt()
    step = row(Update, role="solver", num_tokens=9, num_responses=2, clip_fraction=0.9, entropy=1.0)
    maker.commit("update_solver", 2, {"updates": [step]})
    client = TestClient(application(tmp_path, TOKEN), base_url=HERE)
    assert 'hx-get="/runs/one/warnings"' in client.get(f"/runs/one?token={TOKEN}").text
    warnings = client.get("/runs/one/warnings").text
    assert "iteration 2: solver: share of clipped tokens is 0.9" in warnings and warnings.count("<p") == 1


def test_an_address_without_a_page_leads_back(guest: TestClient):
    answer = guest.get("/nothing")
    assert answer.status_code == 404 and "There is no page /nothing." in answer.text and 'href="/"' in answer.text


def test_an_iteration_that_has_not_run_says_so(guest: TestClient):
    page = guest.get("/runs/plain-1/iterations/9").text
    assert "<h1>Iteration 9 has not run yet</h1>" in page and "<dl" not in page


def test_the_same_text_of_an_iteration_is_one_row_with_its_count(asked: Callable[..., Listing]):
    rows = asked(iteration="1").rows
    assert sorted(row["copies"] for row in rows) == [1] * 6 + [2] and len({row["text"] for row in rows}) == 7


def test_points_since_an_iteration_are_those_that_the_page_lacks(guest: TestClient):
    whole, news = (guest.get(f"/runs/plain-1/live?since={since}").json() for since in (-1, 2))
    assert whole["state"] == "done" and "iteration" in whole["parts"]["status"]
    for chart, more in zip(whole["charts"], news["charts"], strict=True):
        start = [x >= 2 for x in chart["columns"][0]].index(True)
        assert more["columns"] == [column[start:] for column in chart["columns"]], chart["title"]
    nothing = guest.get("/runs/plain-1/live?since=99").json()["charts"]
    assert [chart["columns"][0] for chart in nothing] == [[] for _ in nothing] and nothing
    validation = whole["charts"][0]
    assert (validation["title"], validation["unit"], validation["selected"]) == ("Validation accuracy", "%", 3)
    assert validation["anchor"] == validation["columns"][1][0] and validation["bands"][0] == [[0.0] * 4, [1.0] * 4]


def test_the_page_of_a_run_begins_with_its_verdict_and_that_of_its_control(guest: TestClient):
    page = guest.get("/runs/plain-1").text
    verdict = page[page.index('<p class="verdict">') : page.index('<div class="cards">')]
    assert "gpqa diamond" in verdict and "best at iteration 3" in verdict and "points [" in verdict
    assert page.index('class="verdict"') < page.index("Provenance and settings")
    assert "run=fixed-1" in verdict, "the run with the same seed whose generator never learns"
    assert "control" not in guest.get("/runs/fixed-1").text


def test_three_runs_are_compared_by_what_differs_with_the_seeds_of_a_variant_as_one_line(guest: TestClient):
    page = guest.get("/compare?run=plain-1&run=plain-2&run=fixed-1").text
    assert re.findall(r'data-line="([^"]+)"', page) == ["generator.update=true", "generator.update=false"]
    charts = [json.loads(unescape(text)) for text in re.findall(r'data-chart="([^"]+)"', page)]
    validation = charts[0]
    assert validation["labels"] == ["generator.update=true", "generator.update=false"]
    low, high = validation["bands"][0]
    assert all(a < b < c for a, b, c in zip(low, validation["columns"][1], high, strict=True))
    assert "cotrain.generator.update" in page and page.count("points [") > 3


def test_the_list_of_runs_says_what_differs_and_draws_validation(guest: TestClient):
    page = guest.get("/").text
    assert page.count("<polyline") == 3 and page.count("generator.update=true") == 2
    assert page.count('class="state done"') == 3


def test_the_page_of_a_question_begins_with_its_key_its_answers_and_its_rank(tmp_path: Path):
    make(tmp_path, "one")
    maker = Maker(store=Store(tmp_path), journal=Journal(tmp_path, "one"), run="one")
    maker.journal.start_attempt()
    rollout = row(Rollout, rollout_id="7/d0/0", group_id="d0", role="generator", token_ids=[1], text="{}")
    ids = [f"7/d0/0-{n:08x}" for n in range(3)]
    questions = [
        row(Question, question_id=each, rollout_id="7/d0/0", document_id="d0", text=f"What is {each}?",
            choices=["one", "two"], answer="B")
        for each in ids
    ]  # fmt: skip
    batch = maker.commit("generate_questions", 7, {"rollouts": [rollout], "questions": questions}, of="page")
    answers = [
        row(Rollout, rollout_id=f"{ids[1]}/{n}", group_id=ids[1], sample_index=n, role="solver", token_ids=[1],
            text=f"so {n}", verdict="correct" if n else "wrong", reward=float(n > 0))
        for n in range(3)
    ]  # fmt: skip
    answered = maker.commit("rollout_questions", 7, {"rollouts": answers}, of="page", questions=batch)
    scores = [
        row(InfluenceScore, question_id=each, status="scored", score=score)
        for each, score in zip(ids, (0.5, 0.25, -0.5), strict=True)
    ]
    maker.commit("score_influence", 7, {"scores": scores}, of="page", questions=batch, rollouts=answered)
    client = TestClient(application(tmp_path, TOKEN), base_url=HERE)
    client.get(f"/?token={TOKEN}")
    page = client.get(f"/runs/one/why/{ids[1]}").text
    first = page[: page.index("<h2>More</h2>")]
    assert f"<h1>What is {ids[1]}?</h1>" in first and "rank 2 of 3" in first and "+0.250" in first
    assert re.search(r'class="key-answer">B\) two', first) and 'aria-label="2 of 3 right"' in first
    assert 'hx-get="/runs/one/sheet/d0"' in first and "<circle" in first
    assert "<details" in page and "<details open" not in page and ' id="answers" open' not in page


def test_filters_leave_the_rows_that_a_reader_would_leave(asked: Callable[..., Listing]):
    everything = asked()
    assert everything.total == len(everything.rows) > 3
    one = str(everything.rows[0]["iteration"])
    assert asked(iteration=one).total == sum(str(row["iteration"]) == one for row in everything.rows)
    assert asked(search=HOSTILE.upper()).total == sum(row["text"] == HOSTILE for row in everything.rows)
    assert asked(status="scored").total == sum(row["status"] == "scored" for row in everything.rows)
    assert asked(search="' or true --").total == asked(source="no such book").total == 0


def test_orders_are_orders_and_pages_hold_what_is_left(asked: Callable[..., Listing]):
    scores = [row["score"] for row in asked(sort="influence, highest first").rows if row["score"] is not None]
    assert scores == sorted(scores, reverse=True) and len(scores) > 2
    assert asked(page=2) == asked() and asked().pages == 1
    assert asked(sort="; drop table questions").rows == asked().rows


def test_a_store_that_is_not_there_is_wrong_use(tmp_path: Path):
    with pytest.raises(UsageError, match="no store"):
        serve(tmp_path / "none", port=0, announce=print)
