"""Exceptions and warnings that users can see; helpers that word their messages and suggest similar names.

Each error names the value at fault and a remedy.
"""

import reprlib
from collections.abc import Iterable, Sequence

NUMBER = "[0-9]{1,9}"
"""Pattern of a whole number in an argument or an environment variable: one to nine ASCII digits."""
_MOST_NAMES = 20
_MOST_CHARS = 300
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


class InfuserError(Exception):
    """Base class of all user-facing errors: a one-line message, a hint, and the exit code of the command."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def abbreviate(value: object) -> str:
    """Shorten a value's repr for an error message."""
    text = _REPR.repr(value)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."


def quantity(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun in the singular or the plural, such as `1 book` or `2 books`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def closest_names(word: str, names: Iterable[str]) -> list[str]:
    """Up to three names spelled like `word`, the most similar first."""
    # Imported here: needed only after a misspelling.
    from difflib import get_close_matches

    return get_close_matches(word[:200], list(names), n=3, cutoff=0.6)


def did_you_mean(candidates: Sequence[str]) -> str:
    """Beginning of a hint, "did you mean A or B? "; empty without candidates."""
    return f"did you mean {' or '.join(candidates)}? " if candidates else ""


def match_name(word: str, names: Iterable[str], *, kind: str, where: str = "") -> str:
    """The name that equals `word`, or else the only name that begins with it.

    Raises UsageError if no name or more than one matches. `kind` and `where` word its message.
    """
    names = list(names)
    matches = [word] if word in names else names_starting_with(word, names)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{len(matches)} {kind}s begin with {word[:80]}", hint=f"name one: {_join_names(matches)}")
    listing = f"known: {_join_names(names)}" if names else "there is none yet"
    raise UsageError(f"no {kind} named {word[:80]}{where}", hint=f"{did_you_mean(closest_names(word, names))}{listing}")


def names_starting_with(word: str, names: Iterable[str]) -> list[str]:
    """Names that begin with `word`; no names if `word` is empty."""
    return [name for name in names if word and name.startswith(word)]


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


class ConfigError(InfuserError, ValueError):
    """An invalid configuration: an unknown key, a bad value, or settings that do not work together."""

    exit_code = 2


class UsageError(InfuserError, ValueError):
    """Invalid arguments of a command, such as the name of a run that does not exist."""

    exit_code = 2


class MalformedInputError(InfuserError, ValueError):
    """Part of the input could not be read; the rest was processed."""

    exit_code = 1


class StoreError(InfuserError, OSError):
    """The artifact store cannot be read or written."""


class UnwritableStoreError(StoreError):
    """The store's folder is not writable: the user must choose another folder."""

    exit_code = 2


class MissingArtifactError(StoreError):
    """An artifact is not in the store."""


class PrunedError(StoreError):
    """A required file was pruned: retention removed it from its artifact to free disk space."""

    def __init__(self, message: str, *, hint: str = "", key: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key


class DamagedArtifactError(StoreError):
    """A committed artifact no longer matches its recorded digest."""


class CatalogueError(InfuserError, ConnectionError):
    """A textbook catalogue cannot be reached, or its response has an unknown format."""


class DocumentError(InfuserError, ValueError):
    """A source file cannot be read, converted or chunked."""


class CheckpointError(InfuserError, ValueError):
    """A checkpoint is missing a part that training needs."""


class EngineError(InfuserError, RuntimeError):
    """A sampler, trainer or worker failed or cannot carry out a request."""


class KilledProcessError(InfuserError, RuntimeError):
    """A helper process was killed from outside: by a person, or by the operating system when memory ran out.

    The input is not at fault, so the work is retried.
    """


class StageError(InfuserError, RuntimeError):
    """A stage of the run failed; resuming starts at this stage."""


class BusyRunError(InfuserError, RuntimeError):
    """Another running process is executing the run."""

    exit_code = 2


class InfuserWarning(UserWarning):
    """Base class of this project's warnings: shown as one line, and written to a run's log."""


class DataWarning(InfuserWarning):
    """A warning about data or about what a run learns from it, such as answer keys that are mostly wrong."""


class Terminated(InfuserError, RuntimeError):
    """The run was ended by SIGTERM."""

    exit_code = 143


class EngineWarning(InfuserWarning):
    """An engine has a problem that does not change results, such as a slower code path for this model."""
