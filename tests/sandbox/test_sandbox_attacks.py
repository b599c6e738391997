"""Programs that try to be called right without being right, to get out, or to do damage."""

import contextlib
import gc
import os
import subprocess
import time
from pathlib import Path

import sandbox_corpus
from contained import needs_sandbox
from sandbox_corpus import ProgramJudgement

from infuser_core.settings import sandbox_mode
from infuser_core.verifiers.sandbox.processes import Tree

pytestmark = needs_sandbox

FOLDERS = ["/", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/run", "/etc", "/home", "/root", "/usr/lib", str(Path.cwd())]


def escaped_files() -> list[str]:
    """What the attacks would have left outside."""
    return [str(path) for folder in map(Path, FOLDERS) if folder.is_dir() for path in folder.glob("infuser_escape*")]


def sandboxes(after: float) -> set[int]:
    """Processes of sandboxes that started after a time since boot, whoever started them."""
    found = set()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and b"posix.read(line" in (folder / "cmdline").read_bytes():
                ticks = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
                if ticks / os.sysconf("SC_CLK_TCK") >= after:
                    found.add(int(folder.name))
    return found


def staying(after: float, seconds: float = 20.0) -> set[int]:
    """Sandboxes that stay: those of other tests, which may run beside this one, come and go."""
    found = sandboxes(after)
    until = time.monotonic() + seconds
    while found and time.monotonic() < until:
        time.sleep(0.1)
        found &= sandboxes(after)
    return found


def descriptors() -> set[str]:
    """Pipes, files and handles of ended processes that this process holds open.

    Other threads may have sockets, and handles of processes of their own that live.
    """
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            name = str(link.readlink())
            if name == "anon_inode:[pidfd]":
                of = Path("/proc/self/fdinfo", link.name).read_text().rpartition("Pid:")[2].split()[0]
                name = f"pidfd {link.name} of an ended process" if of == "-1" else "socket: of a living process"
            found.add(name)
        except OSError:  # the folder's own descriptor, and what another thread has just closed
            continue
    return {name for name in found if not name.startswith(("socket:", "anon_inode:[event"))}


def leaked(before: set[str], seconds: float = 30.0) -> set[str]:
    """What is open since then and stays so."""
    until = time.monotonic() + seconds
    while (new := descriptors() - before) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.1)
    return new


def test_the_collection_is_large_and_every_attack_says_what_it_tries():
    assert len(sandbox_corpus.CHEATS) >= 40
    assert [path.name for path in sandbox_corpus.CHEATS if not path.read_text().startswith("# Tries: ")] == []


def test_no_attack_is_called_right_none_gets_out_and_the_host_is_unchanged():
    began, files = time.clock_gettime(time.CLOCK_BOOTTIME), escaped_files()
    with sandbox_corpus.bait():
        before = descriptors()
        found = sandbox_corpus.judged(sandbox_corpus.cheats())
        assert leaked(before) == set()
    judgements = {name: each for name, each in found.items() if isinstance(each, ProgramJudgement)}
    assert {name: each for name, each in found.items() if name not in judgements} == {}
    assert [name for name, each in judgements.items() if each.passed] == []
    # An attack that finds itself outside raises this error, and does nothing else that raises it.
    assert {name: each.detail for name, each in judgements.items() if "SystemError" in each.detail} == {}
    assert sandbox_mode() == "bwrap"
    assert escaped_files() == files
    assert staying(began) == set()


def test_a_tree_that_has_ended_adopts_no_process():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as ended, subprocess.Popen(["sleep", "60"]) as other:
        tree = Tree(ended)
        assert tree.end()
        before = descriptors()
        tree.adopt(other.pid)
        other.kill()
        other.wait()
        assert descriptors() - before == set()
