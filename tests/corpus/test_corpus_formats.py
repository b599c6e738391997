"""Pools of other formats come in whole and go out as they came."""

import json

import pytest
from corpus_rows import document

from corpus.formats import export_pool, import_pool, read_documents
from corpus.pool import DOCUMENTS, write_table
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document

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
