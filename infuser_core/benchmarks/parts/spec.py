"""Description of a benchmark: its rows, what they hold, how the paper samples it, and the questions made of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Grading, as_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row stands."""

    source: str
    """Data set's short name, task's folder, or file's stem: whatever tells files of one benchmark apart."""
    number: int
    """Row within its file, 1-based."""


RowReader = Callable[[Mapping[str, Any], Place], Question | None]
"""A row to a question; None for a row that is not part of the benchmark; raises DocumentError naming a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark; the module's `BENCHMARK`."""

    name: str
    """Module name."""
    title: str
    """Name in tables, as the paper prints it."""
    category: str
    """math, general, medical, coding, nano or other."""
    repos: tuple[str, ...]
    """Hugging Face data sets whose rows make it up, in order; empty when it has none."""
    config: str = ""
    """Configuration of the data set, or empty."""
    split: str = "test"
    """Split of the data set."""
    revision: str = "main"
    """Commit of the data sets, where one is known to hold the paper's rows."""
    files: tuple[str, ...] = ()
    """Layouts of the split's files in the data set, the preferred one first: glob patterns, parted by blanks."""
    gated: bool = False
    """Whether the data set asks for terms to be accepted and an access token."""
    rows: int | None = None
    """Questions expected; another number is a warning."""
    samples: int = 1
    """Responses per question (appendix: sampling hyperparameters)."""
    max_tokens: int | None = None
    """Response limit, tokens; None leaves it to the run."""
    verifier: str = ""
    """Verifier of its questions; empty where rows differ."""
    fields: tuple[str, ...] = ()
    """Columns that must be there; alternatives joined by `|`."""
    repeats: bool = False
    """Whether a question may stand in the data twice: `<id>#2` is then kept and announced, else refused."""
    keep: bool = False
    """Whether its questions are kept on disk, because reading the rows takes minutes."""
    read: RowReader | None = None
    """How a row becomes a question; None when the module's `load` makes its own."""


class DataWarning(UserWarning):
    """A benchmark's rows are not those that the paper counted."""


def one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """For `warnings.formatwarning`: one readable line for this project's warnings, Python's own form for others."""
    if issubclass(category, DataWarning):
        return f"warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def question(
    name: str,
    text: str,
    answer: str,
    *,
    verifier: str,
    grading: Grading,
    choices: Sequence[str] = (),
    domain: str = "",
    subdomain: str = "",
) -> Question:
    """One question with its reference answer: the letter where there are choices, the value otherwise."""
    return Question(
        question_id=name,
        text=text,
        choices=list(choices),
        answer=answer,
        verifier=verifier,
        domain=domain,
        subdomain=subdomain,
        document_id="",
        rollout_id="",
        reasoning="",
        grading=as_text(grading),
    )
