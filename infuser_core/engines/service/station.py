"""The engines of one machine: their scratch folder, their view of a checkpoint's weights, their start and end."""

import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from infuser_core.adapters import base_of
from infuser_core.engines.model_files import link_model_files
from infuser_core.engines.service.handover import HERE
from infuser_core.engines.service.launch import ServiceOptions, launches, visible_cards
from infuser_core.engines.service.process import EngineProcess

VIEW = "model"
"""Name of the folder with the model's files, in the scratch folder that engines run in."""


class Station:
    """Engines on `cards` of this machine, all visible ones when None. `where` is appended to their names."""

    def __init__(
        self, options: ServiceOptions, bell: threading.Event, *, cards: list[str] | None = None, where: str = ""
    ) -> None:
        self._options, self._bell, self._where = options, bell, where
        self._cards = visible_cards() if cards is None else cards
        self._scratch: Path | None = None
        self.machine = HERE
        self.engines: list[EngineProcess] = []

    def start(self, folder: Path, *, longest: int | None) -> None:
        """Fresh engines for sequences of `longest` tokens that take the folder's weights; they say when it is done."""
        self._scratch = scratch = Path(tempfile.mkdtemp(prefix="infuser-engines-"))
        self.show(folder)
        options = replace(self._options, max_model_len=longest)
        for launch in launches(options, model=f"./{VIEW}", scratch=scratch, cards=self._cards):
            self.engines.append(EngineProcess(replace(launch, name=f"{launch.name}{self._where}"), self._bell))

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
            engine.kill()
        self.engines = []
        if self._scratch is not None and not keep_output:
            rmtree(self._scratch, ignore_errors=True)
        self._scratch = None
