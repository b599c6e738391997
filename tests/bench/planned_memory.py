"""Peak memory of a trainer on the CPU compared with the plan, each size in a process of its own.

`python tests/bench/planned_memory.py` goes through all sizes; `python tests/bench/planned_memory.py NAME` through one.
A size is `fitted` where the planner's terms were found on it, and `unseen` where they were not.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from infuser_core.config.overlays import load
from infuser_core.memory.parts import Held, trainer
from infuser_core.memory.shape import Shape
from infuser_core.planning.setup import Setup

NANO = Path(__file__).parents[2] / "configs" / "nano.yaml"
PROMPT, ROWS = 64, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and the micro-batches that it is trained with."""

    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tokens: int
    """Tokens of a micro-batch."""
    checkpointing: bool | int = False
    """With a number, groups of so many tokens are trained beside those of `tokens`."""
    dtype: str = "float32"
    fitted: bool = False

    @property
    def shape(self) -> Shape:
        """As the planner knows it."""
        names = ("hidden", "layers", "ffn", "heads", "kv_heads", "head_dim", "vocabulary")
        return Shape(name="", tied=True, window=0, windowed_layers=0, **{name: getattr(self, name) for name in names})


SIZES = {
    "2M": Size(
        hidden=128, layers=4, ffn=384, heads=8, kv_heads=4, head_dim=64, vocabulary=4096, tokens=1024, fitted=True
    ),
    "27M": Size(
        hidden=512, layers=8, ffn=1536, heads=8, kv_heads=4, head_dim=64, vocabulary=4096, tokens=2048, fitted=True
    ),
    "12M": Size(hidden=256, layers=6, ffn=1024, heads=4, kv_heads=2, head_dim=64, vocabulary=20_000, tokens=4096),
    "135M": Size(hidden=576, layers=30, ffn=1536, heads=9, kv_heads=3, head_dim=64, vocabulary=49_152, tokens=2048),
    "135M, checkpointing": Size(
        hidden=576, layers=30, ffn=1536, heads=9, kv_heads=3, head_dim=64, vocabulary=49_152, tokens=8192,
        checkpointing=True,
    ),
    "14M, products of 4,096 tokens kept": Size(
        hidden=384, layers=8, ffn=1152, heads=6, kv_heads=3, head_dim=64, vocabulary=4096, tokens=6144,
        checkpointing=4096,
    ),
    "14M, bf16, products of 4,096 tokens kept": Size(
        hidden=384, layers=8, ffn=1152, heads=6, kv_heads=3, head_dim=64, vocabulary=4096, tokens=6144,
        checkpointing=4096, dtype="bfloat16",
    ),
    "60M, bf16": Size(
        hidden=640, layers=10, ffn=1792, heads=10, kv_heads=5, head_dim=64, vocabulary=32_000, tokens=2048,
        dtype="bfloat16",
    ),
}  # fmt: skip


def planned(size: Size) -> Held:
    """The planned memory of one role."""
    settings = [
        f"engine.token_budget={size.tokens}",
        f"engine.gradient_checkpointing={str(size.checkpointing).lower()}",
        f"engine.dtype={size.dtype}",
    ]
    asked = Setup.of(load([NANO], settings), "cpu", shape=size.shape)
    layout = replace(asked.layout, warm_trainers=1)
    return trainer(size.shape, asked.cluster.gpu, layout, sequence=PROMPT)


def measured(size: Size) -> Iterator[tuple[str, float]]:
    """Largest resident set after each step of a trainer, MiB."""
    import torch
    from workload import Shape as Model
    from workload import Trainers, make_groups, objective

    torch.set_num_threads(1)
    yield "imports", _peak()
    fields = {name: getattr(size, name) for name in Model.__slots__}
    response = (size.tokens - PROMPT) // ROWS
    groups = make_groups(2, prompt=PROMPT, rows=ROWS, response=response, vocabulary=size.vocabulary)
    if size.checkpointing > 1:
        short = (size.checkpointing - PROMPT) // ROWS
        groups += make_groups(2, prompt=PROMPT, rows=ROWS, response=short, vocabulary=size.vocabulary)
    constants = objective(length_norm=float(response))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = Trainers(folder, Model(**fields), objective=constants)
        options = {"token_budget": size.tokens, "gradient_checkpointing": size.checkpointing, "dtype": size.dtype}
        Path("/proc/self/clear_refs").write_text("5")
        trained = made.make(**options)
        yield "load", _peak()
        trained.probe(groups, constants, made.reference)
        yield "probe", _peak()
        trained.forward_backward(groups, constants, denominator=len(groups))
        yield "gradient", _peak()
        trained.probe(groups, constants, made.reference)
        trained.forward_backward(groups, constants, denominator=len(groups))
        yield "both again", _peak()
        trained.optim_step(1e-4)
        (folder / "saved").mkdir()
        trained.save(folder / "saved")
        yield "step and save", _peak()


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(names: list[str]) -> None:
    for name in names or SIZES:
        done = subprocess.run([sys.executable, __file__, "--alone", name], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        steps: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        plan, most = planned(SIZES[name]), max(steps.values())
        kind = "fitted" if SIZES[name].fitted else "unseen"
        print(f"{name} ({kind}): measured {most:,.0f} MiB, planned {plan.total / 2**20:,.0f}, ", end="")
        print(f"{plan.total / 2**20 / most - 1:+.0%}; by step: ", end="")
        print(", ".join(f"{step} {value:,.0f}" for step, value in steps.items()))
        print("   planned:", ", ".join(f"{part.name} {part.bytes / 2**20:,.0f}" for part in plan.parts if part.bytes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(dict(measured(SIZES[sys.argv[2]]))))
    else:
        main(sys.argv[1:])
