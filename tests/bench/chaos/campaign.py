"""A campaign of faults: scripts one after another, what came of them by kind of fault, and how to repeat a failure."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import motion
import oracle
from readers import Readers
from script import Script, shrink


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of the faults, by their kind."""

    faults: Counter[str] = field(default_factory=Counter)
    """Faults by kind."""
    fates: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Faults by kind and what came of their script."""
    findings: Counter[str] = field(default_factory=Counter)
    """What must not be, by its kind."""

    def add(self, script: Script, verdict: oracle.Verdict) -> None:
        """A judged script."""
        bad = sorted({finding.kind for finding in verdict.findings})
        for fault in script:
            self.faults[fault.kind] += 1
            for fate in bad or [verdict.fate]:
                self.fates[fault.kind, fate] += 1
        self.findings.update(bad)

    def table(self) -> Iterator[str]:
        """Markdown."""
        fates = (oracle.HARMLESS, oracle.RESTORED, oracle.TOLD, oracle.WRONG, oracle.LOST, oracle.TRACEBACK)
        yield f"| fault | faults | {' | '.join(fates)} |"
        yield "|---|" + "---|" * (len(fates) + 1)
        for kind in [*sorted(self.faults), "all"]:
            chosen = [kind] if kind != "all" else list(self.faults)
            counts = [sum(self.fates[each, fate] for each in chosen) for fate in fates]
            yield f"| {kind} | {sum(self.faults[each] for each in chosen)} | {' | '.join(map(str, counts))} |"

    @property
    def last_line(self) -> str:
        """For scripts that read it."""
        bad = [self.findings[kind] for kind in (oracle.WRONG, oracle.LOST, oracle.TRACEBACK)]
        return "faults={} wrong={} lost={} tracebacks={}".format(self.faults.total(), *bad)


def torment(readers: Readers, chosen: Iterator[Script], *, seconds: float, stopped: float) -> Tally:
    """Do the scripts one after another until they or the time end; print what fails.

    `stopped` is how long a stopped process stands still.
    """
    tally, until = Tally(), time.monotonic() + seconds

    def judge(script: Script) -> oracle.Verdict:
        if script[0].kind in motion.FAULTS:
            return motion.performed(readers.world, script[0], stopped)
        return oracle.damaged(readers.world, readers, script)

    for script in chosen:
        if time.monotonic() > until:
            break
        verdict = judge(script)
        tally.add(script, verdict)
        print(f"{tally.faults.total()} {' '.join(map(str, script))} {verdict.fate}", file=sys.stderr)
        if verdict.findings:
            shortest = shrink(script, lambda part: bool(judge(part).findings))
            if shortest != script:
                verdict = judge(shortest)
            print(f"make chaos ONLY='{' '.join(map(str, shortest))}'  # {', '.join(verdict.harmed)}")
            print(*(f"    {finding.line}" for finding in verdict.findings), sep="\n", flush=True)
    return tally
