"""A build judges by rules or by a model behind an address; a reply that was kept is never asked for again."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from places import ROOT

from corpus.chunk.judge import RuleJudge, fault_of
from corpus.model_reply import KeptChat
from corpus.pool import DISCARDED, DOCUMENTS, Discarded, read_documents
from infuser_core.engines.protocols import Messages
from infuser_core.schemas import Document
from infuser_core.store.tables import read_rows
from tasks.corpus_plan import judge_source

PARTS = 40
BOOK = "# Tides\n\n" + "\n\n".join(f"## Part {n}\n\n" + f"The moon pulls at sea {n}. " * 40 for n in range(PARTS))


@contextmanager
def judging() -> Iterator[tuple[str, Counter[str]]]:
    """A server that keeps even parts, and how often each part was asked about."""
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            number = body["messages"][-1]["content"].rpartition("## Part ")[2].split()[0]
            asked[number] += 1
            keep = json.dumps({"keep": int(number) % 2 == 0, "reason": f"part {number}"})
            data = json.dumps({"choices": [{"message": {"content": keep}, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            del arguments

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        # A client that is killed leaves requests behind: no traceback for that.
        server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"openai:judge@http://127.0.0.1:{server.server_port}/v1", asked
        server.shutdown()


def build(source: Path, out: Path, judge: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "flows.cli.main",
        "corpus",
        "build",
        str(source),
        "--judge",
        judge,
        "--out",
        str(out),
    ]
    return subprocess.run(
        [*command, "--json"], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_a_build_killed_while_judging_keeps_every_reply_that_came(tmp_path):
    (tmp_path / "a.md").write_text(BOOK)
    with judging() as (address, asked):
        killed = build(tmp_path / "a.md", tmp_path / "out", address, INFUSER_CRASH_AT="build:replied:20")
        assert killed.returncode == -9 and not (tmp_path / "out" / DOCUMENTS).exists()
        (kept,) = (tmp_path / "out" / ".work" / "replies" / "judge").glob("*.jsonl")
        done = {json.loads(json.loads(line)["reply"])["reason"].split()[1] for line in kept.read_text().splitlines()}
        assert len(done) == 20
        before = asked.copy()
        facts = json.loads(build(tmp_path / "a.md", tmp_path / "out", address).stdout)
        assert all(asked[number] == 1 for number in done)
        again = [number for number, count in asked.items() if count > 1]
        # What was under way, and no more.
        assert set(again) <= set(before) - done and len(asked) == PARTS
        settled = asked.copy()
        assert json.loads(build(tmp_path / "a.md", tmp_path / "out", address).stdout)["changed"] is False
        assert asked == settled
    assert facts["documents"] == PARTS / 2 and facts["judge"].startswith("judge@http://127.0.0.1")
    assert {row.header_path.split()[-1] for row in read_documents(tmp_path / "out")} == {
        str(n) for n in range(0, PARTS, 2)
    }
    dropped = [row for row in read_rows(tmp_path / "out" / DISCARDED, Discarded) if row.stage == "judge"]
    assert len(dropped) == PARTS / 2 and all(row.response for row in dropped)


def test_a_judge_that_cannot_be_reached_ends_the_build_with_one_line(tmp_path):
    (tmp_path / "a.md").write_text(BOOK)
    done = build(tmp_path / "a.md", tmp_path / "out", "nobody")
    assert done.returncode == 2 and done.stderr.startswith("infuser: --judge nobody: unknown")


def test_a_line_that_a_kill_cut_short_is_asked_for_again(tmp_path):
    def chat(replies: list[str]) -> KeptChat:
        def ask(prompts: list[Messages], max_tokens: int) -> Iterator[tuple[int, str]]:
            for place, messages in enumerate(prompts):
                replies.append(messages[0]["content"])
                yield place, messages[0]["content"].upper()

        return KeptChat(name="m", identity="m", ask=ask, folder=tmp_path)

    prompts = [[{"role": "user", "content": word}] for word in ("a", "b")]
    assert chat([]).complete(prompts, max_tokens=1) == ["A", "B"]
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    asked: list[str] = []
    assert chat(asked).complete(prompts, max_tokens=1) == ["A", "B"] and asked == ["b"]
    assert chat(asked).complete(prompts, max_tokens=1) == ["A", "B"] and asked == ["b"]
    assert chat(asked).complete(prompts, max_tokens=2) == ["A", "B"] and asked == ["b", "a", "b"]


CONTENTS = "\n".join(f"{n}.1 Waves and their measure . . . . . . . {n * 7}" for n in range(1, 12))
INDEX = "\n\n".join(f"term {word}, {n}, {n + 9}" for n, word in enumerate("abcdefghijk", 1))
CITED = "\n\n".join(f"[{n}] A. Author and B. Writer, A title, Some Press, 19{n + 60}, pp. 1-{n}." for n in range(8))
DEBRIS = "x = y z\n\n" + "a1 b2 = c + d q _ 3 x i j 2 k ) ( \u2212 \u03c0 R " * 20
NUMBERS = "\n".join("12.5 88.1 (3) 7.25 [4] 19.0 3:45" for _ in range(12))
PROSE = "The moon pulls at the sea, and the sea answers twice a day. See Figure 3 and page 12.\n" * 8
TABLE = "| year | height, m |\n|---|---|\n" + "\n".join(f"| 19{n} | {n} |" for n in range(10, 40)) + "\n\n" + PROSE
CODE = "```\n" + "x[1] = 3; y[2] = 4;\n" * 20 + "```\n"
SUMS = "\n\n".join(f"{n}. A force of {n} N moves a cart by {n + 3} m. Its work is {n * 37 % 11}" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONTENTS, "a list of contents"),
        (INDEX, "an index"),
        (CITED, "a list of references"),
        (DEBRIS, "debris of formulas"),
        (NUMBERS, "numbers and signs"),
        (PROSE, ""),
        (TABLE, ""),
        (CODE, ""),
        (SUMS, ""),
    ],
)
def test_rules_drop_what_teaches_nothing_by_its_form(text, said):
    assert fault_of(text).partition(":")[0] == said


def test_the_rule_judge_gives_every_document_a_row_in_order():
    row = {
        "source_id": "s",
        "header_path": "",
        "start": 0,
        "end": 1,
        "num_tokens": 1,
        "domain": "",
        "prompt_type": "mcq",
    }
    documents = [Document(document_id=str(n), text=text, **row) for n, text in enumerate([PROSE, CONTENTS])]
    verdicts = RuleJudge().decide(documents)
    assert [(row.document_id, row.keep) for row in verdicts] == [("0", True), ("1", False)]


def test_judges_are_named_on_the_command_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert [judge_source(text).type for text in ("none", "rules", "openai:m@http://h/v1", str(tmp_path))] == [
        *("none", "rules", "endpoint", "folder")
    ]
