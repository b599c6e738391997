"""Every error a user can meet. Each carries the value at fault and the remedy, also into other processes."""

import reprlib
from collections.abc import Iterable, Sequence

NUMBER = "[0-9]{1,9}"
"""A whole number as arguments write it: other digits of Unicode and ten thousand of them are none."""
_SHOWN = 20
_LONGEST = 300
_CUT = reprlib.Repr()
_CUT.maxstring = _CUT.maxother = _CUT.maxlong = 80


class InfuserError(Exception):
    """Base of all user-facing errors: one readable line, then a hint."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def shown(value: object) -> str:
    """A value as messages show it: on one line, and cut."""
    text = _CUT.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Known words that look like this one, the nearest first."""
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    return get_close_matches(word[:200], list(known), n=3, cutoff=0.6)


def guess(found: Sequence[str]) -> str:
    """Words that were perhaps meant, as the beginning of a hint; empty where there are none."""
    return f"did you mean {' or '.join(found)}? " if found else ""


def named(word: str, known: Iterable[str], *, kind: str, where: str = "") -> str:
    """The known name that is `word`, or the only one that begins so. Raises UsageError for none and for several."""
    names = list(known)
    found = [word] if word in names else beginning(word, names)
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found)} {kind}s begin with {word[:80]}", hint=f"name one: {_listed(found)}")
    listed = f"known: {_listed(names)}" if names else "there is none yet"
    raise UsageError(f"no {kind} named {word[:80]}{where}", hint=f"{guess(nearest(word, names))}{listed}")


def beginning(word: str, known: Iterable[str]) -> list[str]:
    """Known names that begin with `word`; none for an empty one."""
    return [name for name in known if word and name.startswith(word)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class ConfigError(InfuserError, ValueError):
    """A configuration key, value or combination that cannot run."""

    exit_code = 2


class UsageError(InfuserError, ValueError):
    """A command was called with arguments that name nothing."""

    exit_code = 2


class MalformedInputError(InfuserError, ValueError):
    """Some of what was given to be read could not be; the rest was answered."""

    exit_code = 1


class StoreError(InfuserError, OSError):
    """The artifact store cannot be read or written as asked."""


class UnwritableStoreError(StoreError):
    """The store that a command is to write into is no folder that it may write: another one has to be named."""

    exit_code = 2


class MissingArtifactError(StoreError):
    """An artifact is not in the store."""


class PrunedError(StoreError):
    """Retention removed a file that is needed now."""

    def __init__(self, message: str, *, hint: str = "", key: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key


class DamagedArtifactError(StoreError):
    """A committed artifact no longer matches its recorded digest."""


class CatalogueError(InfuserError, ConnectionError):
    """A textbook catalogue cannot be reached or answers in an unknown shape."""


class DocumentError(InfuserError, ValueError):
    """A source file cannot be read, converted or chunked."""


class CheckpointError(InfuserError, ValueError):
    """A checkpoint is missing a part that training needs."""


class EngineError(InfuserError, RuntimeError):
    """A sampler or trainer cannot do what it was asked."""


class KilledProcessError(InfuserError, RuntimeError):
    """A helper process was killed from outside: by a person, or by the system for want of memory.

    It says nothing about what the process worked on: the work is tried again.
    """


class StageError(InfuserError, RuntimeError):
    """A stage of the run failed; resuming starts at this stage."""


class BusyRunError(InfuserError, RuntimeError):
    """Another living process holds the run."""

    exit_code = 2


class DataWarning(UserWarning):
    """A benchmark's rows are not those that the paper counted."""


class Terminated(InfuserError, RuntimeError):
    """SIGTERM ended the run."""

    exit_code = 143


class EngineWarning(UserWarning):
    """An engine computes the same in a slower way than it could for another model."""
