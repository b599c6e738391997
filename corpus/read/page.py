"""Page rows: what every converter returns for a source, converted or rejected with its reason."""

import hashlib
from collections.abc import Sequence

from corpus.read.printed import Removed
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page


def page_of(
    source_id: str,
    text: str = "",
    *,
    converter: str,
    reason: str = "",
    num_pages: int = 0,
    chosen: str = "",
    page_starts: Sequence[int] = (),
    math_garbled: Sequence[float] = (),
    removed: Sequence[Removed] = (),
) -> Page:
    """A page row; its status follows from the reason."""
    return Page(
        source_id=source_id,
        markdown=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        num_pages=num_pages,
        converter=converter,
        status="rejected" if reason else "converted",
        reason=reason,
        chosen=chosen,
        page_starts=list(page_starts),
        math_garbled=list(math_garbled),
        removed=[row.text for row in removed],
        removed_for=[row.reason for row in removed],
        removed_pages=[row.page for row in removed],
    )


def reason_of(error: DocumentError) -> str:
    """The reason in the row of a file that could not be parsed."""
    if "password" in error.message.lower():
        return "encrypted: the file needs a password"
    return f"unreadable: {error.message}"
