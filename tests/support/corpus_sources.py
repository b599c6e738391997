"""Rows of the source registry, and small PDFs."""

import io

from reportlab.pdfgen.canvas import Canvas

from infuser_core.schemas import Source


def pdf_bytes(text: str) -> bytes:
    """A PDF of one page that says `text`."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, invariant=1)
    for line in range(40):
        canvas.drawString(72, 800 - 12 * line, f"{text} {line} " + "words " * 8)
    canvas.save()
    return buffer.getvalue()


PDF = pdf_bytes("A book")


def source(name: str, **changes: object) -> Source:
    """An admitted source with the identifier `name`."""
    fields = dict.fromkeys(("title", "author", "discipline", "category", "licence_evidence", "description"), "")
    fields |= {"licence": "CC-BY-4.0", "source_url": "", "filename": "", "sha256": "", "reason": ""}
    fields |= {"source_id": name, "download_url": f"local:/{name}", "num_bytes": 0, "status": "admitted"}
    return Source(**(fields | changes))
