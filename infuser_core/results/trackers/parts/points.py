"""Metrics of a stage, read from its artifact's record: a readable line, and a point for trackers."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from infuser_core.store.recipe import Record

_SHARES = {"valid_share": ("valid", "written")}
"""Metrics that are the quotient of two numbers of a summary."""
_REMARKS = ("status", "said")
"""Entries of a summary that hold remarks; the value `ok` is not shown."""
_SHOWN = {
    "accuracy": "accuracy {:.3f}",
    "mean_score": "mean score {:+.4f}",
    "valid_share": "valid {:.0%}",
    "labels_agree_with_keys": "labels agree with keys {:.0%}",
    "norm": "gradient norm {:.3g}",
    "steps_taken": "steps {:,.0f}",
    "rows": "{:,.0f} rows",
    "tokens_per_second": "{:,.0f} tokens/s",
}
"""Formats of metrics, in the order shown; other metrics follow with their names."""
_KEPT_BACK = {"seconds", "step", "low", "high", "tokens", "written", "valid", "responses"}
"""Metrics that are written to `metrics.jsonl` but not shown in the readable line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Metrics of one stage of a run: a line of `metrics.jsonl`."""

    step: int
    """Co-training iteration, or -1 outside the loop; for tests, the iterations that the checkpoint has seen."""
    phase: str
    of: str
    """Benchmark or part that tells it from other stages of its phase and iteration; usually empty."""
    time: str
    """Time of the record, ISO 8601."""
    attempt: int
    """Number of the run's start, from 1."""
    state: str
    """ran, or cached: found in the store."""
    key: str
    """Key of the artifact."""
    metrics: Mapping[str, float]
    """Finite numbers by name."""

    def line(self) -> str:
        """The point as a line of JSON."""
        return json.dumps(asdict(self))

    @property
    def values(self) -> dict[str, float]:
        """The metrics under names that are unique in a run, such as `evaluate/nano_target/accuracy`."""
        place = "/".join(part for part in (self.phase, self.of) if part)
        return {f"{place}/{name}": value for name, value in self.metrics.items()}

    @property
    def seconds(self) -> float:
        """Time of the record as seconds since the epoch."""
        return datetime.fromisoformat(self.time).timestamp()


def metrics_of(record: Record, *, seconds: float, tokens: int = 0) -> dict[str, float]:
    """Metrics of a stage: all finite numbers of its summary, shares, rows, seconds, and tokens per second."""
    numbers = dict(_numbers(record.summary))
    shares = {
        name: numbers[part] / numbers[whole]
        for name, (part, whole) in _SHARES.items()
        if part in numbers and numbers.get(whole, 0) > 0
    }
    moved_tokens = numbers.get("tokens") or tokens
    speed = {"tokens_per_second": moved_tokens / seconds} if moved_tokens and seconds > 0 else {}
    return {**numbers, **shares, "rows": sum(record.rows.values()), "seconds": round(seconds, 4), **speed}


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{name}.{key}".lstrip("."))
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield name, value


def in_words(metrics: Mapping[str, float], summary: Mapping[str, Any]) -> str:
    """Metrics and remarks of a stage as one readable line."""
    others = [name for name in metrics if name not in _SHOWN and name not in _KEPT_BACK]
    parts = [words.format(metrics[name]) for name, words in _SHOWN.items() if name in metrics]
    parts += [f"{name.rpartition('.')[2].replace('_', ' ')} {metrics[name]:.6g}" for name in others]
    remarks = [str(summary[name]) for name in _REMARKS if summary.get(name, "ok") != "ok"]
    return ", ".join([*parts, *remarks])
