"""Chunk Markdown as the paper does, with langchain's header splitter, for comparison with our own splitter.

Langchain rewrites text (blank lines, indentation, some characters), so the offsets of a chunk in the source are
searched for afterwards and may not be found.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from corpus.chunk.chunk import PATH_JOINT, PROMPT_TYPE, Chunk, Discard
from corpus.chunk.split import CLAUSE, SENTENCE, Count
from infuser_core.config.corpus import ChunkSettings
from infuser_core.schemas import Document, Page

HEADERS = [("#" * level, str(level)) for level in range(1, 4)]
PARAGRAPH = re.compile(r"\n\s*\n")
NOWHERE = -1


def chunk_langchain(page: Page, count: Count, config: ChunkSettings, domain: str) -> list[Chunk]:
    """Split a converted book at headings of three levels, then by the paper's four-level fallback.

    Returns candidates and discarded chunks. `start` and `end` are NOWHERE if the text of a chunk is not in the source.
    """
    # Imported here because the import takes 0.2 s and few runs use this mode.
    from langchain_text_splitters import MarkdownHeaderTextSplitter

    splitter = MarkdownHeaderTextSplitter(headers_to_split_on=HEADERS, strip_headers=False)
    chunks: list[Chunk] = []
    cursor = 0
    for section in splitter.split_text(page.markdown):
        path = PATH_JOINT.join(str(section.metadata[level]) for _, level in HEADERS if level in section.metadata)
        for text in _fit(section.page_content.strip(), [PARAGRAPH, SENTENCE, CLAUSE], count, config.max_tokens):
            start = page.markdown.find(text, cursor)
            start = start if start >= 0 else page.markdown.find(text)
            cursor = max(cursor, start)
            chunks.append(_row(page, text, start, path, count(text), len(chunks), config, domain))
    return chunks


def _fit(text: str, levels: list[re.Pattern[str]], count: Count, limit: int) -> Iterator[str]:
    """Split a text into parts that fit the limit; each level splits the whole text that it gets, as in the paper."""
    if not text:
        return
    if count(text) <= limit or len(text) == 1:
        yield text
        return
    if not levels:
        half = len(text) // 2
        for part in (text[:half], text[half:]):
            yield from _fit(part.strip(), [], count, limit)
        return
    edges = [0, *(match.end() for match in levels[0].finditer(text)), len(text)]
    run = ""
    for start, end in pairwise(edges):
        if run and count((run + text[start:end]).strip()) > limit:
            yield from _fit(run.strip(), levels[1:], count, limit)
            run = ""
        run += text[start:end]
    yield from _fit(run.strip(), levels[1:], count, limit)


def _row(
    page: Page, text: str, start: int, path: str, tokens: int, number: int, config: ChunkSettings, domain: str
) -> Chunk:
    short = tokens < config.min_tokens
    discard = Discard.TOO_SHORT if short else Discard.TOO_LONG if tokens > config.max_tokens else None
    document = Document(
        document_id=f"{page.sha256[:12]}-lc{number}",
        source_id=page.source_id,
        header_path=path,
        start=start,
        end=start + len(text) if start != NOWHERE else NOWHERE,
        text=text,
        num_tokens=tokens,
        domain=domain,
        prompt_type=PROMPT_TYPE,
    )
    return Chunk(document=document, discard=discard)
