"""The judge of a damaged store: no other answer, nothing lost, no traceback, and the same bits after the repair."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rest
from crash_points import content, mismatches
from launcher import Finished
from readers import Answer, Readers
from script import Script
from world import KEEP, World, runs_touched

WRONG, LOST, TRACEBACK = "wrong", "lost", "traceback"
HARMLESS, RESTORED, TOLD = "harmless", "restored", "told"
_PAGES = 0.25
"""Share of the scripts after which the report's page is written, too."""
_HARMLESS_LEFTOVERS = ("staging", "pieces", "draft", "damaged", "trash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that must not be."""

    kind: str
    """WRONG, LOST or TRACEBACK."""
    who: str
    """The reader or the step."""
    what: str
    """What it said or did, one line."""

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.kind} {self.who}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a script."""

    findings: Sequence[Finding]
    """What must not be; empty for a script that was survived."""
    fate: str
    """HARMLESS where no reader noticed, RESTORED to the same bits, or TOLD that something is lost."""
    harmed: Sequence[str]
    """Files or processes that were hit."""


def damaged(world: World, readers: Readers, script: Script) -> Verdict:
    """Do damage at rest to a fresh copy, ask every reader, clean up, repair, and compare."""
    world.renew()
    wanted = readers.of(_keys(world, script), page=script[0].which < _PAGES)
    before = readers.undisturbed(wanted)
    world.renew()
    harmed = [path for path in (rest.harm(world.store, fault) for fault in script) if path]
    there = _artifacts(world.store)
    after = readers.ask(wanted)
    findings = [*_answers(before, after), *_collected(world, there)]
    if all(after[name] == before[name] for name in wanted):
        return Verdict(findings=findings, fate=HARMLESS, harmed=harmed)
    restored, problems = _repaired(world, harmed)
    lost = sorted(there.keys() - _artifacts(world.store).keys())
    if len(lost) > 2 * len(harmed):  # one fault hits two artifacts at most
        problems.append(
            Finding(kind=LOST, who="doctor --repair", what=f"{len(lost)} artifacts are gone, e.g. {lost[0]}")
        )
    return Verdict(findings=[*findings, *problems], fate=RESTORED if restored else TOLD, harmed=harmed)


def _keys(world: World, script: Script) -> list[str]:
    """Keys of the artifacts that a script hits."""
    paths = [path for path in (rest.chosen(world.store, fault) for fault in script) if path is not None]
    parts = [path.relative_to(world.store).parts for path in paths]
    return [found[2] for found in parts if found[0] == "artifacts"]


def _answers(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> Iterator[Finding]:
    """Readers that crashed or gave another answer, and a doctor that is content where others are not."""
    content = after["doctor"].code == 0
    for name, answer in after.items():
        if answer.crashed:
            yield Finding(kind=TRACEBACK, who=name, what=_line(answer.code, answer.err))
        elif answer.code == 0 and answer.out != before[name].out and not _may_differ(name, after):
            yield Finding(kind=WRONG, who=name, what=f"another answer: {_difference(before[name].out, answer.out)}")
        elif answer.code and name != "doctor" and not answer.refused:
            yield Finding(kind=WRONG, who=name, what=f"no clear refusal: {_line(answer.code, answer.err)}")
        elif answer.refused and content:
            yield Finding(kind=WRONG, who="doctor", what=f"healthy, but {name} said {_line(answer.code, answer.err)}")


def _may_differ(name: str, after: Mapping[str, Answer]) -> bool:
    """Doctor may say more; gc may list less, or leftovers; a plan may compute again what the doctor calls damaged."""
    if name == "doctor":
        return True
    if name == "gc":
        return all(item["kind"] in _HARMLESS_LEFTOVERS for item in json.loads(after[name].out)["items"])
    if name == "resume --dry-run":
        return after["doctor"].code != 0
    return False


def _collected(world: World, there: Mapping[str, set[str]]) -> Iterator[Finding]:
    """What `gc --apply` took although runs hold it, or how it crashed."""
    ended = world.ask("gc", "--apply", *KEEP)
    yield from _crash("gc --apply", ended)
    left = _artifacts(world.store)
    gone = [f"{key}/{name}" for key, names in there.items() for name in sorted(names - left.get(key, set()))]
    if gone:
        yield Finding(kind=LOST, who="gc --apply", what=f"removed {len(gone)} files, e.g. {gone[0]}")


def _artifacts(root: Path) -> dict[str, set[str]]:
    """Names of the files of every artifact by its key."""
    folders = (path for path in (root / "artifacts").glob("*/*") if path.is_dir())
    return {
        folder.name: {each.name for each in folder.iterdir() if not each.name.endswith(".tmp")} for folder in folders
    }


def _repaired(world: World, harmed: Sequence[str]) -> tuple[bool, list[Finding]]:
    """Whether repair and resume gave back the same bits, and what was wrong with what they said."""
    findings, done = [], True
    commands = [("doctor", "--repair"), *(("resume", name) for name in runs_touched(world, harmed)), ("doctor",)]
    for words in commands:
        ended = world.ask(*words)
        findings += _crash(" ".join(words), ended)
        done &= ended.code == 0
    if not done:
        return False, findings
    for name in runs_touched(world, harmed):
        try:
            differing = mismatches(dict(world.reference[name]), content(world.store, name))
        except (OSError, ValueError) as error:
            differing = [str(error)]
        if differing:
            what = f"{len(differing)} artifacts differ after the repair, e.g. {differing[0]}"
            findings.append(Finding(kind=WRONG, who=f"resume {name}", what=what))
    return not findings, findings


def _crash(who: str, ended: Finished) -> Iterator[Finding]:
    answer = Answer(code=ended.code, out=ended.out, err=ended.err)
    if answer.crashed:
        yield Finding(kind=TRACEBACK, who=who, what=_line(answer.code, answer.err))
    elif answer.code and "doctor" not in who and not answer.refused:
        yield Finding(kind=WRONG, who=who, what=f"no clear refusal: {_line(answer.code, answer.err)}")


def _line(code: int, said: str) -> str:
    """Exit code and what matters: the error of a traceback and its last place, else the first line."""
    lines = [line.strip() for line in said.splitlines() if line.strip(" ^~")] or [""]
    if "Traceback" in said:
        places = [line for line in lines if line.startswith("File ")]
        lines = [f"{lines[-1]} at {places[-1] if places else ''}"]
    return f"exit {code}: {lines[0][:300]}"


def _difference(before: str, after: str) -> str:
    """Where two outputs part."""
    start = max(0, len(os.path.commonprefix([before, after])) - 30)  # noqa: RUF071
    return f"{before[start : start + 80]!r} became {after[start : start + 80]!r}"
