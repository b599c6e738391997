"""Whatever is wrong: one line that says what and where, one that says what to do, and nothing half-written."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from launcher import ROOT, Finished, Launcher, SmallRun, copy_store

from infuser_core.nano import world
from infuser_core.store.runs import create_run, hold_run, read_config

NANO = "configs/nano.yaml"


def complains(ended: Finished, code: int) -> str:
    """The message, after checking that it is all there is."""
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    lines = ended.err.splitlines()
    assert len(lines) == 2, ended.err
    assert lines[0].startswith("infuser: ") and lines[1].startswith("  hint: "), ended.err
    return lines[0].removeprefix("infuser: ")


def nothing_half_written(store: Path) -> bool:
    staged = list((store / ".staging").iterdir()) if (store / ".staging").exists() else []
    incomplete = [folder for folder in (store / "artifacts").glob("*/*") if not (folder / "artifact.json").is_file()]
    return staged == incomplete == []


WRONG_USE = {
    "missing file": (["run", "missing.yaml"], "cannot read missing.yaml: No such file or directory"),
    "unknown key": (["run", NANO, "--set", "cotrain.iteration=5"], "cotrain.iteration = 5: unknown key"),
    "bad value": (["run", NANO, "--set", "cotrain.iterations=many"], "cotrain.iterations = 'many': "),
    "impossible combination": (["run", NANO, "--set", "cotrain.dev_only=true"], "cotrain: dev_only trains no"),
    "bad override": (["run", NANO, "--set", "iterations"], "--set iterations: not of the form key=value"),
    "bad seed": (["run", NANO, "--seed", "-1"], "seed = -1: "),
    "missing dev set": (
        ["run", NANO, "--set", "data.dev={type: file, path: no.json}"],
        "data.dev.path = 'no.json': no such file",
    ),
    "unknown benchmark": (["run", NANO, "--set", "evaluate.benchmarks=[{name: gsm}]"], "no benchmark 'gsm'"),
    "unknown reward": (["run", NANO, "--set", "cotrain.reward.name=fame"], "no reward 'fame'"),
    "unknown command": (["jog"], "No such command 'jog'."),
    "unknown option": (["run", NANO, "--fast"], "No such option: --fast"),
    "nothing to run": (["run"], "no configuration to run"),
    "number of another script": (["run", "--fork", "x@²"], "--fork x@²: no iteration"),
    "name without end": (["run", NANO, "--set", f"corpus.pool={'a' * 300}"], "corpus.pool: 'aaaaa"),
    "folder without end": (["init", "a" * 300], "'aaaaa"),
    "no module's name": (["run", NANO, "--set", 'cotrain.route="../x"'], "no route '../x'"),
    "bad option": (["serve", "--port", "high"], "Invalid value for '--port': "),
    "unknown artifact": (["show", "rollout_dev-0000"], "no artifact rollout_dev-0000"),
    "bad SQL": (["sql", "select * from nowhere"], "Catalog Error: Table with name nowhere does not exist!"),
    "empty SQL": (["sql", ""], "the statement is empty"),
    "overlay alone": (["run", "ablation/fixed_generator"], "ablation/fixed_generator: an overlay, without a complete"),
    "sweep as a run": (["run", "sweep/nano"], "sweep/nano is a sweep file"),
    "missing source": (["corpus", "build", "--source", "no.pdf", "--out", "no-pool"], "no.pdf: no such file or folder"),
    "nothing to compare": (["report", "compare"], "no finished runs to compare"),
    "no run yet": (["status"], "no runs yet in "),
    **{
        f"unknown run for {command}": ([*command.split(), "walk"], "no run named walk in ")
        for command in ("resume", "status", "result", "status --digest", "report", "report compare")
    },
}


@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use_is_exit_2_with_a_message_and_a_hint(launch: Launcher, tmp_path: Path, case: str):
    arguments, message = WRONG_USE[case]
    said = complains(launch(*arguments, store=tmp_path / "store"), 2)
    assert said.startswith(message)
    assert not (tmp_path / "store" / "runs").exists()
    assert nothing_half_written(tmp_path / "store")


YAML = {
    "bracket": (
        b"cotrain: [1, 2\n",
        " is not valid YAML: line 1: a bracket or brace has no end, or a comma is missing",
    ),
    "tab": (b"name: x\n\tseed: 1\n", " is not valid YAML: line 2: there is a tab: indent with spaces"),
    "two values": (
        b"a: b: c\n",
        " is not valid YAML: line 1: a second `: ` in one line: start a new line, or quote the value",
    ),
    "quote": (b'name: "x\n', " is not valid YAML: line 2: a quote has no end"),
    "indentation": (b"a:\n  b: 1\n c: 2\n", " is not valid YAML: line 3: the indentation does not fit the lines above"),
    "UTF-16": ("name: x\n".encode("utf-16"), " is not valid YAML: it is UTF-16, byte 0xff at offset 0"),
}


@pytest.mark.parametrize("case", YAML)
def test_broken_yaml_names_its_line_and_the_fault(launch: Launcher, tmp_path: Path, case: str):
    content, message = YAML[case]
    (tmp_path / "mine.yaml").write_bytes(content)
    ended = launch("run", str(tmp_path / "mine.yaml"), store=tmp_path / "store")
    assert complains(ended, 2) == f"{tmp_path / 'mine.yaml'}{message}"


def test_the_hint_after_wrong_names_says_what_to_type(launch: Launcher, tmp_path: Path):
    hints = {
        ("run", "ablation/fixed_generator"): "a complete one comes first: infuser run nano ablation/fixed_generator",
        ("run", "nano", "--set", "cotrain.reward.name=mine:rewards"): "`PYTHONPATH=. infuser ...` if mine is in this",
        ("sql", "select scor from leaks"): "leaks: run, iteration, phase, artifact_key, benchmark, num_questions",
        (
            "run",
            "qwen3-8b",
        ): "the paper's authors publish it (docs/reproduce.md): put it there, or --set data.dev.path=",
    }
    for arguments, hint in hints.items():
        ended = launch(*arguments, store=tmp_path)
        complains(ended, 2)
        assert hint in ended.err.splitlines()[1]


def test_a_pool_is_not_written_into_a_folder_with_other_files(launch: Launcher, tmp_path: Path):
    (tmp_path / "book.md").write_text("# Tides\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    ended = launch(
        "corpus", "build", str(tmp_path / "book.md"), "--out", str(tmp_path / "full"), store=tmp_path / "store"
    )
    assert complains(ended, 2) == f"{tmp_path / 'full'} holds other files: letter.txt"
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_a_command_without_arguments_shows_its_help_and_complains_about_nothing(launch: Launcher, tmp_path: Path):
    for command, panel in (([], "Look"), (["nano"], "Commands")):
        ended = launch(*command, store=tmp_path)
        assert (ended.code, ended.err) == (2, "")
        assert "Usage: infuser" in ended.out and f"─ {panel} ─" in ended.out


def test_a_store_that_cannot_be_written_is_named(launch: Launcher, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    said = complains(launch("run", NANO, store=tmp_path / "file"), 2)
    assert said.startswith(f"cannot write the store at {tmp_path / 'file'}: ")
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_run_that_lives_is_not_started_twice(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    create_run(tmp_path, "mine", read_config(small_run.root, small_run.name))
    with hold_run(tmp_path, "mine"):
        said = complains(launch("resume", "mine", store=tmp_path), 2)
    assert said.startswith("run mine is being executed by process ")


def test_a_run_with_other_settings_under_the_same_name_is_refused(launch: Launcher, small_run: SmallRun):
    ended = launch(*small_run.arguments, "--set", "cotrain.iterations=3", store=small_run.root)
    assert complains(ended, 2) == "run small exists with other settings: cotrain.iterations is 2, asked 3"


def test_a_name_that_leads_out_of_the_store_is_refused(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    ended = launch(*small_run.arguments[:3], "--name", "../../escaped", store=tmp_path / "a" / "store")
    assert complains(ended, 2) == "--name '../../escaped': not a name for a run"
    assert list(tmp_path.rglob("escaped")) == []


def test_a_catalogue_that_is_down_is_named_and_can_be_resumed(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    catalogue = 'corpus.catalogue={type: local, url: "http://127.0.0.1:9"}'
    ended = launch(*small_run.arguments[:3], "--set", catalogue, "--name", "down", store=tmp_path)
    assert complains(ended, 3).startswith("catalogue http://127.0.0.1:9/catalogue.json: ")
    assert nothing_half_written(tmp_path)
    assert "  failed in search: CatalogueError" in launch("runs", store=tmp_path).out
    status = json.loads(launch("status", "down", "--json", store=tmp_path).out)
    assert [stage["state"] for stage in status["stages"]].count("ran") == 3, "what was finished is kept"
    assert [part["state"] for part in status["parts"]] == ["failed"]


@pytest.fixture
def bad_shelf() -> Iterator[str]:
    """A catalogue whose only textbook is no PDF inside."""
    (question,) = world.draw_questions("dev", world.TARGET, 1, 0)
    entry = {
        "id": "b1",
        "title": "Arithmetic",
        "author": "A. Author",
        "subjects": [{"domain": question.domain, "subdomain": question.subdomain}],
        "license": {"spdx": "CC-BY-4.0", "url": "https://creativecommons.org/licenses/by/4.0/"},
        "category": "textbook",
        "pdf": "/book.pdf",
    }
    catalogue = json.dumps({"data": [entry], "links": {"next": None}}).encode()
    files = {"/book.pdf": b"%PDF-1.7\n" + b"\x00garbage\n" * 400 + b"%%EOF\n"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = files.get(self.path, catalogue)
            self.send_response(200)
            self.send_header("Content-Type", "application/pdf" if self.path in files else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_unreadable_textbook_is_named(launch: Launcher, small_run: SmallRun, tmp_path: Path, bad_shelf: str):
    catalogue = f"corpus.catalogue={{type: local, url: '{bad_shelf}'}}"
    ended = launch(*small_run.arguments[:3], "--set", catalogue, "--name", "bad", store=tmp_path)
    assert complains(ended, 3).startswith("no textbook could be downloaded: ")
    assert nothing_half_written(tmp_path)


def test_a_damaged_artifact_stops_the_run_and_names_the_file(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_store(small_run.root, tmp_path / "store", without=("select", "evaluate"))
    (path,) = (store / "artifacts" / "anchor").glob("*/model.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()  # a hard link of the shared store's file
    path.write_bytes(content)
    ended = launch(*small_run.arguments, "--set", "cotrain.validation_samples=2", store=store)
    assert complains(ended, 3) == f"{path} does not match the digest recorded when it was written"
    assert nothing_half_written(store)


def test_a_stage_that_fails_of_itself_is_named(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    """A labeller is a plug-in: what it raises is not ours."""
    store = copy_store(small_run.root, tmp_path / "store", without=("generate_questions",))
    ended = launch(*small_run.arguments, "--set", "cotrain.question.labeller=os:fspath", store=store)
    said = complains(ended, 3)
    assert said.startswith("stage generate_questions of run small failed: TypeError: ")
    assert nothing_half_written(store)


def test_the_installed_command_ends_the_same_way(tmp_path: Path):
    command = [Path(sys.executable).with_name("infuser"), "run", "missing.yaml"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"INFUSER_STORE": str(tmp_path)})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines() == [
        "infuser: cannot read missing.yaml: No such file or directory",
        "  hint: `infuser configs` lists the shipped configurations",
    ]
