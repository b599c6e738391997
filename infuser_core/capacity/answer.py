"""A forecast as JSON and as text."""

from dataclasses import asdict
from typing import Any

from infuser_core.capacity.advice import Knob
from infuser_core.capacity.forecast import Forecast, Scaled, Timed
from infuser_core.capacity.volume import Files, sources
from infuser_core.memory.hardware import GIB, calibrated
from infuser_core.memory.parts import Held
from infuser_core.store.verify import size
from infuser_core.terminal import table

OVERLAYS = "configs/engine/one-gpu.yaml, eight-gpus.yaml or eight-gpus-split.yaml"
"""Ready-made engine settings."""


def as_json(found: Forecast, knobs: list[Knob], scaled: Scaled | None) -> dict[str, Any]:
    """Everything, in seconds and bytes."""
    asked, shape = found.asked, found.asked.shape
    return {
        "config": asked.config.name,
        "gpus": asked.cluster.label,
        "model": {"name": shape.name, "parameters": shape.parameters, "cache_bytes_per_token": shape.cache_bytes},
        "layout": asdict(asked.layout),
        "lengths": asdict(asked.lengths),
        "length_sources": sources(shape.name),
        "fits": found.fits,
        **_timed(found.timed),
        "memory": {held.role: _held(held) for held in found.held},
        "host_bytes_per_node": round(found.host),
        "files": {f"{name}_bytes": round(count) for name, count in asdict(found.files).items()},
        "knobs": [
            {"settings": list(knob.settings), "role": knob.role, "bytes": round(knob.bytes), "fits": knob.fits}
            for knob in knobs
        ],
        "scaling": asdict(scaled) if scaled else None,
        "notes": found.notes,
    }


def _timed(timed: Timed) -> dict[str, Any]:
    return {
        "phases": [
            {
                "phase": phase.name,
                "seconds": round(phase.seconds, 3),
                "rows": phase.rows,
                "tokens": round(phase.tokens),
                "terms": {name: round(seconds, 3) for name, seconds in phase.terms.items()},
            }
            for phase in timed.phases
        ],
        "totals": {
            "seconds_per_iteration": round(timed.iteration, 3),
            "tokens_per_iteration": round(sum(phase.tokens for phase in timed.phases)),
            "hours": round(timed.hours, 3),
            "gpu_hours": round(timed.gpu_hours, 2),
            "seconds_per_validation": round(timed.validation, 3),
            "validations": timed.validations,
        },
    }


def _held(held: Held) -> dict[str, Any]:
    parts = {part.name: round(part.bytes) for part in held.parts}
    return {"parts": parts, "total_bytes": round(held.total), "room_bytes": round(held.room), "fits": held.fits}


def as_text(found: Forecast, knobs: list[Knob], scaled: Scaled | None) -> str:
    """A page for a terminal."""
    asked = found.asked
    shape = asked.shape
    lines = [
        f"{asked.config.name} on {asked.cluster.label}: {shape.name}, {_parameters(shape.parameters)} parameters",
        "",
        _phase_table(found),
        "",
        *_memory_table(found.held),
        *([f"host memory per node, offloaded or asleep: {found.host / GIB:.0f} GiB"] if found.host else []),
        *_verdict(found, knobs),
        "",
        *_files_lines(found.files),
    ]
    if scaled:
        lines += ["", *_scaling_table(scaled)]
    return "\n".join([*lines, "", *_basis(found)])


def _phase_table(found: Forecast) -> str:
    timed = found.timed
    rows = [
        {"one iteration": p.name, "rows": p.rows or "", "tokens": _count(p.tokens), "time": _seconds(p.seconds)}
        for p in timed.phases
    ]
    totals = {
        "iteration": _seconds(timed.iteration),
        f"run, {found.asked.config.cotrain.iterations} iterations": f"{timed.hours:.1f} h",
        "GPU-hours": f"{timed.gpu_hours:.0f}",
        f"beside that, {timed.validations} validations": f"{timed.validations * timed.validation / 3600:.1f} h",
    }
    return table([*rows, *({**dict.fromkeys(rows[0], ""), "one iteration": n, "time": v} for n, v in totals.items())])


def _memory_table(held: list[Held]) -> list[str]:
    lines = []
    for one in held:
        lines.append(f"{one.role} per GPU: {one.total / GIB:.1f} of {one.room / GIB:.1f} GiB")
        parts = [f"{part.name} {part.bytes / GIB:.1f}" for part in one.parts if part.bytes >= 0.05 * GIB]
        lines += [f"  {', '.join(parts[start : start + 4])}" for start in range(0, len(parts), 4)]
    return lines


def _verdict(found: Forecast, knobs: list[Knob]) -> list[str]:
    if found.fits:
        return ["it fits"]
    lines = ["it does not fit: " + ", ".join(held.role for held in found.held if not held.fits)]
    for knob in knobs:
        then = "fits" if knob.fits else "not enough alone"
        lines.append(f"  {knob.role}: {' '.join(knob.settings)} -> {knob.bytes / GIB:.1f} GiB, {then}")
    return [*lines, f"  or add an overlay: {OVERLAYS}"]


def _files_lines(files: Files) -> list[str]:
    return [
        f"store: {size(round(files.per_iteration))} per iteration ({size(round(files.checkpoint))} a checkpoint), "
        f"{size(round(files.in_all))} in all, {size(round(files.after_gc))} after `infuser gc`",
        f"disk: {size(round(files.peak))} at the peak"
        f"{'' if files.peak < files.in_all else ', as no store.keep removes anything during the run'}",
    ]


def _scaling_table(scaled: Scaled) -> list[str]:
    rows = []
    for each in scaled.sizes:
        name = max(each.phases, key=lambda phase: each.phases[phase])
        rows.append(
            {
                "GPUs": each.gpus,
                "s/iteration": f"{each.iteration:.0f}",
                "speed-up": f"{each.speedup:.2f}",
                "GPU-hours": f"{each.gpu_hours:.0f}",
                "most of it": f"{name} {each.phases[name] / each.iteration:.0%}",
            }
        )
    return [table(rows), f"scaling stops at {scaled.stops_at} GPUs: {scaled.reason}"]


def _basis(found: Forecast) -> list[str]:
    known = sources(found.asked.shape.name)
    guessed = sorted(name for name, source in known.items() if source.startswith(("assumed", "inferred")))
    own = found.asked.efficiency != calibrated()
    constants = [
        "basis: counted work and six constants, fitted on the two wall-clock columns of the paper (4B, 8B) and its",
        "       order of work; no GPU run of this program has been measured",
    ]
    return [
        *(["basis: counted work and the six constants of your file"] if own else constants),
        f"       lengths not measured: {', '.join(guessed)} (--tokens NAME=VALUE)",
        *(f"note:  {note}" for note in found.notes),
    ]


def _count(number: float) -> str:
    return f"{number / 1e6:.2f}M" if number >= 1e5 else f"{number:.0f}" if number else ""


def _seconds(number: float) -> str:
    return f"{number:.0f} s" if number >= 10 else f"{number:.2f} s"


def _parameters(number: int) -> str:
    return f"{number / 1e9:.2f}B" if number >= 1e8 else f"{number / 1e6:.2f}M"
