"""The comparison mode keeps the bounds and says which chunks have no place in the source."""

from corpus.chunk.chunk import ChunkConfig
from corpus.chunk.langchain_chunk import chunk_langchain
from corpus.read.page import page_of

TEXT = "# A\n\nOne two three four.\n\n## B\n\n```python\ndef wug():\n    return 1\n```\n\n" + "Five six, seven. " * 20


def test_located_chunks_are_slices_and_the_others_are_counted():
    page = page_of("book", TEXT, num_pages=1, converter="test", reason="")
    result = chunk_langchain(page, lambda text: len(text.split()), ChunkConfig(min_tokens=2, max_tokens=20), "d")
    located = [row.document for row in result.chunks if row.document.start >= 0]
    assert all(page.markdown[d.start : d.end] == d.text for d in located)
    assert len(located) == result.num_located and result.num_located + result.num_unlocated == len(result.chunks)
    assert result.num_located and result.num_unlocated
    assert all(row.document.num_tokens <= 20 for row in result.chunks)
    assert {row.document.header_path for row in result.chunks} == {"A", "A > B"}
