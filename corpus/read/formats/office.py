"""Word-processor files: DOCX, ODT and RTF. pandoc converts their formulas (OMML and MathML) to LaTeX."""

from corpus.read.books.format import Format

FORMATS = (
    Format(suffixes=(".docx",), reader="docx", is_binary=True),
    Format(suffixes=(".odt",), reader="odt", is_binary=True),
    Format(suffixes=(".rtf",), reader="rtf"),
)
