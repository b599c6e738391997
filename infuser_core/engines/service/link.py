"""Two-way messages with another process through a pipe that cannot deadlock: whoever sends or listens never blocks.

One thread writes what is sent and one reads what comes, so that a full pipe in one direction never keeps the other
from being emptied. Waits for messages have limits, and a link tells how long its oldest unwritten message has waited.
"""

import threading
import time
from collections import deque
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

_CLOSED = object()
"""Last entry of either queue."""


class Inbox:
    """Messages of an engine, wherever that is, which wait until they are asked for."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[Any] = SimpleQueue()

    def put(self, message: tuple[Any, ...]) -> None:
        """Take one in."""
        self._messages.put(message)

    def end(self) -> None:
        """Nothing comes after those that are there."""
        self._messages.put(_CLOSED)

    def receive(self, seconds: float) -> tuple[Any, ...] | None:
        """The next message, or None after `seconds`. Raises EOFError where the other end is gone."""
        try:
            message = self._messages.get(timeout=seconds) if seconds > 0 else self._messages.get_nowait()
        except Empty:
            return None
        if message is _CLOSED:
            self._messages.put(_CLOSED)
            raise EOFError
        received: tuple[Any, ...] = message
        return received


class Link(Inbox):
    """One end of a duplex pipe. `bell` rings when something has come; several links may share one."""

    def __init__(self, pipe: Connection, bell: threading.Event, name: str) -> None:
        super().__init__()
        self._pipe, self._bell = pipe, bell
        self._out: SimpleQueue[Any] = SimpleQueue()
        # Times at which the messages were sent that are not written yet.
        self._unwritten: deque[float] = deque()
        works = {"writer": self._write, "reader": self._read}
        self._threads = [
            threading.Thread(target=work, name=f"{name}, {who}", daemon=True) for who, work in works.items()
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: tuple[Any, ...]) -> None:
        """Queue a message. A dead receiver shows when the next message is asked for."""
        self._unwritten.append(time.monotonic())
        self._out.put(message)

    def waiting_seconds(self) -> float:
        """Age of the oldest message that the other end has not taken; 0 where it took everything."""
        try:
            return time.monotonic() - self._unwritten[0]
        except IndexError:
            return 0.0

    def close(self, seconds: float) -> bool:
        """End the threads, once the other end is gone; False where they have not ended within `seconds`."""
        self._out.put(_CLOSED)
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            # The pipe stays open: its number could belong to another file by the time they look at it.
            return False
        self._pipe.close()
        return True

    def _write(self) -> None:
        while (message := self._out.get()) is not _CLOSED:
            try:
                self._pipe.send(message)
            except OSError:
                # The reader finds the same, and says so.
                return
            self._unwritten.popleft()

    def _read(self) -> None:
        try:
            while True:
                self.put(self._pipe.recv())
                self._bell.set()
        except (EOFError, OSError):
            self.end()
            self._bell.set()
