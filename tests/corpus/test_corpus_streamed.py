"""A pool is written source by source: the rows of one are gone before the next one comes."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from corpus_rows import document

from corpus import build
from corpus.build import BuiltSource
from corpus.find.named_sources import SourceItem
from corpus.pool import DOCUMENTS, MARKDOWN, markdown_name, read_sources
from corpus.report import ReportInputs
from infuser_core.schemas import Document, Page, Source
from infuser_core.store.tables import read_rows


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
