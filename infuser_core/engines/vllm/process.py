"""One vLLM engine in a process of its own: its options, start, messages, death and end.

Nothing here imports vllm: the process may run in another environment than this one.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import torch

import infuser_core
from infuser_core.engines.vllm.link import Link
from infuser_core.errors import EngineError, EngineWarning

MODULE = "infuser_core.engines.vllm.worker"
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

PYTHON = "INFUSER_VLLM_PYTHON"
"""Environment variable: interpreter whose environment holds vllm, where that is not this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMOptions:
    """Settings of the vLLM engines and of their watch."""

    engines: int | None = None
    """Engines; None makes one per `tensor_parallel` visible accelerators, and one on a CPU."""
    tensor_parallel: int = 1
    """Accelerators that share one engine's weights."""
    memory: float = 0.85
    """Share of an accelerator's memory that an engine may take."""
    max_num_seqs: int | None = None
    """Responses that an engine computes at a time; None is vLLM's own number for offline work on its device."""
    max_num_batched_tokens: int | None = None
    """Tokens of one step of an engine, prompts included; None is vLLM's own number."""
    max_model_len: int | None = None
    """Prompt and response tokens of one sequence of a run's two roles, so that memory is cut for what is asked; never
    above the model's own limit, which None and every other role take."""
    reserved: int = 0
    """Visible accelerators, the first ones, that belong to somebody else."""
    sleep: bool = True
    """Whether an accelerator's memory can be given back between roles."""
    start_seconds: float = 900.0
    """Longest start of an engine."""
    silent_seconds: float = 300.0
    """Longest silence of an engine with work to do, before it counts as hung."""
    python: str = ""
    """Interpreter whose environment holds vllm; empty for INFUSER_VLLM_PYTHON or else this one."""
    worker: str = MODULE
    """Module that an engine's process runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Command of an engine's process."""

    name: str
    """Name in messages."""
    python: str
    """Interpreter whose environment holds vllm."""
    module: str
    """Module that it runs."""
    settings: dict[str, Any]
    """Arguments of the engine."""
    environment: dict[str, str]
    """Variables beside the caller's own."""
    folder: Path
    """Where it runs and its output goes."""

    @property
    def log(self) -> Path:
        """File of its output."""
        return self.folder / f"{self.name.replace(' ', '-')}.log"


def interpreter(options: VLLMOptions) -> str:
    """Python of the environment that holds vllm. Raises EngineError where that is this one and it holds none."""
    python = options.python or os.environ.get(PYTHON, "") or sys.executable
    if python == sys.executable and options.worker == MODULE and find_spec("vllm") is None:
        raise EngineError(
            "the sampler needs vllm, and this environment holds none",
            hint=f"pip install 'infuser[rollout-vllm]', or name the Python of another environment in {PYTHON}",
        )
    return python


def launches(
    options: VLLMOptions, *, model: str, scratch: Path, dtype: str, device: torch.device, threads: int
) -> list[Launch]:
    """One start per engine, in the folder `scratch`, where the model lies under that name.

    The name enters the key of vLLM's compile cache: a path that is never the same would never find anything there.
    Raises EngineError where there are fewer accelerators than asked for.
    """
    cards = visible_cards()[options.reserved :] if device.type == "cuda" else []
    count = options.engines or max(1, len(cards) // options.tensor_parallel)
    if device.type == "cuda" and count * options.tensor_parallel > len(cards):
        raise EngineError(
            f"{count} engines of {options.tensor_parallel} accelerators each were asked for, and {len(cards)} are "
            f"visible{f' beside the {options.reserved} of the trainer' if options.reserved else ''}",
            hint="lower the number of engines or tensor_parallel",
        )
    width, own = options.tensor_parallel, {"OMP_NUM_THREADS": str(threads)}
    shares = [",".join(cards[place * width : (place + 1) * width]) for place in range(count)]
    return [
        Launch(
            name=f"vllm engine {place}",
            python=interpreter(options),
            module=options.worker,
            settings=engine_settings(options, model=model, dtype=dtype, device=device),
            environment=own | ({"CUDA_VISIBLE_DEVICES": share} if share else {}),
            folder=scratch,
        )
        for place, share in enumerate(shares)
    ]


def engine_settings(options: VLLMOptions, *, model: str, dtype: str, device: torch.device) -> dict[str, Any]:
    """Arguments of a vLLM engine, by its own names."""
    return {
        "model": model,
        "dtype": dtype,
        "tensor_parallel_size": options.tensor_parallel,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_model_len": options.max_model_len,
        "enforce_eager": device.type == "cpu",
        "enable_sleep_mode": options.sleep and device.type == "cuda",
        "gpu_memory_utilization": options.memory,
    }


def visible_cards() -> list[str]:
    """Names of the accelerators that this process may use, as CUDA_VISIBLE_DEVICES writes them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    return [str(card) for card in range(torch.cuda.device_count())]


class EngineProcess:
    """A running engine; every method that waits raises EngineError once it is dead. `bell` rings when it has spoken."""

    def __init__(self, launch: Launch, bell: threading.Event) -> None:
        self.name = launch.name
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
        self._link = Link(ours, bell, self.name)
        self.heard = time.monotonic()

    @property
    def pid(self) -> int:
        """Process id, which is the id of its group."""
        return self._process.pid

    def send(self, *message: Any) -> None:
        """Give a command, without waiting until it is taken."""
        self._link.send(message)

    def receive(self, seconds: float = 0.0) -> tuple[Any, ...] | None:
        """The next reply, or None where none comes within `seconds`."""
        try:
            reply = self._link.receive(seconds)
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
        if self._link.waiting_seconds() > seconds:
            raise self.hung(f"has taken no command for {seconds:.0f} s")

    def hung(self, what: str) -> EngineError:
        """The error for an engine that lives and does not do its work."""
        return EngineError(f"{self.name} (pid {self.pid}) {what}", hint=f"its output is in {self._log}")

    def kill(self) -> None:
        """End it and its children, at once; warns of one that does not end, whose accelerator may stay taken."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            text = f"{self.name} (pid {self.pid}) was killed and has not ended within {ENDING_SECONDS:.0f} s"
            warnings.warn(text, EngineWarning, stacklevel=2)
        self._link.close(ENDING_SECONDS)

    def _death(self) -> EngineError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)
        status = self._process.poll()
        how = "closed its pipe" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        reason = last_words(self._log.read_text(errors="replace"))
        said = f": {reason}" if reason else ""
        return EngineError(f"{self.name} (pid {self.pid}) {how}{said}", hint=f"its output is in {self._log}")


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
