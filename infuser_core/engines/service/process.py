"""One engine in a process of its own: start, messages, death and end."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import infuser_core
from infuser_core.engines.service.launch import Launch
from infuser_core.engines.service.link import Inbox, Link
from infuser_core.errors import EngineError, EngineWarning

ENDING_SECONDS = 10.0
"""Time for a process to end, by itself or killed, seconds."""

DEFAULTS = {
    # One process per engine: it is watched and killed as a whole.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The newer model runner takes no logits processors, without which log-probabilities are not those of the protocol.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Environment of an engine where the caller's own does not say otherwise."""


class Engine(ABC):
    """A running engine; every method that waits raises EngineError once it is dead. `output` says where its lies."""

    def __init__(self, name: str, pid: int, inbox: Inbox, *, output: str) -> None:
        self.name, self.pid = name, pid
        """Process id, which is the id of its group."""
        self.heard = time.monotonic()
        self._inbox, self._output = inbox, output

    @abstractmethod
    def send(self, *message: Any) -> None:
        """Give a command, without waiting until it is taken."""

    @abstractmethod
    def waiting_seconds(self) -> float:
        """Age of the oldest command that it has not taken."""

    @abstractmethod
    def _death(self) -> EngineError:
        """The error for an engine from which nothing comes any more."""

    def receive(self, seconds: float = 0.0) -> tuple[Any, ...] | None:
        """The next reply, or None where none comes within `seconds`."""
        try:
            reply = self._inbox.receive(seconds)
        except EOFError as error:
            raise self._death() from error
        if reply is not None:
            self.heard = time.monotonic()
        return reply

    def expect(self, *wanted: Any, seconds: float) -> tuple[Any, ...]:
        """The reply that starts with `wanted`, within `seconds`."""
        deadline = time.monotonic() + seconds
        while (reply := self.receive(deadline - time.monotonic())) is not None:
            if reply[: len(wanted)] == wanted:
                return reply
        raise self.hung(f"did not answer {wanted[-1]!r} within {seconds:.0f} s")

    def require_pace(self, seconds: float) -> None:
        """Raises EngineError where it was silent for `seconds`, or left a command lying for as long."""
        if time.monotonic() - self.heard > seconds:
            raise self.hung(f"has said nothing for {seconds:.0f} s with work to do")
        if self.waiting_seconds() > seconds:
            raise self.hung(f"has taken no command for {seconds:.0f} s")

    def hung(self, what: str) -> EngineError:
        """The error for an engine that lives and does not do its work."""
        return EngineError(f"{self.name} (pid {self.pid}) {what}", hint=self._output)


class EngineProcess(Engine):
    """An engine that is a process of this machine. `bell` rings when it has spoken."""

    def __init__(self, launch: Launch, bell: threading.Event) -> None:
        self._log = launch.log
        ours, theirs = Pipe()
        command = [launch.python, "-m", launch.module, str(theirs.fileno()), json.dumps(launch.settings)]
        try:
            with launch.log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    cwd=launch.folder,
                    env=_environment(launch.environment, code=_own_code(launch.folder)),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # A group of its own: the engine's children end with it, and Ctrl-C is for this process alone.
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineError(
                f"{launch.name} cannot be started with {launch.python}: {error.strerror}",
                hint="name the Python of the environment that holds vllm in INFUSER_VLLM_PYTHON",
            ) from error
        finally:
            theirs.close()
        self._pipe = Link(ours, bell, launch.name)
        super().__init__(launch.name, self._process.pid, self._pipe, output=f"its output is in {launch.log}")

    def send(self, *message: Any) -> None:
        self._pipe.send(message)

    def waiting_seconds(self) -> float:
        return self._pipe.waiting_seconds()

    def kill(self) -> None:
        """End it and its children, at once; warns of one that does not end, whose accelerator may stay taken."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            text = f"{self.name} (pid {self.pid}) was killed and has not ended within {ENDING_SECONDS:.0f} s"
            warnings.warn(text, EngineWarning, stacklevel=2)
        self._pipe.close(ENDING_SECONDS)

    def _death(self) -> EngineError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)
        status = self._process.poll()
        how = "closed its pipe" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        reason = last_words(self._log.read_text(errors="replace"))
        said = f": {reason}" if reason else ""
        return EngineError(f"{self.name} (pid {self.pid}) {how}{said}", hint=self._output)


def last_words(output: str) -> str:
    """The line of an engine's output that says why it ended: the last exception, or nothing."""
    lines = [line.strip() for line in output.splitlines()]
    named = [line for line in lines if re.match(r"^(\w+\.)*\w*(Error|Exception|Interrupt)\b", line)]
    return named[-1][:500] if named else ""


def _own_code(scratch: Path) -> Path:
    """A folder with a link to this package: beside it, where it is installed, lie libraries of another environment."""
    package = Path(str(infuser_core.__file__)).parent
    link = scratch / "code" / package.name
    link.parent.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(package)
    return link.parent


def _environment(own: Mapping[str, str], *, code: Path) -> dict[str, str]:
    path = os.pathsep.join([str(code), *filter(None, [os.environ.get("PYTHONPATH")])])
    # The folder that the user stands in may hold modules of any name.
    return DEFAULTS | dict(os.environ) | dict(own) | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
