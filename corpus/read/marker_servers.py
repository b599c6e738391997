"""Servers with marker's models: one set of them serves one book after the other, and ends with the worker that has it.

marker 2 leaves them running in sessions of their own, and finds those of others by records in the home folder. A home
of its own for a worker's commands is therefore a set of servers of its own.
"""

import json
import re
import shutil
import tempfile
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from infuser_core.system import child

GIVEN_UP = re.compile(
    r"^\S*LocalEntryNotFoundError|Failed to download \S+ after|^\S*OfflineModeIsEnabled", re.MULTILINE
)
"""Last words of a helper server; the command goes on waiting for it, for minutes and without a word."""
SERVER_FOLDER = ".cache/datalab/surya"
PAGES = 5000
"""Pages after which the servers are started anew."""
DOCKER_SECONDS = 60.0
REAL_HOME = {
    "XDG_CACHE_HOME": ".cache",
    "DOCKER_CONFIG": ".docker",
    "DOCKER_HF_CACHE_PATH": ".cache/huggingface",
}
"""Folders below the user's home that a command with another home still needs."""


class Servers(AbstractContextManager["Servers"]):
    """The servers of all commands that are given this home; they end with it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="infuser-marker-", ignore_cleanup_errors=True)
        self.home = Path(self._folder.name)
        """Home of the commands that share them."""
        self.proven = False
        """Whether they have served a page."""
        self._pages = 0

    def environment(self) -> dict[str, str]:
        """Variables of a command."""
        places = {name: str(Path.home() / folder) for name, folder in REAL_HOME.items()}
        given = child.environment_here()
        mine = {"VLLM_GPUS": given[child.CARDS]} if given.get(child.CARDS) else {}
        return {**places, **mine, **given, "SURYA_INFERENCE_KEEP_ALIVE": "true", "HOME": str(self.home)}

    def given_up(self) -> str:
        """Last words of a server that gave up; empty while none did."""
        logs = sorted(self.home.glob(f"{SERVER_FOLDER}/*.log"))
        ends = (file.read_text(errors="replace")[-child.TAIL_BYTES :] for file in logs)
        return next((said for said in ends if GIVEN_UP.search(said)), "")

    def served(self, pages: int) -> None:
        """Count pages; after many the servers end, and what they let grow with them."""
        self.proven = True
        self._pages += pages
        if self._pages >= PAGES:
            self.end()

    def end(self) -> None:
        """End the servers and forget them; the next command starts new ones."""
        self._pages = 0
        for record in self.home.glob(f"{SERVER_FOLDER}/*_server.json"):
            with suppress(OSError, ValueError, AttributeError):
                facts = json.loads(record.read_text())
                if facts.get("cleanup_kind") == "docker":
                    child.run(["docker", "stop", str(facts["cleanup_id"])], wall_seconds=DOCKER_SECONDS)
        while child.kill_by_home(self.home):
            time.sleep(0.05)
        shutil.rmtree(self.home / SERVER_FOLDER, ignore_errors=True)

    def __exit__(self, *error: object) -> None:
        self.end()
        self._folder.cleanup()
