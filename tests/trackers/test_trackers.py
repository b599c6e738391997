"""Trackers follow a run from processes of their own: none can stop it or slow it, and each gets every number."""

import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun, copy_store
from places import ROOT

from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError
from infuser_core.planning.preflight import preflight
from infuser_core.plugins import TRACKERS
from infuser_core.results.trackers.parts.files import points_in
from infuser_core.results.trackers.parts.follow import Followers, find_tracker
from infuser_core.results.trackers.parts.points import Point
from infuser_core.store.journal import Journal
from infuser_core.store.runs import METRICS, read_config

NANO = ROOT / "configs" / "nano.yaml"


def point(number: int, **metrics: float) -> Point:
    return Point(
        step=number,
        phase="validate",
        of="validation",
        time=f"2026-01-01T00:00:{number:02}.000+00:00",
        attempt=1,
        state="ran",
        key=f"validate-{number}",
        metrics=metrics or {"accuracy": number / 10},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with its record and three points."""
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    settings = {"seed": 1, "judge": {"api_key": "hush-hush", "url": "http://me:hush@host"}}
    (run / "run.json").write_text(json.dumps({"config": settings}))
    (run / METRICS).write_text("".join(point(number).line() + "\n" for number in range(3)))
    return run


def followed(folder: Path, *names: str) -> list[str]:
    """What was told of trackers from start to end."""
    told: list[str] = []
    Followers(folder, names, told.append).end()
    return told


def seen(folder: Path, name: str = "odd_trackers.good") -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "track" / name / "points.jsonl").read_text().splitlines()]


def test_a_tracker_gets_every_point_once_over_all_attempts_and_no_secret(folder: Path):
    assert followed(folder, "odd_trackers:good") == []
    with (folder / METRICS).open("a") as file:
        file.write("torn\n" + point(3).line() + "\n" + '{"half": ')
    assert followed(folder, "odd_trackers:good", "odd_trackers:good") == []
    first, *rest = seen(folder)
    assert {key: first[key] for key in ("seed", "judge.api_key", "judge.url")} == {
        "seed": 1,
        "judge.api_key": "***",
        "judge.url": "http://***@host",
    }
    assert [line["step"] for line in rest if "step" in line] == [0, 1, 2, 3]
    assert rest[0]["validate/validation/accuracy"] == 0.0
    assert len({line["attempt"] for line in (first, *rest) if "attempt" in line}) == 1


def test_trackers_that_fail_cost_one_warning_each_and_no_time(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_TRACK_SECONDS", "1")
    why = {
        "odd_trackers:raises": "failed: ConnectionError: https://***@nowhere.example does not answer",
        "odd_trackers:dies": "ended before the run did",
        "odd_trackers:hangs": "was not done 1 s after the run and was killed",
        "odd_trackers:slow": "was not done 1 s after the run and was killed",
    }
    told: list[str] = []
    followers = Followers(folder, list(why), told.append)
    deadline = time.monotonic() + 10
    while len(told) < 2 and time.monotonic() < deadline:
        followers.look()
        time.sleep(0.05)
    started = time.monotonic()
    followers.end()
    assert time.monotonic() - started < 3
    left = f"the numbers are in {folder / METRICS}, and the run's next attempt sends them"
    assert sorted(told) == sorted(f"tracker {name} {reason}; {left}" for name, reason in why.items())


def test_a_tracker_ends_with_a_run_that_was_killed(folder: Path):
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from infuser_core.results.trackers.parts.follow import Followers\n"
        "one = Followers(Path(sys.argv[1]), ['odd_trackers:good', 'odd_trackers:hangs'], print)\n"
        "print(*[each.pid for each in one._at_work.values()], flush=True); time.sleep(60)"
    )
    values = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "INFUSER_TRACK_SECONDS": "1"}
    run = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=values, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    pids = [int(word) for word in run.stdout.readline().split()]
    time.sleep(1.0)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [line["step"] for line in seen(folder) if "step" in line] == [0, 1, 2]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_run_with_broken_trackers_has_the_same_rows_and_says_so_once(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    copy_store(small_run.root, tmp_path, without=("score_influence", "update_solver", "validate", "select"))
    names = [f"odd_trackers:{name}" for name in ("good", "raises", "hangs")]
    support = f"{ROOT / 'tests' / 'support'}"
    ended = launch(
        *small_run.arguments,
        "--set",
        f"track={json.dumps(names)}",
        store=tmp_path,
        INFUSER_TRACK_SECONDS="2",
        PYTHONPATH=support,
    )
    assert ended.code == 0, ended.err
    digests = [
        {(each.key, each.digest) for each in Journal(root, small_run.name).latest()}
        for root in (tmp_path, small_run.root)
    ]
    assert digests[0] == digests[1]
    folder = tmp_path / "runs" / small_run.name
    log = (folder / "log.txt").read_text()
    assert [log.count(f"warning: tracker {name}") for name in names] == [0, 1, 1]
    told = [line for line in seen(folder) if "step" in line]
    assert len(told) == len(list(points_in(folder / METRICS))) == len(digests[0])
    assert log_share(log) < 0.01

    again = launch(*small_run.arguments, store=tmp_path)
    assert again.code == 0 and read_config(tmp_path, small_run.name)["track"] == []


def log_share(log: str) -> float:
    """CPU time of the run log over the time of the attempt, as the log's last line has them."""
    words = log.splitlines()[-1].split()
    return float(words[words.index("run") - 4]) / float(words[words.index("after") + 1])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nonsense", "no tracker 'nonsense'"),
        ("odd_trackers:NO_FUNCTION", "is not a function"),
        ("odd_trackers:nothing", "cannot be imported"),
    ],
)
def test_a_wrong_tracker_is_refused_before_the_run(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path))
    with pytest.raises(ConfigError, match=reason):
        preflight(load([NANO], [f"track=[{name!r}]"]))


@pytest.mark.parametrize("name", TRACKERS.names())
def test_a_tracker_without_its_package_is_refused_with_the_command_that_installs_it(name: str):
    module, _ = TRACKERS.find(name)
    if importlib.util.find_spec(module.PACKAGE):
        assert callable(find_tracker(name))
        return
    with pytest.raises(ConfigError, match=module.PACKAGE) as caught:
        find_tracker(name)
    assert f"pip install 'infuser[{name}]'" in caught.value.hint


def test_trackers_are_no_part_of_a_run_s_name():
    assert load([NANO], ["track=[tensorboard, wandb]"]).run_name() == load([NANO]).run_name()


def test_tensorboard_reads_the_numbers_back(folder: Path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    assert followed(folder, "tensorboard") == []
    (path,) = (folder / "track" / "tensorboard").glob("events*")
    data, values = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + size])
        values += [(value.tag, event.step, round(value.simple_value, 3)) for value in event.summary.value]
        data = data[16 + size :]
    assert values == [("validate/validation/accuracy", number, number / 10) for number in range(3)]


def test_mlflow_reads_the_numbers_back(folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    monkeypatch.setenv("INFUSER_TRACK_SECONDS", "60")
    assert followed(folder, "mlflow") == []
    own = folder / "track" / "mlflow"
    client = MlflowClient(f"sqlite:///{own / 'mlflow.db'}")
    found = client.get_run((own / "run_id.txt").read_text())
    assert found.info.status == "FINISHED" and found.data.params["judge.api_key"] == "***"
    history = client.get_metric_history(found.info.run_id, "validate/validation/accuracy")
    assert [(each.step, each.value) for each in history] == [(0, 0.0), (1, 0.1), (2, 0.2)]


def test_wandb_keeps_a_run_to_synchronise(folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("INFUSER_TRACK_SECONDS", "60")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert followed(folder, "wandb") == []
    (path,) = (folder / "track" / "wandb" / "wandb").glob("offline-run-*/run-*.wandb")
    assert path.read_bytes().count(b"validate/validation/accuracy") >= 3


def test_trackio_reads_the_numbers_back(folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("trackio")
    import sqlite3

    monkeypatch.setenv("INFUSER_TRACK_SECONDS", "60")
    assert followed(folder, "trackio") == []
    with sqlite3.connect(folder / "track" / "trackio" / "infuser.db") as base:
        assert base.execute("select step from metrics order by step").fetchall() == [(0,), (1,), (2,)]
