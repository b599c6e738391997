"""Model servers of marker, a PDF converter: each worker process runs one set for all its books, and ends it at exit.

marker 2 leaves its servers running in separate sessions, and finds running servers by records in the home folder. A
separate home folder per worker therefore gives each worker its own set of servers.
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
"""Last log lines of a server that gave up; marker's command silently waits for such a server for minutes more."""
SERVER_FOLDER = ".cache/datalab/surya"
PAGES = 5000
"""Pages after which the servers are restarted, because their memory grows."""
DOCKER_SECONDS = 60.0
REAL_HOME = {
    "XDG_CACHE_HOME": ".cache",
    "DOCKER_CONFIG": ".docker",
    "DOCKER_HF_CACHE_PATH": ".cache/huggingface",
}
"""Folders in the user's home that marker still needs when it runs with another home folder."""


class Servers(AbstractContextManager["Servers"]):
    """Model servers of all marker commands that share one temporary home folder; closing this object ends them."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="infuser-marker-", ignore_cleanup_errors=True)
        self.home = Path(self._folder.name)
        """Home folder of the commands that share the servers."""
        self.proven = False
        """Whether the servers have converted a page."""
        self._pages = 0

    def environment(self) -> dict[str, str]:
        """Environment variables for a marker command that uses these servers."""
        folders = {name: str(Path.home() / folder) for name, folder in REAL_HOME.items()}
        here = child.environment_here()
        gpus = {"VLLM_GPUS": here[child.CARDS]} if here.get(child.CARDS) else {}
        return {**folders, **gpus, **here, "SURYA_INFERENCE_KEEP_ALIVE": "true", "HOME": str(self.home)}

    def failure(self) -> str:
        """End of the log of a server that gave up; empty if no server did."""
        logs = sorted(self.home.glob(f"{SERVER_FOLDER}/*.log"))
        ends = (file.read_text(errors="replace")[-child.TAIL_BYTES :] for file in logs)
        return next((end for end in ends if GIVEN_UP.search(end)), "")

    def count_pages(self, pages: int) -> None:
        """Count converted pages, and end the servers after PAGES pages, which frees their memory."""
        self.proven = True
        self._pages += pages
        if self._pages >= PAGES:
            self.end()

    def end(self) -> None:
        """End the servers and delete their records; the next command starts new ones."""
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
