"""The corpus commands end to end: exit codes, JSON, one line for a mistake, addresses and catalogues."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from places import ROOT

from flows.cli.main import main

TEXT = "# Tides\n\n" + "\n\n".join(f"## Part {n}\n\n" + "The moon pulls at the sea. " * 60 for n in range(3))


@pytest.fixture
def infuser(tmp_path, monkeypatch, capfd) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A corpus command in this process, with its exit code and what it printed."""
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["infuser", "corpus", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return subprocess.CompletedProcess([], int(ended.value.code or 0), said.out, said.err)

    return run


def test_build_audit_and_both_conversions_follow_each_other(infuser, tmp_path):
    (tmp_path / "a.md").write_text(TEXT)
    built = infuser("build", "--source", tmp_path / "a.md", tmp_path / "none.pdf", "--out", tmp_path / "o", "--json")
    facts = json.loads(built.stdout)
    assert built.returncode == 0 and facts["documents"] == 3 and facts["rejected_sources"] == 1
    assert "judge: rules-9" in (tmp_path / "o" / "report.md").read_text()
    made = infuser("convert", tmp_path / "o", "--format", "documents-json", "--out", tmp_path / "d.json")
    assert made.returncode == 0 and len(json.loads((tmp_path / "d.json").read_text())) == 3
    assert infuser("convert", tmp_path / "d.json", "--out", tmp_path / "p").returncode == 0
    told = infuser(
        *("audit", "--pool", tmp_path / "p" / "documents.parquet", "--reference", tmp_path / "d.json"),
        *("--mode", "exact", "--out", tmp_path / "audit", "--json"),
    )
    assert json.loads(told.stdout)["matched_documents"] == 3


def test_nothing_usable_ends_with_three_and_one_line(infuser, tmp_path):
    (tmp_path / "zero.pdf").touch()
    done = infuser("build", "--source", tmp_path / "zero.pdf", "--out", tmp_path / "o")
    lines = done.stderr.splitlines()
    assert done.returncode == 3 and lines[0].endswith("zero.pdf: empty: the file has no bytes") and len(lines) == 2
    assert (tmp_path / "o" / "sources.parquet").is_file()


def test_mistakes_are_named(infuser, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.md").write_text(TEXT)
    (tmp_path / "part.yaml").write_text("corpus: {judge_tokens: 9}\n")
    (tmp_path / "odd.parquet").write_text("no parquet")
    for arguments, code in (
        (("build", "--out", tmp_path / "o"), 2),
        (("build", tmp_path / "empty", "--out", tmp_path / "o"), 2),
        (("build", tmp_path / "a.md", "--search", "--out", tmp_path / "o"), 2),
        (("build", tmp_path / "a.md", "--judge", "odd", "--out", tmp_path / "o"), 2),
        (("build", tmp_path / "a.md", "--config", tmp_path / "part.yaml", "--out", tmp_path / "o"), 2),
        (("build", tmp_path / "nowhere.pdf", "--out", tmp_path / "o"), 2),
        (("audit", "--pool", tmp_path, "--reference", tmp_path, "--mode", "odd", "--out", tmp_path / "o"), 2),
        (("audit", "--pool", tmp_path / "nowhere", "--reference", tmp_path, "--out", tmp_path / "o"), 3),
        (("convert", tmp_path / "empty", "--out", tmp_path / "p"), 2),
        (("convert", tmp_path / "a.md", "--out", tmp_path / "p"), 2),
        (("convert", tmp_path / "odd.parquet", "--out", tmp_path / "p"), 3),
        (("convert", tmp_path, "--format", "odd", "--out", tmp_path / "o"), 2),
        (("convert", tmp_path / "odd.parquet", "--format", "documents-json", "--out", tmp_path / "x.json"), 3),
    ):
        done = infuser(*arguments)
        lines = done.stderr.splitlines()
        assert done.returncode == code and lines[0].startswith("infuser: ") and "hint: " in lines[-1], done.stderr


def test_an_address_is_fetched_once(infuser, tmp_path):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "a.md").write_text(TEXT)
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "web"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/a.md"
        first = infuser("build", "--source", url, "--out", tmp_path / "o", "--json")
        second = infuser("build", "--source", url, "--out", tmp_path / "o", "--json")
        server.shutdown()
    assert json.loads(first.stdout)["documents"] == 3 and asked.count("/a.md") == 1
    assert json.loads(second.stdout)["changed"] is False


def test_a_configuration_alone_searches_its_catalogues_judges_and_audits(infuser, tmp_path):
    values = yaml.safe_load((ROOT / "configs" / "nano.yaml").read_text())
    values["corpus"]["judge"] = {"type": "rules"}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(values))
    first = infuser("build", "--config", tmp_path / "small.yaml", "--out", tmp_path / "o", "--json")
    facts = json.loads(first.stdout)
    assert facts["rejected_sources"] > 0 and "given by the user" not in facts["licences"]
    assert facts["admitted_sources"] == 4 and facts["judge"] == "rules-9" and facts["documents"] > 100
    covered = {(row["domain"], row["subdomain"]): row["sources"] for row in facts["coverage"]}
    assert covered[("Mathematics", "clock")] == 4 and all(covered.values()) and ("Mathematics", "") not in covered
    assert [row["name"] for row in facts["audit"]["references"]][:2] == ["dev.jsonl", "validation.jsonl"]
    assert facts["audit"]["read"] == 12 + 96 + 800 and facts["tokenizer"].startswith("the tokenizer of")
    report = (tmp_path / "o" / "report.md").read_text()
    assert "mode: exact" in report and "Planted controls" in report
    again = json.loads(infuser("build", "--config", tmp_path / "small.yaml", "--out", tmp_path / "o", "--json").stdout)
    assert again["changed"] is False and {**again, "changed": True} == facts


def test_a_full_disk_and_a_folder_that_cannot_be_written_are_named(infuser, tmp_path):
    (tmp_path / "a.md").write_text(TEXT * 40)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 14}, {1 << 14}))"
    command = ["corpus", "build", str(tmp_path / "a.md"), "--out", str(tmp_path / "o")]
    script = f"{limit}; import sys; sys.argv = ['infuser', *{command!r}]; from flows.cli.main import main; main()"
    # -B: compiled modules are files too, and would be cut off.
    done = subprocess.run([sys.executable, "-B", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (
        done.returncode == 3
        and done.stderr.startswith("infuser: no space left")
        and "continues from here" in done.stderr
    )
    assert infuser("build", tmp_path / "a.md", "--out", tmp_path / "o").returncode == 0
    (tmp_path / "file").touch()
    for arguments in (
        ("build", tmp_path / "a.md", "--out", tmp_path / "file"),
        ("audit", "--pool", tmp_path / "o", "--reference", tmp_path / "file.json", "--out", tmp_path / "file"),
        ("convert", tmp_path / "file.json", "--out", tmp_path / "file"),
    ):
        (tmp_path / "file.json").write_text(json.dumps([{"doc_id": "1", "text": "Some text."}]))
        done = infuser(*arguments)
        assert done.returncode == 3 and done.stderr.startswith("infuser: cannot write"), done.stderr


def test_a_build_gives_freed_tables_back_to_the_system(tmp_path):
    (tmp_path / "a.md").write_text(TEXT * 4)
    command = ["corpus", "build", str(tmp_path / "a.md"), "--out", str(tmp_path / "o")]
    script = f"import sys; sys.argv = ['infuser', *{command!r}]; from flows.cli.main import main\ntry: main()\nexcept SystemExit: pass\n"
    asked = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    environment = {**os.environ, "INFUSER_STORE": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", script + asked], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == "system", done.stderr
