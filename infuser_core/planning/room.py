"""Minimum memory and disk of a run, compared with this machine: a run that cannot fit is refused at its start.

Only certain needs count: the planner's parts without its reserve, micro-batches as small as the trainer can make
them, rows of mean length. A run that passes may still run out of memory; `infuser plan` includes a margin.
"""

import math
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infuser_core import settings
from infuser_core.config.phase_table import CHECKPOINTS, GRADIENTS, LOOP
from infuser_core.config.run import KeepSettings, RunConfig
from infuser_core.errors import ConfigError
from infuser_core.memory.hardware import GIB, HOST, PYTHON, Cluster, Gpu, host_memory
from infuser_core.memory.parts import RESERVE, RoleMemory, host_bytes, memory_of_roles
from infuser_core.memory.sizes import LEAST
from infuser_core.planning.advice import advice
from infuser_core.planning.disk import run_files
from infuser_core.planning.hours import SAMPLING
from infuser_core.planning.place import RunPlaces
from infuser_core.planning.setup import Setup
from infuser_core.store.gc import size_on_disk
from infuser_core.store.history import load_history
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.verify import format_size

QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
"""Command that lists accelerators and their memory in MiB; much faster than importing torch."""
DEVICES = ("nvidia[0-9]*", "kfd", "dxg")
"""Device files in /dev that reveal accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRoom:
    """Memory and free disk of the machine on which a run starts."""

    cards: Sequence[float] | None
    """Bytes of every accelerator that programs may use; None if unknown."""
    memory: float
    """Bytes of main memory."""
    disk: float
    """Free bytes of the store's disk."""


Shortage = tuple[str, str]
"""Two texts: the need that exceeds a limit of the machine, and the remedy."""


def this_machine(root: Path) -> MachineRoom:
    """Measure this machine's memory and free disk; the store's folder need not exist yet."""
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    return MachineRoom(cards=visible_accelerators(), memory=host_memory(), disk=float(shutil.disk_usage(existing).free))


def visible_accelerators() -> list[float] | None:
    """Memory in bytes of every accelerator that CUDA_VISIBLE_DEVICES allows; None if unknown."""
    try:
        output = subprocess.run(QUERY, capture_output=True, text=True, timeout=10, check=True).stdout
        rows = [[part.strip() for part in line.split(",")] for line in output.splitlines()]
        devices = [(index, uuid, float(mebibytes) * 2**20) for index, uuid, mebibytes in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None if any(next(Path("/dev").glob(pattern), None) for pattern in DEVICES) else []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [memory for _, _, memory in devices]
    names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    cards = [memory for name in names for index, uuid, memory in devices if name == index or uuid.startswith(name)]
    return cards if len(cards) == len(names) else None


def require_room(config: RunConfig, name: str, places: RunPlaces) -> None:
    """Raise ConfigError if this machine lacks the memory or disk for the run.

    A complete run, and one that ends at a stage outside the loop, is not checked; disk is not checked for a run up to
    a place. A cluster's machines are checked when its engines start.
    """
    root = settings.store_root()
    place = places.only or places.until
    if (place and place.phase not in LOOP) or Journal(root, name).is_finished():
        return
    machine = this_machine(root) if place is None else replace(this_machine(root), disk=math.inf)
    _refuse(shortages(config, machine, stored=_stored_bytes(root, name, config)))


def require_memory(config: RunConfig) -> None:
    """Raise ConfigError if this machine's memory cannot hold the models; its disk is not checked."""
    _refuse(shortages(config, replace(this_machine(settings.store_root()), disk=math.inf)))


def _refuse(problems: Sequence[Shortage]) -> None:
    if problems:
        remedies = dict.fromkeys(remedy for _, remedy in problems)
        raise ConfigError("; ".join(what for what, _ in problems), hint="; ".join(remedies))


def shortages(config: RunConfig, machine: MachineRoom, *, stored: float = 0.0) -> list[Shortage]:
    """Needs that certainly exceed the machine; `stored` are bytes of the run that the store already has."""
    if config.cluster is not None:
        machine = replace(machine, cards=None, memory=math.inf)
    on_cards = config.engine.device != "cpu" and machine.cards != []
    absent = _missing_accelerators(config, machine)
    try:
        setup = Setup.of(config, _as_cluster(machine, on_cards=on_cards))
        return absent or [*_memory_shortages(setup, machine), *_disk_shortages(setup, machine, stored)]
    except ConfigError:
        return absent


def _missing_accelerators(config: RunConfig, machine: MachineRoom) -> list[Shortage]:
    """Shortages of accelerators: the settings require more than the machine has."""
    engine, cards = config.engine, machine.cards
    if cards is None or engine.device == "cpu":
        return []
    if engine.device == "cuda" and not cards:
        what = "engine.device = 'cuda', and this machine has no accelerator"
        return [(what, "run it on a machine with one, or set engine.device auto")]
    ranks = engine.ranks if engine.trainer == "deepspeed" else 1
    if not cards or ranks <= len(cards):
        return []
    what = f"engine.ranks = {ranks}, and the accelerators of this machine are {len(cards)}"
    return [(what, f"set engine.ranks to {len(cards)}, or name a cluster")]


def _as_cluster(machine: MachineRoom, *, on_cards: bool) -> Cluster:
    """The machine as a cluster for the planner; its speed is a dummy value."""
    cards = machine.cards or []
    card = Gpu(
        name="accelerator" if on_cards else HOST,
        memory=min(cards, default=math.inf) if on_cards else machine.memory,
        # The memory that the driver takes varies and may be small: count none.
        context=0.0 if on_cards else PYTHON,
        graphs=0.0,
        flops=1.0,
    )
    return Cluster(gpu=card, nodes=1, per_node=max(1, len(cards)) if on_cards else 1)


def least_memory(setup: Setup) -> list[RoleMemory]:
    """Minimum memory of trainer and sampler: no reserve, and the trainer's smallest micro-batch."""
    engine = setup.config.engine
    halves = engine.trainer == "local" and (engine.token_budget == "auto" or not setup.cluster.gpu.is_host)
    passes = [phase.work.tokens for phase in setup.phases if SAMPLING not in phase.flops]
    most = math.ceil(max(passes, default=0.0))
    layout = replace(setup.layout, token_budget=LEAST if halves else min(setup.layout.token_budget, most))
    roles = memory_of_roles(setup.shape, setup.cluster.gpu, layout, sequence=0.0)
    return [replace(role, parts=tuple(part for part in role.parts if part.name != RESERVE)) for role in roles]


def _memory_shortages(setup: Setup, machine: MachineRoom) -> Iterator[Shortage]:
    engine = setup.config.engine
    if "fake" in (engine.sampler, engine.trainer):
        return
    where = "the main memory" if setup.cluster.gpu.is_host else "an accelerator"
    for role in least_memory(setup):
        if not role.fits:
            what = f"the {role.role} needs {role.total / GIB:.1f} GiB, and {where} has {role.room / GIB:.1f}"
            yield what, _remedy(setup)
    offloaded = host_bytes(setup.shape, setup.layout, per_node=setup.cluster.per_node)
    if offloaded > machine.memory:
        what = f"{offloaded / GIB:.1f} GiB move to the main memory, which has {machine.memory / GIB:.1f}"
        yield what, "set engine.placement split or engine.offload none, or take a larger machine"


def _remedy(setup: Setup) -> str:
    """The first suggestion of the planner with which the run fits, as a hint."""
    for knob in advice(setup) if not setup.cluster.gpu.is_host else []:
        if knob.fits and not knob.settings[0].startswith("--"):
            return f"by the plan it fits with --set {' --set '.join(knob.settings)}"
    return "take a smaller model or a larger machine: `infuser plan CONFIG --gpus 8xH100` shows what fits on which GPUs"


def _disk_shortages(setup: Setup, machine: MachineRoom, stored: float) -> Iterator[Shortage]:
    files = run_files(setup.config, setup.shape)
    if files.peak - stored > machine.disk:
        already = f", {format_size(int(stored))} of them already" if stored else ""
        free = format_size(int(machine.disk))
        what = f"the run keeps {format_size(int(files.peak))} in the store{already}, whose disk has {free} free"
        rule = KeepSettings()
        keep = f"set store.keep={{full: {rule.full}, weights_every: {rule.weights_every}}}, or "
        if setup.config.store.keep:
            keep = ""
        yield what, f"{keep}name a store on a larger disk in INFUSER_STORE"


def _stored_bytes(root: Path, name: str, config: RunConfig) -> float:
    """Bytes of checkpoints and gradients in the store, of the run and of the run that it was forked from."""
    store, names = Store(root), (name, load_history(root, name, config).forked_from)
    state = (*CHECKPOINTS, *GRADIENTS)
    entries = [entry for run in names if run for entry in Journal(root, run).latest() if entry.phase in state]
    folders = {store.folder(entry.key) for entry in entries}
    return float(sum(size_on_disk(folder) for folder in folders if folder.exists()))
