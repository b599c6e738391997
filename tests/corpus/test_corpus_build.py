"""A build writes a pool whose rows tile their sources, says why a source gave nothing, and goes on after a kill."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from places import ROOT

from corpus.build import BuildConfig, build
from corpus.chunk.judge import ModelJudge
from corpus.find import intake
from corpus.find.intake import from_files, without_twins
from corpus.model_reply import KeptChat, in_batches
from corpus.pool import DISCARDED, DOCUMENTS, SOURCES, Discarded, PoolSource, markdown_name, read_documents
from corpus.source_steps import SourceConfig
from infuser_core.config.corpus import ChunkSettings
from infuser_core.engines.fake import ScriptedChat
from infuser_core.engines.protocols import Messages
from infuser_core.prompts.load import Template
from infuser_core.store.tables import read_rows

SMALL = BuildConfig(source=SourceConfig(chunk=ChunkSettings(min_tokens=5, max_tokens=40)))


def book(name: str, sections: int = 4) -> str:
    parts = [
        f"## {name} {n}\n\nA sentence about {name} and the number {n}. Another one follows." for n in range(sections)
    ]
    return f"Title page\n\n# {name}\n\n" + "\n\n".join(parts) + "\n\n# Index\n\nterm, 3; other term, 4; and more, 5\n"


def write(folder: Path, **texts: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_bytes(text.encode())
    return [str(folder / f"{name}.md") for name in texts]


def run(sources: list[str], out: Path, config: BuildConfig = SMALL):
    return build(without_twins(from_files(sources)), out, config)


def tables(out: Path):
    return (
        read_documents(out),
        read_rows(out / DISCARDED, Discarded),
        {Path(row.input).name: row for row in read_rows(out / SOURCES, PoolSource)},
    )


def test_documents_and_discards_tile_every_source(tmp_path):
    run(write(tmp_path / "in", a=book("Tides"), b=book("Heat").replace("\n", "\r\n")), tmp_path / "out")
    documents, discarded, sources = tables(tmp_path / "out")
    assert {row.stage for row in discarded} >= {"structure", "chunk"}
    for source in sources.values():
        # As any reader of text files would open it.
        text = (tmp_path / "out" / source.markdown).read_text(encoding="utf-8")
        ours = [row for row in documents if row.source_id == source.source_id]
        spans = sorted((row.start, row.end) for row in [*ours, *discarded] if row.source_id == source.source_id)
        assert ours and all(row.text == text[row.start : row.end] for row in ours)
        assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])] and spans[-1][1] == len(text)


def test_the_markdown_is_named_by_the_source():
    digest = f"sha256:{'a' * 64}"
    assert markdown_name(digest) == f"{digest}.md"
    name = markdown_name("url:https://x.org/a b/../c?d=e")
    assert "/" not in name and unquote(name.removesuffix(".md")) == "url:https://x.org/a b/../c?d=e"
    assert len(markdown_name("url:" + "x" * 500).encode()) < 255


def test_a_second_build_does_nothing_and_a_changed_source_is_done_alone(tmp_path):
    sources, out = write(tmp_path / "in", a=book("Tides"), b=book("Heat")), tmp_path / "out"
    assert run(sources, out).changed
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert not run(sources, out).changed
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == stamps
    write(tmp_path / "in", b=book("Light"))
    assert run(sources, out).changed
    kept = {path for path in stamps if path.exists() and path.stat().st_mtime_ns == stamps[path]}
    assert sum("pages" in path.parts for path in kept) == 2
    assert {row.header_path.split(" > ")[0] for row in read_documents(out)} == {"Tides", "Light"}
    assert len(list((out / "markdown").iterdir())) == 2


def test_every_bad_source_has_its_reason_and_nothing_is_lost(tmp_path):
    (sources := write(tmp_path / "in", good=book("Tides"), twin=book("Tides"), tiny="two words\n", empty=""))
    bad = {"latin.md": b"caf\xe9 au lait", "page.pdf": b"<html>log in</html>", "cut.pdf": b"%PDF-1.4\n1 0 obj\n"}
    for name, data in bad.items():
        (tmp_path / "in" / name).write_bytes(data)
        sources.append(str(tmp_path / "in" / name))
    run([*sources, str(tmp_path / "nowhere.pdf")], tmp_path / "out")
    rows = tables(tmp_path / "out")[2]
    reasons = {name: (row.stage, row.reason.split(":")[0].split(" ")[0]) for name, row in rows.items() if row.reason}
    assert reasons == {
        "twin.md": ("intake", "duplicate"),
        "tiny.md": ("chunk", "no"),
        "empty.md": ("intake", "empty"),
        "latin.md": ("convert", "not_utf8"),
        "page.pdf": ("convert", "not_pdf"),
        "cut.pdf": ("convert", "truncated"),
        "nowhere.pdf": ("intake", "missing"),
    }
    assert rows["good.md"].status == "admitted" and rows["good.md"].licence == intake.GIVEN
    assert rows["good.md"].sha256 == hashlib.sha256(book("Tides").encode()).hexdigest()


def picky(messages: Messages) -> str:
    """Keeps what names an even number."""
    keep = any(f"number {n}" in messages[-1]["content"] for n in (0, 2))
    return f'{{"keep": {str(keep).lower()}, "reason": "even or odd"}}'


def test_judged_chunks_are_kept_or_stay_with_their_reason(tmp_path):
    asked: list[Messages] = []

    def reply(messages: Messages) -> str:
        asked.append(messages)
        return picky(messages)

    def config(work: Path) -> BuildConfig:
        chat = KeptChat(name="picky", identity="1", ask=in_batches(lambda: ScriptedChat(reply=reply)), folder=work)
        judge = ModelJudge(model=chat, template=Template(name="t", system="", user="{text}"), max_tokens=9)
        return BuildConfig(judge=judge, source=SourceConfig(chunk=ChunkSettings(min_tokens=5, max_tokens=24)))

    sources = write(tmp_path / "in", a=book("Tides"))
    run(sources, tmp_path / "out", config(tmp_path / "replies"))
    documents, discarded, _ = tables(tmp_path / "out")
    dropped = [row for row in discarded if row.stage == "judge"]
    assert documents and dropped and all(row.reason == "even or odd" and row.response for row in dropped)
    assert len(asked) == len(documents) + len(dropped)
    run(sources, tmp_path / "out", config(tmp_path / "replies"))
    assert len(asked) == len(documents) + len(dropped)


@pytest.mark.parametrize("point", ["build:converted:2", "build:chunked:2"])
def test_a_killed_build_goes_on_where_it_was(tmp_path, point):
    sources, out = write(tmp_path / "in", a=book("Tides"), b=book("Heat"), c=book("Light")), tmp_path / "out"
    command = [sys.executable, "-m", "flows.cli.main", "corpus", "build", *sources, "--workers", "1", "--out", str(out)]
    killed = subprocess.run(command, cwd=ROOT, env={**os.environ, "INFUSER_CRASH_AT": point}, capture_output=True)
    assert killed.returncode == -9 and not (out / DOCUMENTS).exists()
    stamps = {path: path.stat().st_mtime_ns for path in (out / ".work").rglob("*.parquet")}
    assert stamps
    run(sources, out)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    run(sources, tmp_path / "other")
    assert read_documents(out) == read_documents(tmp_path / "other")
