"""Results in the style of common leaderboards: one JSON file per run, written and read.

    {"config": {"model_name", "model_sha", "model_dtype"},
     "results": {benchmark: {metric: value, metric_stderr: value}},
     "versions": {benchmark: version}, "n-shot": {benchmark: number}, "date": seconds since 1970}

Metrics, all fractions between 0 and 1 unless said: `acc` (mean over questions of the share of correct responses; no
answer and unverified are wrong), `acc_lenient` (over scored responses only), `pass@k`, `no_answer` and `unverified`
(shares of responses), `questions` and `samples` (counts). `X_stderr` is the standard error over questions.

Files of common evaluation harnesses are read too: metrics named `acc,filter`, tasks named `suite|task|shots`, standard
errors given as text where there are none, model names and digests under their other usual keys.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from infuser_core.errors import UsageError
from infuser_core.statistics.passk import pass_values
from infuser_core.statistics.tally import Tally, shares, totals

NAMES = ("model_name", "model_name_or_path", "model")
DIGESTS = ("model_sha", "model_revision", "revision")
TYPES = ("model_dtype", "dtype", "precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One evaluated model."""

    model_name: str
    """Model, or checkpoint id."""
    model_sha: str
    """Digest or revision of its weights; empty when unknown."""
    model_dtype: str
    """Number format of the weights; empty when unknown."""
    results: Mapping[str, Mapping[str, float]]
    """Metrics by benchmark, `X_stderr` beside `X`."""
    versions: Mapping[str, str]
    """Version by benchmark."""
    n_shot: Mapping[str, int]
    """Worked examples in the prompt, by benchmark."""
    date: float
    """When it was measured, seconds since 1970."""


def metrics(tally: Tally, *, ks: Sequence[int] = ()) -> dict[str, float]:
    """The metrics of one benchmark, with pass@k for every k; standard errors where there are two questions or more.

    Raises UsageError for a k above the number of samples, or without questions.
    """
    if not tally.question_ids:
        raise UsageError("no questions to report", hint="evaluate the benchmark first")
    counted = totals(tally)
    found = _with_error("acc", shares(tally))
    values_QK = pass_values(tally, ks)
    for at, k in enumerate(ks):
        found |= _with_error(f"pass@{k}", values_QK[:, at])
    if counted.valid:
        found["acc_lenient"] = counted.lenient
    return found | {
        "no_answer": float(tally.no_answer_Q.sum()) / counted.total,
        "unverified": float(tally.unverified_Q.sum()) / counted.total,
        "questions": float(len(tally.question_ids)),
        "samples": float(counted.total),
    }


def _with_error(name: str, values_Q: np.ndarray) -> dict[str, float]:
    found = {name: float(values_Q.mean())}
    if len(values_Q) > 1:
        found[f"{name}_stderr"] = float(values_Q.std(ddof=1)) / math.sqrt(len(values_Q))
    return found


def to_json(result: RunResult) -> str:
    """The file's text; keys in a fixed order, so that equal results are equal files."""
    config = {"model_name": result.model_name, "model_sha": result.model_sha, "model_dtype": result.model_dtype}
    record = {
        "config": config,
        "results": {name: dict(values) for name, values in result.results.items()},
        "versions": dict(result.versions),
        "n-shot": dict(result.n_shot),
        "date": result.date,
    }
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def write(path: Path, result: RunResult) -> None:
    """Write the file by one atomic rename; its folder must exist."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with draft.open("w", encoding="utf-8") as file:
        file.write(to_json(result))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read(path: Path) -> RunResult:
    """A result of this project or of a common harness. Raises UsageError naming file and field."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint="name a JSON file of one run's results") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: not JSON: {error}", hint="name a JSON file of one run's results") from error
    if not isinstance(record, dict) or not isinstance(record.get("results"), dict):
        raise UsageError(f"{path}: no field `results` with metrics by benchmark", hint="one JSON object per run")
    results: dict[str, dict[str, float]] = {}
    shots = {str(name): int(count) for name, count in _mapping(record, "n-shot", path).items()}
    for task, values in record["results"].items():
        parts = str(task).split("|")
        name = parts[1] if len(parts) > 1 else str(task)
        if len(parts) > 2 and parts[-1].isdigit():
            shots.setdefault(name, int(parts[-1]))
        results[name] = _metrics(values, f"{path}: results of {task}")
    config = _mapping(record, "config", path) | _mapping(record, "config_general", path)
    return RunResult(
        model_name=_first(config, NAMES) or _first(record, NAMES),
        model_sha=_first(config, DIGESTS),
        model_dtype=_first(config, TYPES),
        results=results,
        versions={str(name): str(version) for name, version in _mapping(record, "versions", path).items()},
        n_shot=shots,
        date=_seconds(record.get("date", 0.0), path),
    )


def _mapping(record: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    found = record.get(key) or {}
    if not isinstance(found, dict):
        raise UsageError(f"{path}: `{key}` is {type(found).__name__}", hint="an object by benchmark is expected")
    return dict(found)


def _metrics(values: Any, where: str) -> dict[str, float]:
    """Numbers by metric name without filters; texts, such as an alias or a missing standard error, are no metrics."""
    if not isinstance(values, dict):
        raise UsageError(f"{where}: {type(values).__name__} instead of metrics", hint='e.g. {"acc": 0.5}')
    found: dict[str, float] = {}
    for key, value in values.items():
        name = str(key).partition(",")[0]
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name in found:
            # Two filters of one metric: both stay, under their full names.
            name = str(key)
        found[name] = float(value)
    return found


def _first(config: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((str(config[key]) for key in keys if config.get(key)), "")


def _seconds(value: Any, path: Path) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return float(value) if str(value).replace(".", "", 1).isdigit() else datetime.fromisoformat(value).timestamp()
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: date {value!r}", hint="seconds since 1970, or an ISO date") from error
