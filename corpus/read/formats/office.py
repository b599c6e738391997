"""Word processors' files: DOCX, ODT, RTF. Their formulas are OMML and MathML, which pandoc turns into LaTeX."""

from corpus.read.books.format import Format

FORMATS = (
    Format(suffixes=(".docx",), reader="docx", is_binary=True),
    Format(suffixes=(".odt",), reader="odt", is_binary=True),
    Format(suffixes=(".rtf",), reader="rtf"),
)
