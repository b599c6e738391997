"""Worker pools: spread the items of a long stage over local threads and processes, or processes of a Ray cluster.

A stage passes a task and its items and receives results as they finish; it does not depend on the kind of workers. An
item whose worker dies is repeated by another worker. Results are the same for any number of workers.
"""

import json
import math
import os
import pickle
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from infuser_core.errors import EngineError, InfuserError, KilledProcessError
from infuser_core.system import child
from infuser_core.system.worker import Peer, WorkerProcess, connect

ATTEMPTS = 3
"""Maximum number of attempts at one item: it fails after losing this many workers."""

AHEAD = 2
"""Items per worker that are submitted before earlier results are taken. Finished results wait in memory."""

MOST = 512
"""Maximum number of workers of one task, each of which has a thread in this process."""

Work = Callable[[Any], Any]
"""Function that computes the result of one item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A kind of work to do on items. Functions must be module-level and items plain values, so that pickle works."""

    name: str
    """Name of the work in messages and threads, such as `conversion`."""
    begin: Callable[[], AbstractContextManager[Work]]
    """Opens resources that a worker keeps between items, such as models, and closes them after the last item."""
    item: Callable[[Any], str] = str
    """Name of an item in messages."""
    apart: bool = True
    """Whether a local worker is a process; a thread is enough for work that starts limited processes itself."""
    accelerator: bool = False
    """Whether a worker needs an accelerator. Then each accelerator has one worker; a machine without any has one, too.
    The local worker of an accelerator is a thread, whose commands see only this accelerator."""


class LostWorkerError(InfuserError):
    """A worker died or its machine stopped responding; another worker can repeat its item."""


class ThreadWorker:
    """A worker that computes in the calling thread, whose commands see only the accelerator `card`."""

    def __init__(self, card: str | None = None) -> None:
        self._card = card
        self._work: Work | None = None
        self._stack = ExitStack()

    def do(self, task: Task, item: Any) -> Any:
        """Compute an item's result; the first call opens the task."""
        with child.on_card(self._card):
            if self._work is None:
                self._work = self._stack.enter_context(task.begin())
            return self._work(item)

    def end(self, *, now: bool) -> None:
        """Close the task; with `now`, do nothing: the current item cannot be interrupted and ends by its own limits."""
        if not now:
            self._work = None
            self._stack.close()


class ProcessWorker:
    """A worker that computes in another process, which runs `serve`; it can serve several tasks in succession."""

    def __init__(self, process: Peer) -> None:
        self._process = process

    def do(self, task: Task, item: Any) -> Any:
        """Compute an item's result. Raises LostWorkerError if the process is dead, and errors of the work itself."""
        kind, value = self._ask(task, item)
        if kind == "unsent":
            raise EngineError(
                f"{task.name}: {task.item(item)}: {value}",
                hint="work in processes must return and raise what pickle can copy: plain values, classes of modules",
            )
        if kind == "raised":
            raise value
        return value

    def end(self, *, now: bool) -> None:
        """Close the task; with `now`, kill the process instead."""
        if now:
            self._process.kill()
            return
        # The next task that takes a dead process gets LostWorkerError.
        with suppress(LostWorkerError):
            kind, value = self._ask()
            if kind == "raised":
                raise value

    def close(self) -> None:
        """Kill the process and close its connection."""
        self._process.close()

    def _ask(self, *message: Any) -> tuple[str, Any]:
        try:
            self._process.send(pickle.dumps(message))
            reply: tuple[str, Any] = pickle.loads(self._process.receive(math.inf))
        except EngineError as error:
            was_killed = isinstance(self._process, WorkerProcess) and self._process.was_killed()
            self._process.close()
            reason = "a process was killed from outside" if was_killed else error.message
            raise LostWorkerError(reason) from error
        return reply


def start_process(*, name: str, environment: dict[str, str] | None = None) -> WorkerProcess:
    """Start a process for a ProcessWorker. Its output goes to standard error: standard output is for results."""
    code = f"import json, sys; sys.path[:] = json.loads(sys.argv[2]); from {__name__} import serve; serve(sys.argv[1])"
    return WorkerProcess(
        [sys.executable, "-P", "-c", code],
        [json.dumps([folder or str(Path.cwd()) for folder in sys.path])],
        name=name,
        environment=environment,
        encode=lambda message: bytes(message[0]),
        decode=bytes,
    )


def serve(descriptor: str) -> None:
    """Main loop of a worker process: answers messages, which are `(task, item)`, or `()` to close the task."""
    pipe, worker = connect(descriptor), ThreadWorker()
    with suppress(EOFError):
        while True:
            data = pipe.recv_bytes()
            try:
                message = pickle.loads(data)
                reply = ("done", worker.do(*message) if message else None)
                if not message:
                    worker.end(now=False)
            except Exception as error:  # Raised again in the process that waits for the result.
                error.add_note("".join(traceback.format_exception(error)))
                reply = ("raised", error)
            pipe.send_bytes(pickled_reply(*reply))


def pickled_reply(kind: str, value: Any) -> bytes:
    """Pickle a reply; if pickle cannot copy the result or the error, the reply is `unsent` with the reason."""
    try:
        data = pickle.dumps((kind, value))
        if kind == "raised":
            # Many exception classes can be pickled but not unpickled.
            pickle.loads(data)
    except Exception as error:  # Pickle calls methods of any class, which may raise anything.
        what = "its result" if kind == "done" else f"{type(value).__name__}: {value}; this error"
        text = f"{what} cannot be sent from its process: {type(error).__name__}: {error}"
        return pickle.dumps(("unsent", text))
    return data


class Slot:
    """A place for one worker: a core or an accelerator of a machine."""

    def __init__(self, number: int, *, accelerator: bool, card: str | None = None, node: str = "") -> None:
        self.number, self.accelerator, self.card, self.node = number, accelerator, card, node
        self.worker: ThreadWorker | ProcessWorker | None = None
        """The worker of the task that occupies the slot; None if the slot is free."""
        self.process: ProcessWorker | None = None
        """The slot's process, which is reused by later tasks; None until one is started."""


def slots_of(cores: int, cards: Sequence[str], node: str = "") -> list[Slot]:
    """Create a machine's slots: one per core, and one per accelerator (a single one if it has no accelerator)."""
    return [
        *(Slot(number, accelerator=False, node=node) for number in range(max(cores, 1))),
        *(Slot(number, accelerator=True, card=card, node=node) for number, card in enumerate(cards or [None])),
    ]


class WorkerPool(ABC):
    """A pool of slots for workers: distributes a task's items over them, and reuses processes from task to task."""

    has_threads = False
    """Whether workers can also be threads of this process."""

    def __init__(self, slots: Iterable[Slot] = ()) -> None:
        self._changed = threading.Condition()
        self._slots = set(slots)
        self._free = set(self._slots)

    @property
    def size(self) -> int:
        """Number of workers for tasks that need no accelerator."""
        return self._count_slots(accelerator=False)

    def each(self, task: Task, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Compute all items; yields the index and the result of each item, in the order in which they finish.

        Raises errors of the work, KilledProcessError for an item that lost ATTEMPTS workers, and EngineError if no
        machine is left.
        """
        number = min(max(1, self._count_slots(accelerator=task.accelerator)), len(items))
        if not number:
            return
        run = _TaskRun(self, task)
        threads = ThreadPoolExecutor(number, thread_name_prefix=task.name)
        running: dict[Future[Any], int] = {}
        ahead = iter(enumerate(items))
        try:
            while True:
                for place, item in islice(ahead, number * AHEAD - len(running)):
                    running[threads.submit(run.do, item)] = place
                if not running:
                    return
                # No time limit: if a worker dies, its item's future ends, too.
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    place = running.pop(future)
                    yield place, future.result()
        finally:
            for future in running:
                future.cancel()
            run.end(now=bool(running))
            threads.shutdown()

    def close(self) -> None:
        """Kill all worker processes and remove all slots."""
        with self._changed:
            for slot in self._slots:
                if slot.process is not None:
                    slot.process.close()
            self._slots.clear()
            self._free.clear()

    def start_worker(self, task: Task, slot: Slot) -> ThreadWorker | ProcessWorker:
        """Start a worker in a slot, or reuse the slot's process. Raises EngineError if its machine cannot start one."""
        if self.has_threads and (slot.card is not None or not task.apart):
            return ThreadWorker(slot.card)
        slot.process = slot.process or ProcessWorker(self._start_process(slot))
        return slot.process

    @abstractmethod
    def _start_process(self, slot: Slot) -> Peer:
        """Start a process that runs `serve` on the slot's machine. Raises EngineError if the machine cannot."""

    @abstractmethod
    def _update_machines(self) -> None:
        """Add slots of machines that joined, and remove those of machines that left; the caller holds the lock."""

    def _count_slots(self, *, accelerator: bool) -> int:
        with self._changed:
            self._update_machines()
            return min(MOST, sum(slot.accelerator == accelerator for slot in self._slots))


class LocalPool(WorkerPool):
    """Worker pool on this machine: `workers` workers, by default one per core, and one per accelerator."""

    has_threads = True

    def __init__(self, workers: int | None = None) -> None:
        visible = os.environ.get(child.CARDS)
        # Not by torch, which takes seconds to import.
        files = [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
        names = files if visible is None else [name.strip() for name in visible.split(",")]
        cards = [name for name in names if name not in ("", "-1")]
        super().__init__(slots_of(workers or os.cpu_count() or 1, cards))

    def _update_machines(self) -> None:
        """Do nothing: this machine's slots do not change."""

    def _start_process(self, slot: Slot) -> WorkerProcess:
        del slot
        return start_process(name="a process")


class _TaskRun:
    """One task that is being executed: takes slots from the pool and keeps them, with the task open, until it ends."""

    def __init__(self, pool: WorkerPool, task: Task) -> None:
        self._pool, self._task, self._changed = pool, task, pool._changed
        self._idle: list[Slot] = []
        self._busy: set[Slot] = set()
        self._is_over = False

    def do(self, item: Any) -> Any:
        """Compute one item's result; if a worker is lost, try with another one, up to ATTEMPTS times."""
        reasons: list[str] = []
        while len(reasons) < ATTEMPTS and (slot := self._take_slot()) is not None:
            assert slot.worker is not None, "a taken slot has one"
            try:
                return slot.worker.do(self._task, item)
            except LostWorkerError as error:
                reasons.append(error.message)
                slot.worker = slot.process = None
            finally:
                self._give_back(slot)
        raise KilledProcessError(
            f"{self._task.name}: {self._task.item(item)} lost its worker: {'; '.join(dict.fromkeys(reasons))}",
            hint=f"{child.likely_kill_cause()}; free memory or use fewer workers, and repeat: finished work is kept",
        )

    def end(self, *, now: bool) -> None:
        """Close the task in all its workers; with `now`, abandon unfinished items."""
        with self._changed:
            self._is_over = True
            busy = [slot.worker for slot in self._busy if slot.worker is not None]
            self._changed.notify_all()
        for worker in busy:
            worker.end(now=now)
        for slot in self._idle:
            self._free(slot)

    def _take_slot(self) -> Slot | None:
        """Wait for a slot and its worker, preferably one that has opened the task; None if the task is over.

        A machine that cannot start a worker is removed from the pool. Raises EngineError if no machine is left.
        """
        pool = self._pool
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._idle or self._free_slots() or not pool._slots)
                if self._is_over:
                    return None
                if not pool._slots:
                    raise EngineError(
                        f"{self._task.name}: no machine with workers is left",
                        hint="start machines again, and repeat: finished work is kept",
                    )
                slot = self._idle.pop() if self._idle else min(self._free_slots(), key=lambda slot: slot.number)
                pool._free.discard(slot)
                self._busy.add(slot)
            try:
                slot.worker = slot.worker or pool.start_worker(self._task, slot)
                return slot
            except EngineError:
                with self._changed:
                    pool._slots = {other for other in pool._slots if other.node != slot.node}
                    pool._free &= pool._slots
            finally:
                if slot.worker is None:
                    self._give_back(slot)

    def _free_slots(self) -> list[Slot]:
        return [slot for slot in self._pool._free if slot.accelerator == self._task.accelerator]

    def _give_back(self, slot: Slot) -> None:
        """Keep the slot for the task's next item, or free it if its worker is lost or the task is over."""
        with self._changed:
            self._busy.discard(slot)
            if slot.worker is not None and not self._is_over:
                self._idle.append(slot)
                self._changed.notify_all()
                return
        self._free(slot)

    def _free(self, slot: Slot) -> None:
        """Close the task in the slot's worker, if it has one, and return the slot to the pool."""
        worker, slot.worker = slot.worker, None
        if worker is not None:
            worker.end(now=False)
        with self._changed:
            if slot in self._pool._slots:
                self._pool._free.add(slot)
            self._changed.notify_all()
