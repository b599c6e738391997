"""The comparison mode keeps the bounds and says which chunks have no place in the source."""

from corpus.chunk.langchain_chunk import NOWHERE, chunk_langchain
from corpus.read.page import page_of
from infuser_core.config.corpus import ChunkSettings

TEXT = "# A\n\nOne two three four.\n\n## B\n\n```python\ndef wug():\n    return 1\n```\n\n" + "Five six, seven. " * 20


def test_located_chunks_are_slices_and_the_others_are_counted():
    page = page_of("book", TEXT, num_pages=1, converter="test", reason="")
    result = chunk_langchain(page, lambda text: len(text.split()), ChunkSettings(min_tokens=2, max_tokens=20), "d")
    located = [row.document for row in result if row.document.start != NOWHERE]
    assert all(page.markdown[d.start : d.end] == d.text for d in located)
    assert 0 < len(located) < len(result)
    assert all(row.document.num_tokens <= 20 for row in result)
    assert {row.document.header_path for row in result} == {"A", "A > B"}
