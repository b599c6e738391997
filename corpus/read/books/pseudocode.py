"""Pseudocode in LaTeX books: algorithms as listings below their captions, one statement per line."""

import re

from corpus.read.books.statements import Commands, Statements, closed, commands

RAW = r"(?:verbatim|Verbatim|lstlisting|minted|comment)"
PLACES = re.compile(
    r"(?P<kept>(?<!\\)(?:\\\\)*%[^\n]*|\\verb\*?(?P<sign>[^A-Za-z\s*])[^\n]*?(?P=sign)"
    rf"|\\begin\{{(?P<raw>{RAW})\}}(?:(?!\\begin\{{(?P=raw)\}}).)*?\\end\{{(?P=raw)\}})"
    r"|\\begin\{(?P<name>algorithm(?:ic|2e)?\*?)\}(?:\s*\[[^\]]*\])?(?P<body>(?:(?!\\begin\{(?P=name)\}).)*?)\\end\{(?P=name)\}",
    re.DOTALL,
)
"""Environments of algorithms, outside of comments and listings."""
FRAMED = re.compile(rf"\\begin\{{(?:algorithmic|{RAW})")
"""Listings in a float, which are not of algorithm2e."""
COMMENT = re.compile(r"(?m)^[ \t]*%.*\n|(?<!\\)((?:\\\\)*)%.*$")
CAPTION = re.compile(r"\\(?:caption\*?|captionof\{algorithm\}|TitleOfAlgo)\s*(?:\[[^\]]*\]\s*)?\{")
LABEL = re.compile(r"\\label\{[^{}]*\}")
STATEMENT = re.compile(r"\\newtheorem\*?\{algorithm\}")
"""A book whose algorithms are numbered like theorems, with sentences inside."""
INNER = re.compile(
    r"\\\(.*?\\\)|(?<!\\)(?:\$.*?(?<!\\)\$|\\\[.*?\\\])|\\begin\{(?P<name>\w+\*?)\}.*?\\end\{(?P=name)\}", re.DOTALL
)
"""Formulas and environments inside of a float."""
SIGN = re.compile(
    r"\\;|\\(?:Kw|SetKw|SetAlgo)[A-Z]|\\(?:[ul]|l?e)?(?:If|While|For|ForEach|ForAll|Repeat|Switch)\s*[({]"
)
"""Commands of algorithm2e alone, outside of these; without one a float is a frame around any text."""


def listed(text: str) -> str:
    """The text, its algorithms written as listings; one whose braces do not match stays as it is."""
    if r"\begin{algorithm" not in text:
        return text
    return _listed(text, commands(text), STATEMENT.search(text) is None)


def _listed(text: str, known: Commands, floats: bool) -> str:
    return PLACES.sub(lambda found: found[0] if found["kept"] else _environment(found, known, floats), text)


def _environment(found: re.Match[str], known: Commands, floats: bool) -> str:
    body = found["body"]
    try:
        if found["name"].startswith("algorithmic"):
            return _listing(Statements(_bare(body), known, in_braces=False))
        if floats:
            return _float(body, known) or found[0]
    except (ValueError, RecursionError):
        return found[0]
    start, stop = (edge - found.start() for edge in found.span("body"))
    return found[0][:start] + _listed(body, known, floats) + found[0][stop:]


def _float(body: str, known: Commands) -> str:
    """The captions of a float, and what it frames; empty where it has neither captions nor statements."""
    framed, said = FRAMED.search(body), ""
    text = body if framed else _bare(body)
    while caption := CAPTION.search(text):
        inner, end = closed(text, caption.end())
        said += f"\n\nAlgorithm: {LABEL.sub('', inner).strip()}\n\n"
        text = text[: caption.start()] + text[end:]
    is_code = not framed and SIGN.search(INNER.sub("", text))
    made = _listing(Statements(text, known, in_braces=True)) if is_code else _listed(text, known, True)
    return f"{said}{made}\n\n" if said or made != text else ""


def _bare(text: str) -> str:
    """Code without comments for its authors and without labels."""
    return LABEL.sub("", COMMENT.sub(lambda found: found[1] or "", text))


def _listing(code: Statements) -> str:
    return "\n\n\\begin{verbatim}\n" + "\n".join(code.lines) + "\n\\end{verbatim}\n\n" if code.lines else ""
