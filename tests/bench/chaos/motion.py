"""Faults in motion: commands at work that are killed, stopped, robbed of their disk, their clock or their locks."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from crash_points import content, mismatches, orphans, repeated
from fault_tools import eventually, remount, small_disk, used
from launcher import Finished, Started, apart
from oracle import HARMLESS, LOST, RESTORED, TRACEBACK, WRONG, Finding, Verdict
from places import ROOT
from readers import Answer
from script import Fault
from world import World

from flows import deployment
from infuser_core.store.journal import Journal
from infuser_core.store.runs import is_held, runs_folder

_PATIENCE = 240.0
_POINTS = 40
"""Named points of a run among which the moment of a fault is chosen, counted from the first stage that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A command that is a process of its own."""

    process: "subprocess.Popen[str]"
    """The process."""

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def wait(self, patience: float = _PATIENCE) -> Finished:
        """Its end."""
        out, said = self.process.communicate(timeout=patience)
        err, told = apart(said)
        return Finished(code=self.process.returncode, out=out, err=err, told=told)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


@dataclass(slots=True, kw_only=True)
class Scene:
    """A store that lacks the end of the small run, and the commands that are to make it."""

    world: World
    """The undisturbed store."""
    fault: Fault
    """What happens: `which` of the stages is the first to be missing, and `at` what moment from there on."""
    store: Path
    """The store."""
    seconds: float
    """How long a stopped process stays so."""
    findings: list[Finding] = field(default_factory=list)
    """What must not be."""
    noticed: bool = False
    """Whether a command ended otherwise than well."""
    met: set[int] = field(default_factory=set)
    """Processes that may not outlive the fault."""

    @property
    def points(self) -> Path:
        """Where commands list the points that they pass."""
        return self.store.parent / "points"

    def begin(self, *words: str, own: bool = False, **environment: str) -> "Started | Own":
        """Start a command, by default the small run."""
        words = words or tuple(self.world.run.arguments)
        if not own:
            return self.world.launch.start(*words, store=self.store, INFUSER_POINTS=str(self.points), **environment)
        outer = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        values = {"INFUSER_STORE": str(self.store), "INFUSER_POINTS": str(self.points), **environment}
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "flows.cli.main", *words]
        started = subprocess.Popen(command, cwd=ROOT, env=outer | values, stdout=pipe, stderr=pipe, text=True)
        return Own(process=started)

    def moment(self, running: "Started | Own") -> None:
        """Wait for the moment of the fault, or for the end of the command."""
        wanted = 1 + int(self.fault.at * _POINTS)
        eventually(
            lambda: self._passed() >= wanted or not lives(running.pid), "the moment", seconds=_PATIENCE, every=0.002
        )
        self.met |= {running.pid, *descendants(running.pid)}

    def _passed(self) -> int:
        return self.points.read_bytes().count(b"\n") if self.points.exists() else 0

    def ended(self, running: "Started | Own", *codes: int) -> Finished:
        """The end of a command: with one of these codes, and a refusal in one line."""
        try:
            done = running.wait(_PATIENCE)
        except (subprocess.TimeoutExpired, AssertionError):
            self.wrong("the command", f"has not ended within {_PATIENCE:.0f} s")
            running.kill(signal.SIGKILL)
            done = running.wait(_PATIENCE)
        self.noticed |= done.code != 0
        answer = Answer(code=done.code, out=done.out, err=done.err)
        if "Traceback" in done.err:
            self.wrong("the command", done.err.strip().splitlines()[-1], TRACEBACK)
        elif done.code not in codes or (done.code in (2, 3) and not answer.refused):
            self.wrong("the command", f"exit {done.code}, not {codes}: {done.err[:200]}")
        return done

    def wrong(self, who: str, what: str, kind: str = WRONG) -> None:
        """Note what must not be."""
        self.findings.append(Finding(kind=kind, who=who, what=what))


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int, mark: str = "") -> list[int]:
    """Living processes that a process has started, and those they started; with `mark`, those whose command has it."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                found += [child, *descendants(child)]
    return [each for each in found if lives(each) and mark in _command(each)]


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def kill(scene: Scene) -> None:
    """SIGKILL to one role."""
    role = scene.fault.target
    if role == "server":
        with _serving(scene) as server:
            running = scene.begin(own=True)
            scene.moment(running)
            _kill([server])
            scene.ended(running, 0)
        return
    running = scene.begin(own=role == "tree")
    if role == "converter":
        with suppress(AssertionError):
            children: list[int] = []
            eventually(
                lambda: children.extend(descendants(running.pid, "infuser_core.system.child")) or children, "one", 60.0
            )
            _kill(children[:1])
        scene.ended(running, 0, 3)
        return
    scene.moment(running)
    _kill([running.pid, *(descendants(running.pid) if role == "tree" else [])])
    scene.ended(running, 0, -signal.SIGKILL)


@contextmanager
def _serving(scene: Scene) -> Iterator[int]:
    """An `infuser serve` beside the run, which shows itself there; gives its server process."""
    serving = scene.begin("serve", "--port", str(deployment.free_port()), own=True)
    try:
        eventually(lambda: deployment.running_server(scene.store) is not None, "a server", 120.0)
        yield descendants(serving.pid, "flows.server")[0]
    finally:
        _kill([serving.pid])
        serving.wait()


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def stop(scene: Scene) -> None:
    """A process, or the server that it shows itself on, stands still; nobody else may take the run meanwhile."""
    with _serving(scene) if scene.fault.target == "server" else nullcontext() as server:
        running = scene.begin(own=server is not None)
        scene.moment(running)
        stopped = running.pid if server is None else server
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGSTOP)
        if server is None and is_held(scene.store, scene.world.run.name):
            scene.ended(scene.begin(), 2)
        time.sleep(scene.seconds)
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
        scene.ended(running, 0)


def disk(scene: Scene) -> None:
    """The disk has no room, no inode, or cannot be written any more."""
    how = scene.fault.target
    with small_disk(scene.store.parent / "disk", "400m") as mounted:
        moved, scene.store = scene.store, mounted / "store"
        shutil.copytree(moved, scene.store)
        if how == "full":
            remount(mounted, f"size={used(mounted) + int(scene.fault.at * 4_000_000)}")
        elif how == "inodes":
            taken = os.statvfs(mounted)
            remount(mounted, f"nr_inodes={taken.f_files - taken.f_ffree + int(scene.fault.at * 60)}")
        else:  # files that are open for writing would keep a mount writable: before the command, not meanwhile
            remount(mounted, "ro")
            scene.ended(scene.begin("sql", "select count(*) from artifacts"), 0)
        scene.ended(scene.begin(), 0, 2, 3)
        remount(mounted, "rw,size=400m,nr_inodes=0")
        settle(scene)
        scene.store = moved


def start(scene: Scene) -> None:
    """Commands that begin at the same time: one run twice, or two runs that share stages."""
    run = scene.world.run
    others = {"same": run.arguments, "shared": run.fixed_arguments}[scene.fault.target]
    both = [scene.begin(), scene.begin(*others)]
    ended = [scene.ended(each, *([0, 2] if scene.fault.target == "same" else [0])) for each in both]
    if all(done.code for done in ended):
        scene.wrong("two starts", f"neither came through: {ended[0].err[:200]}")
    if scene.fault.target == "same" and (twice := repeated(scene.store, run.name)):
        scene.wrong("two starts", f"computed twice: {twice[0]}")


def watch(scene: Scene) -> None:
    """Somebody reads, copies, exports or collects garbage while a run works."""
    running = scene.begin()
    readers = {
        "readers": [("runs",), ("sql", "select count(*) from rollouts"), ("doctor",), ("why", "--graph")],
        "gc": [("gc", "--apply")],
        "export": [("export", scene.world.run.name, "--iteration", "1", "--out", str(scene.store.parent / "model"))],
        "copy": [],
    }[scene.fault.target]
    number = 0
    while lives(running.pid):
        for words in readers:
            scene.ended(scene.begin(*words), 0, 2, 3)
            shutil.rmtree(scene.store.parent / "model", ignore_errors=True)
        number += 1
        if scene.fault.target == "copy" and number == 1:
            scene.moment(running)
            _copied(scene)
        time.sleep(0.1)
    scene.ended(running, 0)


def _copied(scene: Scene) -> None:
    """A copy that was taken from a store at work goes on to the same bits."""
    taken = scene.store.parent / "taken"
    subprocess.run(["cp", "-a", str(scene.store), str(taken)], capture_output=True)
    scene.store, left = taken, scene.store
    settle(scene)
    scene.store = left
    shutil.rmtree(taken)


def clock(scene: Scene) -> None:
    """The clock jumps by a year while a run works."""
    days, jumped = {"ahead": "400", "back": "-400"}[scene.fault.target], scene.store.parent / "jumped"
    running = scene.begin(own=True, CHAOS_CLOCK=str(jumped), CHAOS_DAYS=days, LD_PRELOAD=str(_preloaded(scene)))
    scene.moment(running)
    jumped.touch()
    scene.ended(running, 0)


def lock(scene: Scene) -> None:
    """The file system knows no locks: said, and nothing is half done."""
    preloaded = str(_preloaded(scene))
    scene.ended(scene.begin(own=True, CHAOS_LOCKS=scene.fault.target, LD_PRELOAD=preloaded), 3)


def _preloaded(scene: Scene) -> Path:
    library = scene.store.parent / "preload.so"
    source = Path(__file__).with_name("preload.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


FAULTS: dict[str, tuple[Callable[[Scene], None], tuple[str, ...]]] = {
    "kill": (kill, ("main", "tree", "server", "converter")),
    "stop": (stop, ("main", "server")),
    "disk": (disk, ("full", "inodes", "readonly")),
    "start": (start, ("same", "shared")),
    "watch": (watch, ("readers", "gc", "export", "copy")),
    "clock": (clock, ("ahead", "back")),
    "lock": (lock, ("enolck", "einval")),
}


def missing() -> Mapping[str, str]:
    """Kinds of faults that cannot be done on this machine, and why."""
    found = {}
    if os.geteuid():
        found["disk"] = "mounting a small disk needs root"
    if shutil.which("cc") is None:
        found |= dict.fromkeys(("clock", "lock"), "no C compiler")
    return found


def possible() -> dict[str, tuple[str, ...]]:
    """Targets of each kind of fault that can be done on this machine."""
    return {kind: targets for kind, (_, targets) in FAULTS.items() if kind not in missing()}


def settle(scene: Scene) -> None:
    """Go on until the run is complete; compare it with the undisturbed one; nothing may be left over."""
    name = scene.world.run.name
    for _ in range(3):
        known = (runs_folder(scene.store) / name / "run.json").is_file()
        done = scene.ended(scene.begin(*(("resume", name) if known else ())), 0, 3)
        if done.code == 0:
            break
    for key in mismatches(dict(scene.world.reference[name]), content(scene.store, name)):
        scene.wrong("resume", f"{key} differs from the undisturbed run's")
    for line in orphans(scene.store):
        scene.wrong("the store", line, LOST)
    with suppress(AssertionError):
        eventually(lambda: not any(map(lives, scene.met)), "their end", 20.0)
    for pid in filter(lives, scene.met):
        scene.wrong("processes", f"{pid} lives on: {_command(pid)[:100]}")
    checked = scene.world.launch("doctor", store=scene.store)
    if checked.code:
        scene.wrong("doctor", checked.out[:200])


def performed(world: World, fault: Fault, seconds: float) -> Verdict:
    """Do one fault to the run, go on to its end, and judge it."""
    scene = Scene(world=world, fault=fault, store=world.store.parent / "moving" / "store", seconds=seconds)
    shutil.rmtree(scene.store.parent, ignore_errors=True)
    scene.store.mkdir(parents=True)
    _fill(scene)
    FAULTS[fault.kind][0](scene)
    settle(scene)
    return Verdict(findings=scene.findings, fate=RESTORED if scene.noticed else HARMLESS, harmed=[fault.target])


def _fill(scene: Scene) -> None:
    """Artifacts of the undisturbed run up to a stage; a converter that is to be killed needs work."""
    entries = Journal(scene.world.run.root, scene.world.run.name).latest()
    phases = [entry.phase for entry in entries]
    first = phases.index("convert") if scene.fault.target == "converter" else int(scene.fault.which * len(entries))
    for entry in entries[:first]:
        place = Path("artifacts") / entry.phase / entry.key
        shutil.copytree(scene.world.run.root / place, scene.store / place, copy_function=os.link)
