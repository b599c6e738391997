"""PDF files that mean harm or are broken, made for the tests."""

import zlib
from collections.abc import Sequence
from pathlib import Path

from reportlab.lib import pdfencrypt
from reportlab.pdfgen.canvas import Canvas


def raw_pdf(objects: Sequence[bytes], *, root: int = 1) -> bytes:
    """A PDF of the given object bodies, numbered from 1, with a right cross-reference table."""
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, root, start)
    return bytes(out)


def stream(data: bytes, *, filters: int = 0) -> bytes:
    """A stream object, deflated `filters` times."""
    for _ in range(filters):
        data = zlib.compress(data, 9)
    names = b"[" + b" /FlateDecode" * filters + b" ]"
    head = b"<< /Length %d%s >>" % (len(data), b" /Filter " + names if filters else b"")
    return head + b"\nstream\n" + data + b"\nendstream"


FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def one_page(content: bytes) -> list[bytes]:
    """Objects of a document with one page, whose content is object 4."""
    return [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        content,
        FONT,
    ]


def compression_bomb(megabytes: int) -> bytes:
    """A page whose content inflates to so many megabytes of text operators, from a few kilobytes."""
    line = b"BT /F1 9 Tf 50 700 Td (boom boom boom) Tj ET\n"
    block = line * (1 + (1 << 20) // len(line))
    return raw_pdf(one_page(stream(block * megabytes, filters=2)))


def deep_nesting(depth: int) -> bytes:
    """Arrays in arrays, page trees in page trees, and bookmarks in bookmarks."""
    tree = [b"<< /Type /Catalog /Pages 2 0 R /Outlines %d 0 R /X %s >>" % (depth + 3, b"[" * depth + b"]" * depth)]
    tree += [b"<< /Type /Pages /Kids [%d 0 R] /Count 1 >>" % (number + 3) for number in range(depth)]
    tree += [b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] >>" % (depth + 1)]
    tree += [b"<< /Title (a) /First %d 0 R /Last %d 0 R >>" % (depth + 4 + n, depth + 4 + n) for n in range(depth)]
    tree += [b"<< /Title (end) >>"]
    return raw_pdf(tree)


def page_loop() -> bytes:
    """A page tree that contains itself, and a content stream list that does."""
    return raw_pdf([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 9 >>"])


def many_pages(count: int) -> bytes:
    """Very many pages that share one content."""
    kids = b" ".join(b"%d 0 R" % (number + 5) for number in range(count))
    text = b"BT /F1 10 Tf 50 700 Td (One line of text that is printed on each of the very many pages here.) Tj ET"
    fonts = b"/Resources << /Font << /F1 4 0 R >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 3 0 R %s >>" % fonts
    return raw_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count),
            stream(text),
            FONT,
            *[page] * count,
        ]
    )


def encrypted(path: Path) -> None:
    """A file that opens with a password only."""
    canvas = Canvas(str(path), encrypt=pdfencrypt.StandardEncryption("secret", canPrint=0))
    canvas.drawString(72, 700, "Nobody reads this line without the password.")
    canvas.save()
