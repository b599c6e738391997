"""Start and end the sampling engines of this machine, and link a checkpoint's files into their scratch folder."""

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import infuser_core
from infuser_core.engines.model_files import link_model_files
from infuser_core.engines.service.launch import Launch, ServiceOptions, adapter_settings, launches, visible_cards
from infuser_core.engines.service.server import ADAPTER
from infuser_core.engines.service.weight_transfer import HERE
from infuser_core.errors import EngineError
from infuser_core.store.adapter_files import CONFIG, WEIGHTS, base_folder
from infuser_core.system.worker import WorkerProcess

VIEW = "model"
"""Name of the folder with the model's files, in the scratch folder in which engines run."""

DEFAULTS = {
    # One process per engine: it is watched and killed as a whole.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The newer model runner supports no logits processors, which `Completion.logprobs` as defined here needs.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Defaults for an engine's environment."""


class LocalEngines:
    """Sampling engines on the accelerators `cards`, by default all visible ones. `where` is appended to their names."""

    def __init__(self, options: ServiceOptions, *, cards: list[str] | None = None, where: str = "") -> None:
        self._options, self._where = options, where
        self._cards = visible_cards() if cards is None else cards
        self._scratch: Path | None = None
        self.machine = HERE
        self.engines: list[WorkerProcess] = []

    def start(self, folder: Path, *, longest: int | None) -> None:
        """Start engines for sequences of at most `longest` tokens with the weights of a checkpoint folder.

        Each engine sends `ready` when it has loaded them.
        """
        self._scratch = scratch = Path(tempfile.mkdtemp(prefix="infuser-engines-"))
        self.show(folder)
        options = replace(self._options, max_model_len=longest)
        adapter = adapter_settings(options, folder)
        for launch in launches(options, model=f"./{VIEW}", scratch=scratch, cards=self._cards, adapter=adapter):
            self.engines.append(start_engine(replace(launch, name=f"{launch.name}{self._where}")))

    def show(self, folder: Path, weights: Path | None = None) -> None:
        """Fill the engines' model folder with links to a checkpoint's files.

        An adapter is linked into a folder next to that of its base model, or merged into a copy of it (see
        `launch.adapter_settings`). The optimizer state is left out: an engine would take it for weights. The file
        `weights` replaces the checkpoint's own.
        """
        assert self._scratch is not None, "start comes first"
        view, adapter, base = self._scratch / VIEW, self._scratch / ADAPTER, base_folder(folder)
        for each in (view, adapter):
            rmtree(each, ignore_errors=True)
            each.mkdir()
        if base is None:
            link_model_files(folder, view, weights)
        elif adapter_settings(self._options, folder):
            link_model_files(base, view)
            (adapter / CONFIG).symlink_to((folder / CONFIG).absolute())
            (adapter / WEIGHTS).symlink_to(weights or (folder / WEIGHTS).absolute())
        else:
            # Imported here: torch is slow to import.
            from infuser_core.engines.hf.causal_lm import choose_dtype, save_merged

            save_merged(folder, view, dtype=choose_dtype(self._options.dtype))

    def close(self, *, keep_output: bool = False) -> None:
        """End every engine; `keep_output` keeps the logs that an error names."""
        for engine in self.engines:
            engine.close()
        self.engines = []
        if self._scratch is not None and not keep_output:
            rmtree(self._scratch, ignore_errors=True)
        self._scratch = None


def start_engine(launch: Launch) -> WorkerProcess:
    """Start an engine's process. Raises EngineError if its interpreter cannot be run."""
    # Put on the path through a folder with nothing else: the package's own may hold libraries of this environment.
    package = Path(str(infuser_core.__file__)).parent
    link = launch.folder / "code" / package.name
    link.parent.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(package)
    path = os.pathsep.join([str(link.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        return WorkerProcess(
            [launch.python, "-m", launch.module],
            [json.dumps(launch.settings)],
            name=launch.name,
            log=launch.log.open("w+b"),
            output=f"its output is in {launch.log}",
            folder=launch.folder,
            # The current folder may hold modules of any name.
            environment=DEFAULTS | dict(os.environ) | launch.environment | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        )
    except OSError as error:
        raise EngineError(
            f"{launch.name} cannot be started with {launch.python}: {error.strerror}",
            hint="set INFUSER_VLLM_PYTHON to the Python of the environment with vllm",
        ) from error
