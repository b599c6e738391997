"""Text of PDF files by one tool: `PYTHON textbook_readers.py TOOL FOLDER PDF...`, run by the Python that has the tool.

Writes FOLDER/NAME.md for each file, and prints JSON: processor seconds of each, and the peak memory in MB. The first file
is read once before, so that no import is timed.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

Read = Callable[[str], str]


def infuser() -> Read:
    from corpus.read.embedded import ReadingConfig, convert

    return lambda path: convert(path, ReadingConfig(max_pages=4000)).markdown


def pypdfium2() -> Read:
    import pypdfium2

    def read(path: str) -> str:
        with pypdfium2.PdfDocument(path) as document:
            return "\n".join(page.get_textpage().get_text_range().replace("\r\n", "\n") for page in document)

    return read


def docling_parse() -> Read:
    from docling_core.types.doc.page import TextCellUnit
    from docling_parse.pdf_parser import DoclingPdfParser

    def read(path: str) -> str:
        pages = DoclingPdfParser(loglevel="fatal").load(path).iterate_pages()
        return "\n".join(cell.text for _, page in pages for cell in page.iterate_cells(unit_type=TextCellUnit.LINE))

    return read


def docling_rs() -> Read:
    # Without its models, which are not in the package, it reads the text layer.
    from docling_rs.mineru.parser import parse

    return lambda path: str(parse(path, tier="flash").markdown())


def kreuzberg() -> Read:
    from kreuzberg import ExtractionConfig, extract_file_sync

    settings = ExtractionConfig(output_format="markdown", use_cache=False)
    return lambda path: extract_file_sync(path, config=settings).content


def marker() -> Read:
    from marker.converters.pdf import PdfConverter
    from marker.models import create_model_dict

    converter = PdfConverter(artifact_dict=create_model_dict())
    return lambda path: converter(path).markdown


READERS = {read.__name__: read for read in (infuser, kreuzberg, docling_rs, docling_parse, pypdfium2, marker)}

if __name__ == "__main__":
    tool, folder, *paths = sys.argv[1:]
    read = READERS[tool]()
    read(paths[0])
    seconds = {}
    for name in map(Path, paths):
        start = time.process_time()
        text = read(str(name))
        seconds[name.stem] = time.process_time() - start
        (Path(folder) / f"{name.stem}.md").write_text(text)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak}))
