"""Conversion of a part of a book to Markdown with LaTeX formulas, by pandoc in a resource-limited child process.

pandoc is free software under the GPL 2 or later: it runs as a separate program and is never linked.
"""

import functools
import importlib.util
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus.read.books.latex_numbers import BRACED, OPTION
from corpus.read.doubt import unresolved
from infuser_core.errors import DocumentError
from infuser_core.system import child

FILTER = Path(__file__).with_name("clean.lua")
WRITER = "commonmark+tex_math_dollars+pipe_tables+strikeout+footnotes"
WITHOUT = "pandoc is not installed: pip install 'infuser[formats]', or pandoc 3.9 or later on the PATH"
HEAP = "-M1536m"
"""Option that limits the heap of pandoc's run-time system."""
RESIDENT_BYTES = 2 << 30
"""Resident memory at which a pandoc process is killed, bytes."""
ANSWER_BYTES = 256 << 20
SKIPPED = "markup"
SKIP = re.compile(r"^\[INFO\] Skipped '(?P<text>(?:.|\n(?!\[))*?)' at (?:chunk )?line \d+", re.MULTILINE)
"""A message about markup of LaTeX, which ends before the next message: thousands about tags have another form."""
ARGUMENT = re.compile(BRACED)
COMMAND = re.compile(rf"\\(?P<name>[A-Za-z]+)\*?\s*(?P<option>{OPTION}\s*)?(?P<arguments>(?:{BRACED}\s*)+)$")
"""A command with the arguments that follow it."""
LETTER = re.compile(r"(?<![\\A-Za-z\d])[^\W\d_]")
"""A word outside of the names of commands and of lengths such as `3em`."""
SILENT = re.compile(
    r"index|idx|label|glossary|bookmark|length|space|color(?!box)|counter|^(?:re)?new|^(?:add|def|declare|math|provide|set)",
    re.IGNORECASE,
)
"""Name of a command that files or sets something, and prints nothing, or of one that belongs in a formula."""
SLASHED = frozenset({"nicefrac", "sfrac", "unitfrac"})
"""Fractions within a sentence."""
LAST = re.compile(r"box$|^foreignlanguage$")
"""Name of a command that prints the last of its arguments; the others say how."""
_NO_TEXT = (
    "begin bibliography bibliographystyle captionsetup documentclass end fontfamily fontsize glsadd graphicspath "
    "hypersetup include includegraphics input markboth markright nocite operatorname pagenumbering pagestyle "
    "selectlanguage thispagestyle usefont usepackage"
)
NO_TEXT = frozenset(_NO_TEXT.split())
"""Commands whose argument is not printed; without `begin` every formula of a part would become its words."""
APART = re.compile(r"(\n\n) *<!-- -->\n\n|\$<!-- -->(?=\d)")
"""Comment by which pandoc separates two lists, or a formula and a number, for a parser."""
_SIGNS = (
    "acute bar bm boldsymbol breve check ddot dot grave hat mathbb mathbf mathcal mathfrak mathit mathring mathrm "
    "mathsf mathtt overline tilde vec widehat widetilde"
)
SIGNS = frozenset(_SIGNS.split())
"""Commands of formulas, never redefined for a use outside a formula: every formula of the part would lose the sign."""
MARK = "REMOVED "
"""Beginning of the lines in which the filter reports what it removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A piece of a book that is missing from its Markdown, with the reason."""

    reason: str
    """navigation, licence, image, markup, pseudocode, unreadable, missing or unused."""
    text: str
    """Text of the piece; for a whole part its file's name, with the error if there is one."""
    size: int = 0
    """Bytes of a part that could not be converted; 0 for any other piece."""


def program() -> str:
    """Path of the pandoc program: from the wheel `pypandoc_binary`, else on the PATH; empty without either."""
    spec = importlib.util.find_spec("pypandoc")
    packaged = Path(spec.origin).parent / "files" / "pandoc" if spec and spec.origin else None
    return str(packaged) if packaged and packaged.is_file() else shutil.which("pandoc") or ""


@functools.cache
def version() -> str:
    """Version of the installed pandoc; empty if pandoc is not installed."""
    path = program()
    if not path:
        return ""
    output = child.run([path, "--version"], wall_seconds=60.0).out.decode(errors="replace")
    return output.partition("\n")[0].removeprefix("pandoc ").strip()


def to_markdown(content: bytes, reader: str, *, depth: int, seconds: float) -> tuple[str, list[Omission]]:
    """Convert one part to Markdown, with headings pushed down by `depth` levels; returns what was removed as well.

    pandoc opens no files that the text names. Raises DocumentError if pandoc is missing, rejects the text or exceeds
    a limit.
    """
    path = program()
    if not path:
        raise DocumentError(WITHOUT, hint="it reads the formats other than PDF and Markdown")
    options = f"--verbose --sandbox --from {reader} --to {WRITER} --wrap none --metadata reader={reader}"
    options = f"{options} --shift-heading-level-by {depth} --reference-location block +RTS {HEAP} -RTS"
    process = child.run(
        [path, "--lua-filter", str(FILTER), *options.split()],
        wall_seconds=seconds,
        stdin=content,
        answer_bytes=ANSWER_BYTES,
        resident_bytes=RESIDENT_BYTES,
    )
    if process.was_killed:
        raise child.killed_error("pandoc", process.status)
    messages = process.err.decode(errors="replace")
    lines = messages.splitlines()
    if process.fault or process.status:
        errors = " ".join(line for line in lines if not line.startswith((MARK, "[WARNING]", "[INFO]", "  ")))
        reason = process.fault or " ".join(errors.split())[: child.REASON_CHARS] or f"exit status {process.status}"
        raise DocumentError(f"pandoc: {reason}", hint="run pandoc on the file by hand")
    omissions = [Omission(**json.loads(line[len(MARK) :])) for line in lines if line.startswith(MARK)]
    omissions += [Omission(reason=SKIPPED, text=skip["text"]) for skip in SKIP.finditer(messages)]
    text = APART.sub(lambda mark: mark[1] or "$ ", process.out.decode("utf-8", errors="replace"))
    return text.strip("\n"), omissions


def definitions_for(omissions: Sequence[Omission]) -> bytes:
    """LaTeX definitions of commands that pandoc skipped: those of one argument print it, and some of more arguments.

    What a book prints for several arguments is not known: others become a mark, so that no sentence has a hole.
    """
    definitions = set()
    for skip in (COMMAND.match(omission.text) for omission in omissions if omission.reason == SKIPPED):
        name = skip["name"] if skip else ""
        has_text = skip is not None and (LETTER.search(skip["arguments"]) or name in SLASHED)
        if not skip or not has_text or name in NO_TEXT | SIGNS or SILENT.search(name):
            continue
        first, arguments = 1 + bool(skip["option"]), ARGUMENT.findall(skip["arguments"])
        full = [place for place, argument in enumerate(arguments, first) if argument[1:-1].strip()]
        last = first + len(arguments) - 1
        text = (
            f"#{full[0]}" if len(full) == 1 else f"#{last}" if LAST.search(name) else f"\\textrm{{{unresolved(name)}}}"
        )
        text = f"#{first}/#{last}" if name in SLASHED else text
        definitions.add(f"\\newcommand{{\\{name}}}[{last}]{'[]' * (first - 1)}{{{text}}}\n")
    return "".join(sorted(definitions)).encode()
