"""A pool gives results as they end, does a lost worker's items again, and names what costs every worker."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier

import pytest
from served import eventually

from infuser_core.errors import EngineError, KilledProcessError, UsageError
from infuser_core.system import child
from infuser_core.system.worker_pool import ATTEMPTS, LocalPool, Task

ITEMS = [*range(12)]


@contextmanager
def squares(folder: Path) -> Iterator[Callable[[int], int]]:
    """Squares; the first worker that meets a number whose file is there dies of it."""
    (folder / f"opened-{os.getpid()}").touch()

    def work(number: int) -> int:
        deadly = folder / str(number)
        if deadly.exists():
            if deadly.read_text() != "always":
                deadly.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if number < 0:
            raise UsageError(f"{number} is negative")
        return number * number

    yield work


def task(folder: Path, *, apart: bool = True) -> Task:
    return Task(name="squaring", begin=partial(squares, folder), apart=apart)


@pytest.mark.parametrize("apart", [True, False])
def test_every_item_has_its_place_and_a_worker_opens_once(tmp_path: Path, apart: bool):
    found = dict(LocalPool(2).each(task(tmp_path, apart=apart), ITEMS))
    assert found == {place: place * place for place in ITEMS}
    opened = [*tmp_path.glob("opened-*")]
    assert 1 <= len(opened) <= 2 and (f"opened-{os.getpid()}" in {path.name for path in opened}) is not apart


def test_an_items_worker_is_killed_and_another_one_does_it(tmp_path: Path):
    for number in (3, 7):
        (tmp_path / str(number)).touch()
    assert dict(LocalPool(2).each(task(tmp_path), ITEMS)) == {place: place * place for place in ITEMS}
    assert len([*tmp_path.glob("opened-*")]) > 2


def test_an_item_that_costs_every_worker_is_named_and_others_are_kept(tmp_path: Path):
    (tmp_path / "5").write_text("always")
    kept = []
    with pytest.raises(KilledProcessError, match="squaring: 5 lost its worker: a process was killed from outside"):
        kept += [place for place, _ in LocalPool(1).each(task(tmp_path), ITEMS)]
    assert len([*tmp_path.glob("opened-*")]) >= ATTEMPTS


@pytest.mark.parametrize("apart", [True, False])
def test_an_error_of_the_work_ends_it_as_it_is(tmp_path: Path, apart: bool):
    with pytest.raises(UsageError, match="-1 is negative"):
        list(LocalPool(2).each(task(tmp_path, apart=apart), [1, -1, 2]))


def test_a_process_serves_one_task_after_the_other_and_ends_with_the_pool(tmp_path: Path):
    pool = LocalPool(1)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        assert dict(pool.each(task(tmp_path / name), ITEMS)) == {place: place * place for place in ITEMS}
    (process,) = {path.name for path in tmp_path.glob("*/opened-*")}
    pool.close()
    assert not Path("/proc", process.removeprefix("opened-")).exists()


def test_a_process_that_dies_between_two_tasks_costs_no_item(tmp_path: Path):
    pool = LocalPool(1)
    assert dict(pool.each(task(tmp_path), [2])) == {0: 4}
    (opened,) = tmp_path.glob("opened-*")
    os.kill(int(opened.name.removeprefix("opened-")), signal.SIGKILL)
    assert dict(pool.each(task(tmp_path), [3])) == {0: 9}
    pool.close()


class Loud(Exception):
    """An error that pickle writes and cannot read."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{number} is {text}")


@contextmanager
def strange(folder: Path) -> Iterator[Callable[[int], object]]:
    """Results and errors that no process can send."""
    (folder / f"opened-{os.getpid()}").touch()

    def work(number: int) -> object:
        if number < 0:
            raise Loud(number, "negative")
        return (lambda: number) if number > 1 else number

    yield work


@pytest.mark.parametrize(
    ("item", "reason"),
    [(2, "its result cannot be sent from its process: "), (-1, "Loud: -1 is negative; this error cannot be sent")],
)
def test_what_cannot_be_sent_is_an_error_of_the_task_and_costs_no_worker(tmp_path: Path, item: int, reason: str):
    pool = LocalPool(1)
    strangers = Task(name="wondering", begin=partial(strange, tmp_path))
    with pytest.raises(EngineError, match=f"wondering: {item}: {reason}"):
        list(pool.each(strangers, [1, item]))
    assert dict(pool.each(strangers, [1])) == {0: 1}
    assert len([*tmp_path.glob("opened-*")]) == 1
    pool.close()


def killed(folder: Path) -> None:
    """A process that has had an item done, and is killed while its worker rests."""
    list(LocalPool(1).each(task(folder), [2]))
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_workers_of_a_process_that_is_killed_end_too(tmp_path: Path):
    process = get_context("spawn").Process(target=killed, args=(tmp_path,))
    process.start()
    process.join()
    (opened,) = tmp_path.glob("opened-*")
    assert process.exitcode == -signal.SIGKILL
    assert eventually(lambda: not Path("/proc", opened.name.removeprefix("opened-")).exists(), 20)


@contextmanager
def shown(barrier: Barrier | None) -> Iterator[Callable[[int], str]]:
    """The accelerators that a command of the worker sees."""

    def work(number: int) -> str:
        if barrier is not None:
            barrier.wait()
        return child.run(["sh", "-c", "printf %s $CUDA_VISIBLE_DEVICES"], wall_seconds=20.0).out.decode()

    yield work


@pytest.mark.parametrize(("named", "cards"), [("4, GPU-7,2", ["2", "4", "GPU-7"]), ("", [""]), ("-1", ["-1"])])
def test_every_accelerator_has_a_worker_whose_commands_see_no_other(
    monkeypatch: pytest.MonkeyPatch, named: str, cards: list[str]
):
    monkeypatch.setenv(child.CARDS, named)
    # Without as many workers at the same time nobody would come past it.
    together = Barrier(len(cards), timeout=20.0)
    task = Task(name="showing", begin=partial(shown, together), apart=False, accelerator=True)
    pool = LocalPool(7)
    assert sorted(seen for _, seen in pool.each(task, range(len(cards)))) == cards
    # The next task has the same ones, one after the other or beside each other.
    again = replace(task, begin=partial(shown, None))
    assert {seen for _, seen in pool.each(again, range(9))} <= {*cards}
    assert child.environment_here()[child.CARDS] == named
