"""Chapters of open textbooks, typeset here, read by several tools and compared with their sources.

    make bench-corpus                                                                # downloads the sources
    .venv/bin/python tests/bench/textbook_bench.py --mirror FOLDER --chapters bits limit --tools infuser kreuzberg

The first table has a row for each tool, the second one for each chapter and tool. `textbook_scores.py` says what is
compared. Debian: texlive-latex-extra texlive-science lmodern ruby-asciidoctor-pdf; typst comes with the tools' Python.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pypdfium2
import textbook_readers
from textbook_scores import score
from textbook_sources import chapters, fetch_chapter, read_truth, typeset_chapter

HERE = Path(__file__).parent
HEAD = "headings, recall / precision | formulas | built up | listing lines, exact / unindented | cells | order | wrong characters"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/textbooks"), help="where sources and PDF files go")
    parser.add_argument("--mirror", type=Path, help="folder with a git folder OWNER+NAME/repo for each book")
    parser.add_argument("--readers", type=Path, default=Path(".venv-readers/bin/python"), help="Python of the tools")
    parser.add_argument("--chapters", nargs="*", help="names of textbooks.json; all by default")
    parser.add_argument("--tools", nargs="*", default=list(textbook_readers.READERS))
    options = parser.parse_args(arguments)
    # Not resolved: a virtual environment's Python is a link.
    readers, folder = options.readers.absolute(), options.folder.absolute()
    truths, files = {}, {}
    for chapter in chapters():
        if not options.chapters or chapter.name in options.chapters:
            path = fetch_chapter(chapter, folder, options.mirror)
            truths[chapter.name] = read_truth(chapter, path)
            pdf = typeset_chapter(chapter, path, readers)
            files[chapter.name] = pdf.replace(folder / f"{chapter.name}.pdf")
    pages = {name: len(pypdfium2.PdfDocument(path)) for name, path in files.items()}
    details = []
    print(f"| tool | {HEAD} | pages/CPU-s | MB |\n{'|---' * 10}|")
    for tool in options.tools:
        out = folder / tool
        out.mkdir(exist_ok=True)
        command = [sys.executable if tool == "infuser" else readers, HERE / "textbook_readers.py", tool, out]
        done = subprocess.run(
            [*command, *files.values()],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        )
        if done.returncode:
            print(f"| {tool} | did not run: {done.stderr.strip().splitlines()[-1]} |")
            continue
        run = json.loads(done.stdout.splitlines()[-1])
        scores = {name: score((out / f"{name}.md").read_text(), truth) for name, truth in truths.items()}
        speed = sum(pages.values()) / sum(run["seconds"].values())
        print(f"| {tool} | {cells_of(sum(scores.values(), Counter()))} | {speed:.0f} | {run['peak']:.0f} |", flush=True)
        for name, each in scores.items():
            details.append(
                f"| {name} | {tool} | {cells_of(each)} | {pages[name] / run['seconds'][name]:.0f} | {pages[name]} |"
            )
    print(f"\n| chapter | tool | {HEAD} | pages/CPU-s | pages |\n{'|---' * 11}|", *details, sep="\n")
    return 0


def cells_of(total: Counter[str]) -> str:
    """The cells of HEAD, in percent."""

    def share(part: str, whole: str = "", digits: int = 1) -> str:
        of = total[whole or f"{part} of"]
        return f"{100 * total[part] / of:.{digits}f}" if of else "-"

    marks = f", {total['marks']} marks" if total["marks"] else ""
    headings, lines = share("headings", "headings read"), share("lines unindented", "lines of")
    cells = [
        f"{share('headings')} / {headings}",
        share("formulas") + marks,
        share("built"),
        f"{share('lines')} / {lines}",
    ]
    return " | ".join([*cells, share("cells"), share("order"), share("errors", "characters", 2)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
