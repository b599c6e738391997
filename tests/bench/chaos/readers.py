"""Everything that reads a store, and what it answered: the same answer or a clear refusal, never another one."""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launcher import Finished, Started
from world import EVALUATION, KEEP, KILLED, World

REFUSALS = (2, 3)
"""Exit codes of an error that the command names."""
PATIENCE = 60.0
_MOMENTS = (
    (re.compile(r"in \d+\.\d s"), "in N s"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?([+-]\d{4}|Z)?)?"), "DATE"),
    # A repair makes checkpoints whole again that gc had thinned out.
    (re.compile(r'"bytes": \d+, "forked_from"'), '"bytes": 0, "forked_from"'),
    (re.compile(r'"(seconds|peak_memory_mb)": [\d.]+'), r'"\1": 0'),
)
_VIEWS = """select table_name from information_schema.tables where table_schema = 'main'
            and table_name not like '\\_%' escape '\\' order by 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Output of one reader."""

    code: int
    """Exit code; negative for the signal that ended it."""
    out: str
    """Standard output without times, and the files that it wrote."""
    err: str
    """Standard error."""

    @property
    def crashed(self) -> bool:
        """Whether it ended otherwise than a command may: by a traceback, a signal or not at all."""
        return "Traceback" in self.err + self.out or self.code not in (0, *REFUSALS)

    @property
    def refused(self) -> bool:
        """Whether it said in a line, with a hint, why there is no answer."""
        said = [line for line in self.err.splitlines() if not line.startswith("warning: ")]
        return self.code in REFUSALS and bool(said) and said[0].startswith("infuser: ") and len(said) <= 3


@dataclass(slots=True, kw_only=True)
class Readers:
    """The commands that read a store, and their answers over the undisturbed one."""

    world: World
    """The store."""
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of each reader to its arguments."""
    known: dict[tuple[str, ...], Answer] = field(default_factory=dict)
    """What the undisturbed store answered."""

    def __post_init__(self) -> None:
        name, fixed, world = self.world.run.name, self.world.run.fixed, self.world
        world.renew()
        views = [row["table_name"] for row in json.loads(world.ask("sql", _VIEWS, "--json").out)]
        question = json.loads(world.ask("sql", "select min(question_id) q from questions", "--json").out)[0]["q"]
        rows = " union all ".join(f"select '{view}', count(*), bit_xor(hash(t)) from \"{view}\" t" for view in views)
        self.words = {
            "status": ("status", name, "--json"),
            "runs": ("runs", "--json"),
            "status --digest": ("status", name, "--digest"),
            "status killed": ("status", KILLED),
            "result": ("result", name, "--json"),
            "sql": ("sql", rows, "--json"),
            "sql run": ("sql", "select avg(reward) from rollouts", "--run", name),
            "why question": ("why", question, "--run", name, "--json"),
            "why run": ("why", f"{name}@2", "--json"),
            "why --graph": ("why", "--graph", name, "--json"),
            "diff": ("diff", name, fixed, "--json"),
            "doctor": ("doctor", "--json"),
            "gc": ("gc", *KEEP, "--json"),
            "gc --pins": ("gc", "--pins", "--json"),
            "resume --dry-run": ("resume", name, "--dry-run", "--json"),
            "report": ("report", name, "--html", str(self._page)),
            "report compare": ("report", "compare", name, fixed, "--json"),
            "report habits": ("report", "habits", name),
            "export": ("export", name, "--iteration", "1", "--out", str(self._model)),
            "eval rescore": ("eval", "rescore", name, "--json"),
            "eval": (*EVALUATION, "--json"),
        }

    @property
    def _page(self) -> Path:
        return self.world.store.parent / "page.html"

    @property
    def _model(self) -> Path:
        return self.world.store.parent / "model"

    def of(self, keys: Sequence[str], *, page: bool) -> dict[str, tuple[str, ...]]:
        """The readers, with those that look at these artifacts; without the page, whose charts take as long as all."""
        about = {f"{word} {key}": (word, key) for key in keys for word in ("show", "why")}
        return {name: words for name, words in (self.words | about).items() if page or name != "report"}

    def undisturbed(self, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Answer]:
        """Their answers over the undisturbed store."""
        missing = {name: words for name, words in wanted.items() if words not in self.known}
        if missing:
            self.world.renew()
        for name, answer in self.ask(missing).items():
            self.known[wanted[name]] = answer
        return {name: self.known[words] for name, words in wanted.items()}

    def ask(self, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Answer]:
        """Their answers now, all asked at once."""
        shutil.rmtree(self._model, ignore_errors=True)
        self._page.unlink(missing_ok=True)
        started = {name: self.world.launch.start(*words, store=self.world.store) for name, words in wanted.items()}
        end = time.monotonic() + PATIENCE
        return {name: self._answer(name, _end(process, end)) for name, process in started.items()}

    def _answer(self, name: str, ended: Finished) -> Answer:
        written = self._page if name == "report" else self._model if name == "export" else None
        return Answer(code=ended.code, out=_timeless(ended.out) + _written(written), err=ended.err)


def _end(process: Started, end: float) -> Finished:
    """The end of a command, which is killed when it hangs."""
    try:
        return process.wait(max(1.0, end - time.monotonic()))
    except AssertionError:
        process.kill()
        return process.wait()


def _written(path: Path | None) -> str:
    """Pages that a reader wrote, and digests of other files."""
    files = sorted(each for each in (path, *path.rglob("*")) if each.is_file()) if path is not None else []
    parts = []
    for each in files:
        content = each.read_bytes()
        shown = each.suffix in (".html", ".md", ".json")
        parts.append(f"{each.name} {_timeless(content.decode()) if shown else hashlib.sha256(content).hexdigest()}")
    return "\n".join(parts)


def _timeless(text: str) -> str:
    for pattern, word in _MOMENTS:
        text = pattern.sub(word, text)
    return text
