"""Measured utilisations, from a file of `infuser rehearse` or from the stages of a run.

A utilisation is the share of the accelerators' dense rate that a kind of work reaches, files and waiting included.
"""

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import LOOP, Phase
from infuser_core.config.shipped import read_yaml
from infuser_core.errors import ConfigError, UsageError
from infuser_core.planning.hours import KINDS, SAMPLING, SCORING, TRAINING, Utilisations
from infuser_core.planning.setup import Setup
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import read_record
from infuser_core.store.runs import find_run, read_config
from infuser_core.store.store import Store

RESPONSES: dict[str, str] = {Phase.ROLLOUT_DEV: "dev_response", Phase.ROLLOUT_QUESTIONS: "solver_response"}
"""Phases whose summary counts response tokens, with the mean length that these give."""


def read_utilisations(path: Path) -> Utilisations:
    """Read utilisations from a YAML file of `infuser rehearse --to`. Raises ConfigError for any other content."""
    hint = "`infuser rehearse CONFIG --gpus 8xH100 --to FILE` writes one"
    content = read_yaml(path, hint=hint)
    for kind, value in content.items():
        if kind not in KINDS or not isinstance(value, float) or not 0 < value < math.inf:
            raise ConfigError(f"--measured {path}: {kind} is {value!r}", hint=hint)
    return {kind: (value, f"measured: {path}") for kind, value in content.items()}


def run_utilisations(root: Path, name: str, gpus: str) -> Utilisations:
    """Utilisations that a run reached on `gpus`, from the seconds of its stages and its actual mean lengths.

    Raises UsageError for a run that computed no phase of an iteration.
    """
    run, store = find_run(root, name), Store(root)
    entries = [entry for entry in Journal(root, run).entries() if entry.state == "ran" and entry.phase in LOOP]
    if not entries:
        raise UsageError(f"--measured {name}: no phase of it ran", hint="name a run that computed an iteration")
    # Skip the first iteration, which includes loading and compiling, unless it is the only one.
    first = min(entry.iteration for entry in entries)
    entries = [entry for entry in entries if entry.iteration > first] or entries
    means: dict[str, list[float]] = {}
    for entry in entries:
        record = read_record(store.folder(entry.key))
        if rows := record.rows.get("rollouts", 0) if entry.phase in RESPONSES else 0:
            means.setdefault(RESPONSES[entry.phase], []).append(max(1.0, record.summary["tokens"] / rows))
        if entry.phase == Phase.GENERATE_QUESTIONS and record.summary.get("written"):
            means.setdefault("valid", []).append(record.summary["valid"] / record.summary["written"])
    setup = Setup.of(validate(read_config(root, run)), gpus)
    own = {quantity: fmean(values) for quantity, values in means.items()}
    setup = replace(setup, lengths=replace(setup.lengths, **own))
    flops, seconds = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
    for phase in setup.phases:
        if timed := [entry.seconds for entry in entries if entry.phase == phase.name]:
            kind = next(kind for kind in (TRAINING, SCORING, SAMPLING) if kind in phase.flops)
            flops[kind] += sum(phase.flops.values())
            seconds[kind] += median(timed)
    return {
        kind: (flops[kind] / seconds[kind] / setup.rate(kind), f"measured: run {run}")
        for kind in KINDS
        if seconds[kind] and flops[kind]
    }
