"""Scripts of faults: drawn from a seed, written as words that repeat them, shrunk while they still fail."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_SIZES = (1, 1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. Fractions instead of names: the same seed means the same fault after keys have changed."""

    kind: str
    """How something is harmed: `flip`, `truncate`, `kill`."""
    target: str
    """Sort of the file, or role of the process."""
    which: float = 0.0
    """Position of the file among its sort, or of the moment in the run, from 0 to 1."""
    at: float = 0.0
    """Position inside it, from 0 to 1."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.target}:{self.which:g}:{self.at:g}"


Script = tuple[Fault, ...]


def parse(words: str) -> Script:
    """The script in these words, as a failure prints them. Raises ValueError for others."""
    found = []
    for word in words.split():
        kind, target, which, at = word.split(":")
        found.append(Fault(kind=kind, target=target, which=float(which), at=float(at)))
    return tuple(found)


def scripts(
    seed: int, faults: int, together: Mapping[str, Sequence[str]], alone: Mapping[str, Sequence[str]]
) -> Iterator[Script]:
    """Scripts with so many faults in all. Each pair of a kind and its target comes once before one repeats."""
    draw = random.Random(seed)
    pairs = [(kind, target) for kinds in (together, alone) for kind, targets in kinds.items() for target in targets]
    ahead: list[tuple[str, str]] = []
    script: list[Fault] = []
    size = 1
    for number in range(faults):
        ahead = ahead or draw.sample(pairs, len(pairs))
        kind, target = ahead.pop()
        which, at = (round(draw.random(), 4) for _ in range(2))
        fault = Fault(kind=kind, target=target, which=which, at=at)
        if kind in alone:
            yield (fault,)
        else:
            script.append(fault)
        if script and (len(script) == size or number == faults - 1):
            yield tuple(script)
            # A refusal for one of several faults hides what the others would have done.
            script, size = [], draw.choice(_SIZES)


def shrink(script: Script, fails: Callable[[Script], bool]) -> Script:
    """The shortest part of a failing script that still fails when faults are dropped one after another."""
    for fault in script:
        shorter = tuple(each for each in script if each is not fault)
        if shorter and fails(shorter):
            script = shorter
    return script
