"""The engines of one machine: their scratch folder, their view of a checkpoint's weights, their start and end."""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import infuser_core
from infuser_core.adapters import base_of
from infuser_core.engines.model_files import link_model_files
from infuser_core.engines.service.handover import HERE
from infuser_core.engines.service.launch import Launch, ServiceOptions, launches, visible_cards
from infuser_core.errors import EngineError
from infuser_core.system.worker import WorkerProcess

VIEW = "model"
"""Name of the folder with the model's files, in the scratch folder that engines run in."""

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


class LocalEngines:
    """Engines on `cards` of this machine, all visible ones when None. `where` is appended to their names."""

    def __init__(self, options: ServiceOptions, *, cards: list[str] | None = None, where: str = "") -> None:
        self._options, self._where = options, where
        self._cards = visible_cards() if cards is None else cards
        self._scratch: Path | None = None
        self.machine = HERE
        self.engines: list[WorkerProcess] = []

    def start(self, folder: Path, *, longest: int | None) -> None:
        """Fresh engines for sequences of `longest` tokens that take the folder's weights; they say when it is done."""
        self._scratch = scratch = Path(tempfile.mkdtemp(prefix="infuser-engines-"))
        self.show(folder)
        options = replace(self._options, max_model_len=longest)
        for launch in launches(options, model=f"./{VIEW}", scratch=scratch, cards=self._cards):
            self.engines.append(start_engine(replace(launch, name=f"{launch.name}{self._where}")))

    def show(self, folder: Path, weights: Path | None = None) -> None:
        """Let the view be of this checkpoint: links to the model's files, since an engine would take optimizer state
        for weights, or its adapters merged into their base. `weights` are a file in the place of its own."""
        assert self._scratch is not None, "start comes first"
        view = self._scratch / VIEW
        rmtree(view, ignore_errors=True)
        view.mkdir()
        if base_of(folder) is None:
            link_model_files(folder, view, weights)
        else:
            # Torch loads where it is used.
            from infuser_core.engines.hf.causal_lm import choose_dtype, save_merged

            save_merged(folder, view, dtype=choose_dtype(self._options.dtype))

    def close(self, *, keep_output: bool = False) -> None:
        """End every engine, and let its output lie where an error names it."""
        for engine in self.engines:
            engine.close()
        self.engines = []
        if self._scratch is not None and not keep_output:
            rmtree(self._scratch, ignore_errors=True)
        self._scratch = None


def start_engine(launch: Launch) -> WorkerProcess:
    """An engine's process. Raises EngineError if its interpreter cannot be run."""
    try:
        return WorkerProcess(
            [launch.python, "-m", launch.module],
            [json.dumps(launch.settings)],
            name=launch.name,
            log=launch.log.open("w+b"),
            output=f"its output is in {launch.log}",
            folder=launch.folder,
            environment=_environment(launch.environment, code=_own_code(launch.folder)),
        )
    except OSError as error:
        raise EngineError(
            f"{launch.name} cannot be started with {launch.python}: {error.strerror}",
            hint="name the Python of the environment that holds vllm in INFUSER_VLLM_PYTHON",
        ) from error


def _own_code(scratch: Path) -> Path:
    """A folder with a link to this package alone: its own folder may hold libraries of another environment."""
    package = Path(str(infuser_core.__file__)).parent
    link = scratch / "code" / package.name
    link.parent.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(package)
    return link.parent


def _environment(own: Mapping[str, str], *, code: Path) -> dict[str, str]:
    path = os.pathsep.join([str(code), *filter(None, [os.environ.get("PYTHONPATH")])])
    # The current folder may hold modules of any name.
    return DEFAULTS | dict(os.environ) | dict(own) | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
