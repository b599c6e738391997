"""Hardware plan of a run as JSON and as text: memory, disk, hours, advice, and the source of every figure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from infuser_core.memory.hardware import GIB
from infuser_core.memory.parts import host_bytes
from infuser_core.planning.advice import advice
from infuser_core.planning.disk import run_files
from infuser_core.planning.hours import (
    KINDS,
    Utilisations,
    assumed_utilisations,
    iteration_seconds,
    known_lengths,
    validation_work,
)
from infuser_core.planning.setup import Setup
from infuser_core.store.verify import format_size
from infuser_core.terminal import format_rows

OVERLAYS = "configs/engine/one-gpu.yaml, eight-gpus.yaml or eight-gpus-split.yaml"
"""Ready-made engine settings that the text recommends."""


def plan_as_json(setup: Setup, measured: Utilisations) -> dict[str, Any]:
    """The whole plan, in seconds and bytes; `measured` utilisations replace assumed ones."""
    config, shape = setup.config, setup.shape
    utilisations = {**assumed_utilisations(config.engine.sampler), **measured}
    pace = {kind: 1 / (setup.rate(kind) * utilisations[kind][0]) for kind in KINDS}
    phases, validation = setup.phases, validation_work(config, shape, setup.lengths)
    overlap = config.engine.overlap and not (setup.layout.turns or setup.layout.shared)
    iteration = iteration_seconds(phases, pace, overlap=overlap)
    hours = iteration * config.cotrain.iterations / 3600
    memory, files = setup.memory, run_files(config, shape)
    return {
        "config": config.name,
        "gpus": setup.cluster.label,
        "model": {"name": shape.name, "parameters": shape.parameters, "cache_bytes_per_token": shape.cache_bytes},
        "layout": asdict(setup.layout),
        "lengths": asdict(setup.lengths),
        "length_sources": {name: source for name, (_, source) in known_lengths(shape.name).items()},
        "utilisations": {kind: {"value": value, "source": source} for kind, (value, source) in utilisations.items()},
        "fits": all(role.fits for role in memory),
        "phases": [
            {
                "phase": phase.name,
                "rows": round(phase.work.groups * phase.work.rows),
                "tokens": round(phase.work.tokens),
                "flops": sum(phase.flops.values()),
                "seconds": round(phase.seconds(pace), 3),
            }
            for phase in phases
        ],
        "totals": {
            "seconds_per_iteration": round(iteration, 3),
            "tokens_per_iteration": round(sum(phase.work.tokens for phase in phases)),
            "iterations": config.cotrain.iterations,
            "hours": round(hours, 3),
            "gpu_hours": round(hours * setup.cluster.ranks, 2),
            "seconds_per_validation": round(validation.seconds(pace), 3),
            "validations": 1 + -(-config.cotrain.iterations // config.cotrain.validate_every),
        },
        "memory": {
            role.role: {
                "parts": {part.name: round(part.bytes) for part in role.parts},
                "total_bytes": round(role.total),
                "room_bytes": round(role.room),
                "fits": role.fits,
            }
            for role in memory
        },
        "host_bytes_per_node": round(host_bytes(shape, setup.layout, per_node=setup.cluster.per_node)),
        "files": {f"{name}_bytes": round(count) for name, count in asdict(files).items()},
        "knobs": [
            {"settings": list(knob.settings), "role": knob.role, "bytes": round(knob.bytes), "fits": knob.fits}
            for knob in advice(setup)
        ],
        "notes": _notes(setup),
    }


def _notes(setup: Setup) -> list[str]:
    notes = []
    layout, engine, ranks = setup.layout, setup.config.engine, setup.cluster.ranks
    for kind, name, used in (
        ("trainer", engine.trainer, layout.trainer_ranks),
        ("sampler", engine.sampler, layout.sampler_ranks),
    ):
        if used < ranks:
            notes.append(f"this program, as configured: engine.{kind} {name} uses {used} of {ranks} GPUs")
    if engine.ranks > ranks:
        notes.append(f"engine.ranks {engine.ranks} is more than the {ranks} GPUs: planned with {ranks}")
    return notes


def plan_as_text(plan: Mapping[str, Any]) -> str:
    """The plan as text for a terminal, from the JSON of `plan_as_json`."""
    model, files, host_memory = plan["model"], plan["files"], plan["host_bytes_per_node"]
    number = model["parameters"]
    parameters = f"{number / 1e9:.2f}B" if number >= 1e8 else f"{number / 1e6:.2f}M"
    per_iteration, checkpoint, in_all, after_gc, peak = (
        format_size(files[f"{name}_bytes"]) for name in ("per_iteration", "checkpoint", "in_all", "after_gc", "peak")
    )
    note = "" if files["peak_bytes"] < files["in_all_bytes"] else ", as no store.keep removes anything during the run"
    return "\n".join(
        [
            f"{plan['config']} on {plan['gpus']}: {model['name']}, {parameters} parameters",
            "",
            _phase_table(plan),
            "",
            *(line for role, memory in plan["memory"].items() for line in _memory_lines(role, memory)),
            *([f"host memory per node, offloaded or asleep: {host_memory / GIB:.0f} GiB"] if host_memory else []),
            *_verdict_lines(plan),
            "",
            f"store: {per_iteration} per iteration ({checkpoint} a checkpoint), {in_all} in all, "
            f"{after_gc} after `infuser gc`",
            f"disk: {peak} at the peak{note}",
            "",
            *_basis_lines(plan),
        ]
    )


def _phase_table(plan: Mapping[str, Any]) -> str:
    totals = plan["totals"]
    rows = [
        {
            "one iteration": phase["phase"],
            "rows": phase["rows"],
            "tokens": f"{tokens / 1e6:.2f}M" if (tokens := phase["tokens"]) >= 1e5 else f"{tokens:.0f}",
            "PFLOP": f"{phase['flops'] / 1e15:.3g}",
            "time": _format_seconds(phase["seconds"]),
        }
        for phase in plan["phases"]
    ]
    sums = {
        "iteration": _format_seconds(totals["seconds_per_iteration"]),
        f"run, {totals['iterations']} iterations": f"{totals['hours']:.1f} h",
        "GPU-hours": f"{totals['gpu_hours']:.0f}",
        f"and {totals['validations']} validations": (
            f"{totals['validations'] * totals['seconds_per_validation'] / 3600:.1f} h"
        ),
    }
    blank = dict.fromkeys(rows[0], "")
    return format_rows([*rows, *(blank | {"one iteration": name, "time": time} for name, time in sums.items())])


def _memory_lines(role: str, memory: Mapping[str, Any]) -> list[str]:
    parts = [f"{name} {count / GIB:.1f}" for name, count in memory["parts"].items() if count >= 0.05 * GIB]
    return [
        f"{role} per GPU: {memory['total_bytes'] / GIB:.1f} of {memory['room_bytes'] / GIB:.1f} GiB",
        *(f"  {', '.join(parts[start : start + 4])}" for start in range(0, len(parts), 4)),
    ]


def _verdict_lines(plan: Mapping[str, Any]) -> list[str]:
    if plan["fits"]:
        return ["it fits"]
    lines = ["it does not fit: " + ", ".join(role for role, memory in plan["memory"].items() if not memory["fits"])]
    for knob in plan["knobs"]:
        then = "fits" if knob["fits"] else "not enough alone"
        lines.append(f"  {knob['role']}: {' '.join(knob['settings'])} -> {knob['bytes'] / GIB:.1f} GiB, {then}")
    return [*lines, f"  or add an overlay: {OVERLAYS}"]


def _basis_lines(plan: Mapping[str, Any]) -> list[str]:
    sources = plan["length_sources"]
    guesses = sorted(name for name, source in sources.items() if source.startswith(("assumed", "inferred")))
    return [
        "basis: memory, store, disk: formula",
        "       rows, tokens, FLOPs: formula over mean lengths; assumptions among them (--tokens NAME=VALUE):",
        f"         {', '.join(guesses) or 'none'}",
        "       time: FLOPs / (GPUs at work x dense rate x utilisation); utilisation by kind of work:",
        *(f"         {kind} {one['value']:.3g}, {one['source']}" for kind, one in plan["utilisations"].items()),
        *(f"note:  {note}" for note in plan["notes"]),
    ]


def _format_seconds(number: float) -> str:
    return f"{number:.0f} s" if number >= 10 else f"{number:.2f} s"
