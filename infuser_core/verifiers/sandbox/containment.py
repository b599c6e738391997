"""Commands that start a sandboxed Python interpreter: bubblewrap, the visible files, and the system call filter.

Only the interpreter is visible in the sandbox; without bubblewrap there are only resource limits. Bubblewrap runs as an
ordinary user even if this process is root: the limit on the number of processes does not bind user 0, not even if it is
mapped to nobody in its namespace. Its environment is empty from the start, because `/proc/1/environ` shows bubblewrap's
own environment.

The filter is a second barrier: it denies system calls that no solution needs and with which most escapes begin. It is a
classic BPF program, 8 bytes per instruction, with the call numbers of the kernel's tables.
"""

import importlib.util
import os
import platform
import shutil
import stat
import struct
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from infuser_core.verifiers.sandbox.program import SandboxUnavailable

SYSTEM = Path("/usr/bin/python3")
NOBODY = 65534
"""User and group that root becomes before anything untrusted runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """One installation of Python."""

    executable: Path
    """The binary, with links resolved."""
    prefix: Path
    """Its installation, with the standard library in `lib` or `lib64`."""
    hidden_by: Path | None
    """Topmost folder above the installation that an ordinary user may not enter, if any."""

    def libraries(self) -> list[Path]:
        """Folders of the installation with the standard library and shared libraries."""
        return [path for name in ("lib", "lib64") if (path := self.prefix / name).is_dir() and not path.is_symlink()]

    def packages(self) -> list[Path]:
        """Folders with installed packages, which the sandbox hides: they may contain answers to benchmarks."""
        libraries = {*self.libraries(), Path("/usr/lib"), Path("/usr/lib64")}
        names = ("site-packages", "dist-packages")
        paths = [path for lib in libraries for name in names for path in lib.glob(f"python3*/{name}")]
        return sorted(path for path in paths if path.is_dir())


def find_interpreters() -> list[Interpreter]:
    """Python installations to try in the sandbox, best first: that of this process and, if it exists, the system's.

    The system's is better if it has the same version and the other one is in a folder that ordinary users may not
    enter, which root would have to mount at every start.
    """
    path = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    own = _interpreter(path, Path(sys.base_prefix).resolve())
    if not SYSTEM.exists() or SYSTEM.resolve() == path:
        return [own]
    system = _interpreter(SYSTEM.resolve(), SYSTEM.parent.parent)
    same = system.executable.name == f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [system, own] if own.hidden_by is not None and same else [own, system]


def _interpreter(executable: Path, prefix: Path) -> Interpreter:
    hidden_by = _first_closed_folder(executable) or _first_closed_folder(prefix / "lib")
    return Interpreter(executable=executable, prefix=prefix, hidden_by=hidden_by)


def _first_closed_folder(path: Path) -> Path | None:
    """The first folder on the way to `path` that the sandbox's user may not enter, if any."""
    for folder in reversed(path.parents):
        if os.geteuid() != 0:
            if not os.access(folder, os.X_OK):
                return folder
        elif not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


# name: (x86_64, aarch64)
DENIED = {
    "socket": (41, 198), "connect": (42, 203), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "personality": (135, 92), "acct": (163, 89), "syslog": (103, 116), "kcmp": (312, 272),
    "fanotify_init": (300, 262),
    # Memory that belongs to no process, which the limit on resident memory would miss.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
CLONE, CLONE3 = (56, 220), 435
NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME."""
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000
"""First call number of the x32 ABI, in which the same calls have other numbers."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
NOT_PERMITTED, NOT_IMPLEMENTED = 0x00050001, 0x00050026
"""Fail with EPERM or with ENOSYS."""
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the kernel's `seccomp_data`, bytes."""


@lru_cache
def filter_program(machine: str = "") -> bytes:
    """The system call filter for a machine, by default this one; empty if its call numbers are unknown."""
    column, architecture = ARCHITECTURES.get(machine or platform.machine(), (0, 0))
    if not architecture:
        return b""
    lines = [
        *(_line(LOAD, ARCHITECTURE), _line(EQUAL, architecture, 1, 0), _line(RETURN, KILL)),
        *(_line(LOAD, NUMBER), _line(AT_LEAST, X32, 0, 1), _line(RETURN, NOT_IMPLEMENTED)),
        # The C library falls back to clone, whose flags the filter can inspect.
        *(_line(EQUAL, CLONE3, 0, 1), _line(RETURN, NOT_IMPLEMENTED)),
    ]
    for numbers in DENIED.values():
        lines += [_line(EQUAL, numbers[column], 0, 1), _line(RETURN, NOT_PERMITTED)]
    lines += [_line(EQUAL, CLONE[column], 0, 3), _line(LOAD, FIRST_ARGUMENT)]
    lines += [_line(ANY_BIT, NEW_NAMESPACES, 0, 1), _line(RETURN, NOT_PERMITTED), _line(RETURN, ALLOW)]
    return b"".join(lines)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


PACKAGES = "/packages"
"""Folder in the sandbox with the scientific packages, for programs that may use them."""
SCIENTIFIC = ("numpy", "numpy.libs", "sortedcontainers")
"""Folders of the packages that solutions to contest problems import."""
WORK = "/box"
"""The only writable folder in the sandbox."""
VIEW = Path("/mnt")
"""Mount point for an installation from a closed folder, if this process is root."""
# The root and /dev are a tmpfs, and bubblewrap leaves both writable.
READ_ONLY = ("--remount-ro", "/dev", "--remount-ro", "/")
LIBRARIES = ("lib", "lib64")
# Isolated as by -I, except that ENVIRONMENT is read, so that sets of strings have the same order in every run.
FLAGS = ("-s", "-S", "-B", "-X", "utf8")
ENVIRONMENT = {"PYTHONHASHSEED": "0"}
# Reads compiled code from the request pipe: compiling it at each start would take a quarter of the start-up time.
STUB = """\
import marshal, posix, sys
size, code, line = 8, b"", int(sys.argv[1])
for turn in 0, 1:
    code = b""
    while len(code) < size:
        part = posix.read(line, size - len(code))
        if not part:
            posix._exit(0)
        code += part
    size = int.from_bytes(code, "little") if not turn else size
exec(marshal.loads(code))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """A command that starts a sandboxed interpreter; `run.prove` tests it."""

    mode: str
    """bwrap or unsafe."""
    interpreter: Interpreter
    launcher: tuple[str, ...]
    """Leading commands that mount the interpreter, drop root and start bubblewrap."""
    walls: tuple[str, ...]
    """Bubblewrap's options: namespaces and visible files; empty without bubblewrap."""
    boot: bytes
    """`inside.py`, compiled by that interpreter; empty before the test."""

    def command(
        self, *, requests: int, answers: int, disk_mb: int, info: int = -1, filter_: int = -1, scientific: bool = False
    ) -> list[str]:
        """The command line; the numbers are descriptors that the process inherits."""
        python = [str(self.interpreter.executable), *FLAGS, "-c", STUB, str(requests), str(answers)]
        if self.mode != "bwrap":
            return [*self.launcher, *python]
        work = ["--size", str(disk_mb << 20), "--tmpfs", WORK, "--chdir", WORK]
        extra = ["--info-fd", str(info)] + (["--seccomp", str(filter_)] if filter_ >= 0 else [])
        # One thread: a thread pool would use up most of the processes that a program may have.
        packages = ["--setenv", "OPENBLAS_NUM_THREADS", "1"] if scientific else []
        for folder in scientific_folders(self.interpreter) if scientific else ():
            packages += ["--ro-bind", str(folder), f"{PACKAGES}/{folder.name}"]
        return [*self.launcher, *self.walls, *work, *packages, *READ_ONLY, *extra, "--", *python]


def contain_with_bwrap(interpreter: Interpreter) -> Containment:
    """Contain an interpreter with bubblewrap. Raises SandboxUnavailable that names what is missing."""
    bwrap = _tool("bwrap", "install bubblewrap; or INFUSER_SANDBOX=unsafe to run with limits alone")
    stage: list[str] = []
    mounted_at = interpreter.prefix
    if interpreter.hidden_by is not None:
        # Root mounts the installation at VIEW in a separate mount namespace. No process stays in between: bubblewrap
        # ends with its parent, and a parent without root's rights could not end it.
        if os.geteuid() != 0 or interpreter.prefix not in interpreter.executable.parents or not VIEW.is_dir():
            raise _unreadable(interpreter)
        unshare, shell, _ = (_tool(name, "install util-linux") for name in ("unshare", "sh", "mount"))
        script = f'mount -n -o bind "$0" {VIEW} && exec "$@"'
        stage = [unshare, "--mount", "--propagation", "private", "--", shell, "-c", script, str(interpreter.prefix)]
        mounted_at = VIEW
    launcher = (*stage, *_drop_root(), bwrap)
    user = ["--unshare-all", "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--disable-userns"]
    process = ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "box", "--clearenv"]
    environment = [word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)]
    walls = (*user, *process, *environment, *_view_of_host(interpreter, mounted_at))
    return Containment(mode="bwrap", interpreter=interpreter, launcher=launcher, walls=walls, boot=b"")


def contain_with_limits(interpreter: Interpreter) -> Containment:
    """Contain an interpreter by resource limits only. Raises SandboxUnavailable if its user may not run it."""
    if interpreter.hidden_by is not None:
        raise _unreadable(interpreter)
    launcher = tuple(_drop_root())
    return Containment(mode="unsafe", interpreter=interpreter, launcher=launcher, walls=(), boot=b"")


def _unreadable(interpreter: Interpreter) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"an ordinary user cannot run {interpreter.executable}: {interpreter.hidden_by} is closed to others",
        hint="install a Python that everybody may read, for example /usr/bin/python3",
    )


def _tool(name: str, hint: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if path is None:
        raise SandboxUnavailable(f"no {name} command on this host", hint=hint)
    return path


def _drop_root() -> list[str]:
    """The command by which root gives up its rights; empty for other users."""
    if os.geteuid() != 0:
        return []
    setpriv = _tool("setpriv", "install util-linux; or start as an ordinary user")
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]


def _view_of_host(interpreter: Interpreter, mounted_at: Path) -> list[str]:
    """The visible part of the host, read-only: shared libraries, the interpreter, its standard library.

    `mounted_at` is the installation's folder for bubblewrap; in the sandbox it is at its usual path.
    """
    words: list[str] = []
    for name in LIBRARIES:
        for path in (Path("/usr") / name, Path("/") / name):
            if path.is_symlink():
                words += ["--symlink", str(path.readlink()), str(path)]
            elif path.is_dir():
                words += ["--ro-bind", str(path), str(path)]
    words += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    prefix = interpreter.prefix
    for path in (interpreter.executable, *([] if prefix == Path("/usr") else interpreter.libraries())):
        source = path if mounted_at == prefix else mounted_at / path.relative_to(prefix)
        words += ["--ro-bind", str(source), str(path)]
    for packages in interpreter.packages():
        words += ["--tmpfs", str(packages), "--remount-ro", str(packages)]
    return [*words, "--proc", "/proc", "--dev", "/dev"]


@lru_cache
def scientific_folders(interpreter: Interpreter) -> tuple[Path, ...]:
    """The scientific packages of this process that an interpreter can load; none for another version of Python."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    spec = importlib.util.find_spec("numpy")
    if spec is None or not spec.origin or (interpreter.executable != own and interpreter.executable.name != version):
        return ()
    site = Path(spec.origin).resolve().parent.parent
    folders = [site / name for name in SCIENTIFIC if (site / name).is_dir()]
    return tuple(folder for folder in folders if _first_closed_folder(folder / "x") is None)
