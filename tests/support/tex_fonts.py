"""A PDF whose fonts are named as TeX's and give their signs no Unicode value, as many books are."""

from collections.abc import Container, Mapping
from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen

LETTERS = {ord(sign): sign for sign in "ABDZabcduvwxyz"} | {44: "comma", 61: "equal", 43: "plus", 46: "period"}
FONTS: Mapping[str, Mapping[int, str]] = {
    "CMR10": LETTERS | {94: "circumflex", 32: "space", 40: "parenleft", 41: "parenright", 91: "bracketleft"},
    "Text": LETTERS | {5: "g5", 21: "g21", 28: "g28", 146: "g146", 157: "g157"},
    "SFRM1095": {136: "g136"},
    "TeX-tipa10": LETTERS | {53: "five"},
    "Apple": LETTERS | {9: "uni21B5"},
    "Hebrew": {97 + number: f"uni{0x5D0 + number:04X}" for number in range(26)},
    "CMMI10": LETTERS | {11: "alpha", 59: "comma"},
    "CMSY10": {20: "lessequal", 106: "bar", 161: "minus"}
    | {114: "gradient", 39: "similarequal", 104: "angbracketleft", 105: "angbracketright"}
    | {33: "exclam", 55: "seven", 62: "greater", 63: "question"}
    | {123: "paragraph", 124: "club", 125: "diamond", 126: "heart"},
    "MSBM10": {40: "g40", 63: "g63", 82: "R", 126: "g126"},
    "CMEX10": {2: "bracketleftbig", 3: "bracketrightbig", 122: "bracehtipdownleft", 18: "parenleftbigg", 90: "Z"},
}
"""Fonts with the glyphs of their codes."""


def _program(names: list[str]) -> bytes:
    """A font whose glyphs are triangles half as wide as the font's size."""
    builder = FontBuilder(1000, isTTF=False)
    order = [".notdef", *dict.fromkeys(names)]
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap({})
    pen = T2CharStringPen(500, None)
    pen.moveTo((50, 0))
    pen.lineTo((450, 0))
    pen.lineTo((450, 700))
    pen.closePath()
    builder.setupCFF("Triangles", {}, dict.fromkeys(order, pen.getCharString()), {})
    return bytes(builder.font["CFF "].compile(builder.font))


def _values(codes: Mapping[int, str]) -> bytes:
    """A map that gives the codes of a font as its Unicode values."""
    rows = "".join(f"<{code:02x}> <{code:04x}>\n" for code in codes)
    begin = "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <ff> endcodespacerange"
    return f"{begin} {len(codes)} beginbfchar\n{rows}endbfchar endcmap end".encode()


def write_page(path: Path, texts: list[tuple[str, float, float, bytes]], coded: Container[str] = ()) -> Path:
    """One page with pieces of text: font, place in points, and codes, which fonts in `coded` have as values."""
    shown = [f"/{font} 10 Tf 1 0 0 1 {x} {y} Tm <{codes.hex()}> Tj" for font, x, y, codes in texts]
    content = f"BT {' '.join(shown)} ET".encode()
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", b""]
    objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    places = []
    for name, codes in FONTS.items():
        number = len(objects) + 1
        places.append(f"/{name} {number} 0 R")
        program = _program(list(codes.values()))
        named = " ".join(f"{code} /{glyph}" for code, glyph in codes.items())
        objects.append(
            f"<< /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+{name} /FirstChar 0 /LastChar 255 /Widths "
            f"[{'500 ' * 256}] /FontDescriptor {number + 1} 0 R /Encoding << /Differences [{named}] >> "
            f"{f'/ToUnicode {number + 3} 0 R' if name in coded else ''} >>".encode()
        )
        objects.append(
            f"<< /Type /FontDescriptor /FontName /ABCDEF+{name} /Flags 4 /FontBBox [0 0 500 700] /ItalicAngle 0 "
            f"/Ascent 800 /Descent -200 /CapHeight 700 /StemV 80 /FontFile3 {number + 2} 0 R >>".encode()
        )
        objects.append(b"<< /Subtype /Type1C /Length %d >>\nstream\n%s\nendstream" % (len(program), program))
        values = _values(codes)
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(values), values))
    objects[2] = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        f"/Resources << /Font << {' '.join(places)} >> >> >>"
    ).encode()
    path.write_bytes(_file(objects))
    return path


def _file(objects: list[bytes]) -> bytes:
    written, offsets = b"%PDF-1.4\n", []
    for number, value in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, value)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return written + end + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(written))
