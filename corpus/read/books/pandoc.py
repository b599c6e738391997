"""pandoc as a limited child process: one part of a book to plain Markdown with LaTeX formulas, cleaned by a filter.

pandoc is free software under the GPL 2 or later: it is run as a program of its own and never linked.
"""

import functools
import importlib.util
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.errors import DocumentError
from infuser_core.system import child

FILTER = Path(__file__).with_name("clean.lua")
WRITER = "commonmark+tex_math_dollars+pipe_tables+strikeout+footnotes"
WITHOUT = "pandoc is not installed: pip install 'infuser[formats]', or pandoc 3.9 or later on the PATH"
HEAP = "-M1536m"
"""Largest heap of pandoc's run-time system."""
RESIDENT_BYTES = 2 << 30
"""Resident memory at which a pandoc process is ended, bytes."""
ANSWER_BYTES = 256 << 20
SKIPPED = "markup"
SKIP = re.compile(r"^\[INFO\] Skipped '(?P<text>.*?)' at (?:chunk )?line \d+", re.MULTILINE | re.DOTALL)
PLAIN = re.compile(r"\\(?P<name>[A-Za-z]+)\s*\{[^{}\\]*[^\W\d_][^{}\\]*\}$")
SLASHED = re.compile(r"\\(?P<name>nicefrac|sfrac|unitfrac)\s*\{[^{}]*\}\s*\{[^{}]*\}$")
"""A fraction within a sentence."""
_NO_TEXT = (
    "addcontentsline begin bibliography bibliographystyle color documentclass end fontfamily fontsize glsadd "
    "graphicspath hspace hypersetup include includegraphics index input label markboth markright nocite pagenumbering "
    "pagestyle pdfbookmark selectlanguage setcounter setlength thispagestyle usefont usepackage vspace"
)
NO_TEXT = frozenset(_NO_TEXT.split())
"""Commands whose argument is not printed; without `begin` every formula of a part would become its words."""
APART = re.compile(r"(\n\n) *<!-- -->\n\n|\$<!-- -->(?=\d)")
"""Pandoc's mark between two lists, or between a formula and a number, which a program needs to tell them apart."""
_SIGNS = (
    "acute bar bm boldsymbol breve check ddot dot grave hat mathbb mathbf mathcal mathfrak mathit mathring mathrm "
    "mathsf mathtt overline tilde vec widehat widetilde"
)
SIGNS = frozenset(_SIGNS.split())
"""Commands of formulas: one that stands outside by mistake would lose its sign in every formula of a part."""
MARK = "REMOVED "
"""Begin of the lines in which the filter tells what it took out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A piece of a book that is not in its Markdown."""

    reason: str
    """navigation, licence, image, markup, pseudocode, unreadable or unused."""
    text: str
    """The piece; a file's name and what was said of it where a whole part is missing."""
    size: int = 0
    """Bytes of such a part; 0 where nobody read it."""


def program() -> str:
    """Path of pandoc: that of the wheel `pypandoc_binary`, else the one on the PATH; empty without either."""
    found = importlib.util.find_spec("pypandoc")
    inside = Path(found.origin).parent / "files" / "pandoc" if found and found.origin else None
    return str(inside) if inside and inside.is_file() else shutil.which("pandoc") or ""


@functools.cache
def version() -> str:
    """Version of the pandoc that is used; empty without one."""
    path = program()
    if not path:
        return ""
    said = child.run([path, "--version"], wall_seconds=60.0).out.decode(errors="replace")
    return said.partition("\n")[0].removeprefix("pandoc ").strip()


def write(content: bytes, reader: str, *, depth: int, seconds: float) -> tuple[str, list[Cut]]:
    """One part as Markdown, its headings pushed down by `depth`, and what was taken out of it.

    pandoc opens no file: what a text names is not read.

    Raises DocumentError where pandoc is missing, refuses the text or breaks a limit.
    """
    path = program()
    if not path:
        raise DocumentError(WITHOUT, hint="the text of other formats is read by it")
    words = [
        path,
        "--verbose",
        "--sandbox",
        "--from",
        reader,
        "--to",
        WRITER,
        "--wrap",
        "none",
        "--lua-filter",
        str(FILTER),
        "--metadata",
        f"reader={reader}",
    ]
    ended = child.run(
        [*words, "--shift-heading-level-by", str(depth), "--reference-location", "block", "+RTS", HEAP, "-RTS"],
        wall_seconds=seconds,
        given=content,
        answer_bytes=ANSWER_BYTES,
        resident_bytes=RESIDENT_BYTES,
    )
    if ended.killed:
        raise child.killed("pandoc", ended.status)
    messages = ended.err.decode(errors="replace")
    lines = messages.splitlines()
    if ended.fault or ended.status:
        errors = " ".join(line for line in lines if not line.startswith((MARK, "[WARNING]", "[INFO]", "  ")))
        reason = ended.fault or " ".join(errors.split())[: child.REASON_CHARS] or f"exit status {ended.status}"
        raise DocumentError(f"pandoc: {reason}", hint="see the file with pandoc by hand")
    cuts = [Cut(**json.loads(line[len(MARK) :])) for line in lines if line.startswith(MARK)]
    cuts += [Cut(reason=SKIPPED, text=found["text"]) for found in SKIP.finditer(messages)]
    text = APART.sub(lambda found: found[1] or "$ ", ended.out.decode("utf-8", errors="replace"))
    return text.strip("\n"), cuts


def plain_commands(cuts: Sequence[Cut]) -> bytes:
    """Definitions for commands that pandoc does not know and that set one text, which stays, or a fraction."""
    skipped = [cut.text for cut in cuts if cut.reason == SKIPPED]
    plain = {match["name"] for text in skipped if (match := PLAIN.match(text))} - NO_TEXT - SIGNS
    slashed = {match["name"] for text in skipped if (match := SLASHED.match(text))}
    made = {f"\\newcommand{{\\{name}}}[1]{{#1}}\n" for name in plain}
    return "".join(sorted(made | {f"\\newcommand{{\\{name}}}[2]{{#1/#2}}\n" for name in slashed})).encode()
