"""Times of day: `7:05`, `4:30\text{ p.m.}`, `16:30:10`, `9 AM`, `12 noon`.

`7:05` would be 7/5 as a ratio, so that it would equal `14:10`: two times are compared as times. A half of the day that
one side leaves out is not held against it, as with units; one that both name has to agree.
"""

import re
from dataclasses import dataclass

from infuser_core.verifiers.parts.tokens import Tokens

_TIME = re.compile(r"([01]?\d|2[0-4])(?::([0-5]\d)(?::([0-5]\d))?)?(am|pm|noon|midnight)?")
_PM = {"am": False, "midnight": False, "pm": True, "noon": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """One time of day."""

    seconds: int
    """Seconds since midnight as written, whatever half of the day is named."""
    pm: bool | None
    """Whether it is after noon; None where no half of the day is named."""
    plain: bool
    """Whether it is a number alone, which only another time makes a time."""

    @property
    def day(self) -> int:
        """Seconds since midnight; the half of the day counted where it is named."""
        return self.seconds if self.pm is None else self.seconds % 43_200 + 43_200 * self.pm


def clock(found: Tokens) -> Clock | None:
    """The time of day that the tokens write; None where they write none."""
    if not found or not found[0].lstrip('"')[:1].isdigit():
        return None
    text = "".join(token.lstrip('"') for token in found).lower()
    match = _TIME.fullmatch(re.sub(r"(?<=[apm])\.|\s", "", text))
    if match is None:
        return None
    hours, minutes, seconds, half = match.groups()
    if half and not 0 < int(hours) <= 12:
        return None
    written = 3600 * int(hours) + 60 * int(minutes or 0) + int(seconds or 0)
    return Clock(seconds=written, pm=_PM[half] if half else None, plain=not (minutes or half))


def same_time(found: Tokens, wanted: Tokens) -> bool | None:
    """Whether two times of day are the same; None where a side is none, or both are plain numbers."""
    mine, theirs = clock(found), clock(wanted)
    if mine is None or theirs is None or (mine.plain and theirs.plain):
        return None
    # Beside `9:00` a plain 9 may be anything; beside `9 a.m.` it is the hour.
    if (mine.plain and theirs.pm is None) or (theirs.plain and mine.pm is None):
        return None
    if mine.day == theirs.day:
        return True
    return None in (mine.pm, theirs.pm) and mine.seconds == theirs.seconds
