"""Pools are written source by source, merged byte for byte, and imported and exported unchanged."""

import json
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_rows import document
from typer.testing import CliRunner

from corpus import build
from corpus.build import BuiltSource
from corpus.find.named_sources import SourceItem
from corpus.formats import export_pool, import_pool, read_documents
from corpus.pool import DOCUMENTS, FACTS, MARKDOWN, markdown_name, read_sources, write_table
from corpus.report import ReportInputs
from flows.cli.main import app
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document, Page, Source
from infuser_core.store.tables import read_rows

AUTHORS = [
    {"doc_id": 7, "content": "First \u2028 text", "field": "Physics", "source_pdf": "a.pdf", "token_count": 3},
    {"doc_id": "x", "text": "Second", "chunk_idx": 4, "prompt_type": "free_form", "own": {"deep": [1, None]}},
]


def test_documents_json_goes_out_as_it_came(tmp_path):
    (tmp_path / "documents.json").write_text(json.dumps(AUTHORS))
    facts = import_pool(tmp_path / "documents.json", tmp_path / "pool")
    assert facts["kept_beside"] == ["chunk_idx", "own"] and facts["counted_here"] == 1
    first, second = read_documents(tmp_path / "pool")
    assert (first.document_id, first.domain, first.source_id, first.num_tokens) == ("7", "Physics", "a.pdf", 3)
    assert (second.prompt_type, second.text, second.num_tokens) == ("free_form", "Second", 1)
    export_pool(tmp_path / "pool", "documents-json", tmp_path / "back.json")
    assert json.loads((tmp_path / "back.json").read_text()) == AUTHORS


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_our_rows_survive_every_format(tmp_path, name):
    text = "# T\n\nBody \U00020000"
    fields = {"start": 5, "end": 5 + len(text), "num_tokens": 4, "domain": "Physics", "prompt_type": "direct"}
    row = document("d", text, header_path="A > B", **fields)
    write_table(tmp_path / "pool" / DOCUMENTS, [row], Document)
    export_pool(tmp_path / "pool", name.partition(".")[2], tmp_path / name)
    import_pool(tmp_path / name, tmp_path / "again")
    assert read_documents(tmp_path / "again") == [row]
    export_pool(tmp_path / "pool", "documents-json", tmp_path / "d.json")
    import_pool(tmp_path / "d.json", tmp_path / "third")
    assert read_documents(tmp_path / "third") == [row]


def test_chunk_files_come_in(tmp_path):
    chunks = [{"page_content": "Body", "metadata": {"Header 1": "A", "Header 3": "C", "token_count": 9, "k": 1}}]
    (tmp_path / "b.chunks.json").write_text(json.dumps(chunks))
    import_pool(tmp_path / "b.chunks.json", tmp_path / "chunks")
    (row,) = read_documents(tmp_path / "chunks")
    assert (row.header_path, row.num_tokens, row.source_id, row.document_id) == ("A > C", 9, "b", "b-0")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"doc_id": 1, "content": "a"}, {"doc_id": "1", "content": "b"}], "two rows have the id '1'"),
        ([{"doc_id": 1}], "no content"),
        ([{"content": "a"}], "no doc_id"),
        ([{"doc_id": 1, "content": "a", "prompt_type": "odd"}], "prompt_type 'odd'"),
        ([{"question_id": "q", "question_text": "?", "ground_truth": "b"}], "questions, and no documents"),
        ([], "no rows"),
    ],
)
def test_what_is_no_pool_is_named(tmp_path, rows, said):
    (tmp_path / "d.json").write_text(json.dumps(rows))
    with pytest.raises(DocumentError, match=said):
        import_pool(tmp_path / "d.json", tmp_path / "pool")
    assert not (tmp_path / "pool").exists()


CHAPTER = "# {name}\n\n" + "\n\n".join(
    f"## Section {number} of {{name}}\n\n"
    + " ".join(
        f"Rule {number}.{line} of {{name}} adds {line} to the reading of every dial in turn." for line in range(40)
    )
    for number in range(4)
)


def book(folder: Path, name: str) -> Path:
    path = folder / f"{name}.md"
    path.write_text(CHAPTER.format(name=name))
    return path


def build_pool(out: Path, *sources: Path) -> Path:
    words = ["corpus", "build", "--out", str(out), *(word for path in sources for word in ("--source", str(path)))]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return out


def merge(out: Path, *pools: Path) -> dict:
    done = CliRunner().invoke(app, ["corpus", "merge", *map(str, pools), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    empty = tmp_path / "empty.md"
    empty.write_text("")
    return [book(tmp_path, "levers"), book(tmp_path, "lenses"), empty, book(tmp_path, "waves")]


def test_merged_pools_are_the_pool_of_one_build(books: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy.md"
    copy.write_bytes(books[0].read_bytes())
    whole = build_pool(tmp_path / "whole", *books, copy)
    pools = [build_pool(tmp_path / "a", *books[:2]), build_pool(tmp_path / "b", *books[2:], copy)]
    facts = merge(tmp_path / "merged", *pools)
    assert facts["documents"] > 3 and facts["rejected_sources"] == 2
    assert [row.reason for row in read_sources(tmp_path / "merged")][-1] == f"duplicate of {books[0]}"
    files = {path.relative_to(whole) for path in whole.rglob("*") if path.is_file()}
    assert files == {
        path.relative_to(tmp_path / "merged") for path in (tmp_path / "merged").rglob("*") if path.is_file()
    }
    for name in sorted(files):
        assert (tmp_path / "merged" / name).read_bytes() == (whole / name).read_bytes(), name


def test_what_cannot_be_merged_is_refused_with_its_reason(books: list[Path], tmp_path: Path) -> None:
    pool = build_pool(tmp_path / "a", books[0])
    other = build_pool(tmp_path / "b", books[1])
    (other / FACTS).write_text(json.dumps(json.loads((other / FACTS).read_text()) | {"judge": "a model"}))
    for words, told in {
        (pool, other): "judge: 'rules-",
        (pool, tmp_path): "is no pool of `infuser corpus build`",
    }.items():
        done = CliRunner().invoke(app, ["corpus", "merge", *map(str, words), "--out", str(tmp_path / "new")])
        assert done.exit_code and told in str(done.exception)
    done = CliRunner().invoke(app, ["corpus", "merge", str(pool), "--out", str(pool)])
    assert "is not empty" in str(done.exception) and (pool / DOCUMENTS).is_file()


class Rows(list):
    """A list that can be watched."""


def source(name: str) -> Source:
    values = {key: "" for key in Source.__dataclass_fields__} | {"source_id": name, "title": name, "num_bytes": 0}
    return Source(**values)


def test_one_source_at_a_time_is_in_memory(tmp_path: Path):
    names = [f"book{number}" for number in range(5)]
    (tmp_path / MARKDOWN).mkdir()
    rows = {name: replace(document(f"{name}/0", "The kiln burns low."), source_id=name) for name in names}
    alive: list[weakref.ref] = []

    def built() -> Iterator[BuiltSource]:
        for name in names:
            assert sum(ref() is not None for ref in alive) <= 1
            (tmp_path / MARKDOWN / markdown_name(name)).write_text(rows[name].text)
            documents = Rows([rows[name]])
            alive.append(weakref.ref(documents))
            page = Page(source_id=name, markdown="", sha256="", num_pages=1, converter="c", status="ok", reason="",
                        chosen="", page_starts=[])  # fmt: skip
            yield BuiltSource(
                item=SourceItem(source=source(name), path=None, input=name), page=page, documents=documents
            )
            del documents

    facts = build.write_pool(tmp_path, built(), None, ReportInputs(judge="none", tokenizer="rule"))
    assert read_rows(tmp_path / DOCUMENTS, Document) == list(rows.values()) and facts["documents"] == 5
    assert [row.source_id for row in read_sources(tmp_path)] == names
