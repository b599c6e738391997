"""The planner against the paper's wall-clock table: residuals, the fit, and how much of it is tied down.

`python tests/bench/plan.py` prints Markdown. Nothing here is timed but the answer of the command itself.
"""

import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from planner_fit import anchors, left_out, refit, residuals, root_mean_square

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.forecast import scale
from infuser_core.memory.hardware import Efficiency, calibrated

CONFIGS = [ROOT / "configs" / f"qwen3-{size}.yaml" for size in ("4b", "8b")]
LENGTHS = ("dev_response", "solver_response", "generator_response", "spread", "generator_spread")
SHARES = ("valid", "varied_dev", "varied_questions", "generator_prompt", "dev_prompt", "solver_prompt")
ENGINES = ["engine.trainer=deepspeed", "engine.ranks=8", "engine.placement=colocated"]


def table(head: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def cells(asked: dict[str, Asked], kept: Efficiency) -> None:
    unseen = {(row.model, row.phase): row.error for row in left_out(asked)}
    rows = [
        [
            row.model,
            row.phase,
            f"{row.paper:.0f}",
            f"{row.ours:.0f}",
            f"{row.error:+.1%}",
            f"{unseen[row.model, row.phase]:+.1%}",
        ]
        for row in residuals(asked, kept)
    ]
    table(["anchor", "phase", "paper, s", "plan, s", "error", "error with the other model's constants"], rows)


def constants(asked: dict[str, Asked], kept: Efficiency) -> None:
    base, rows, found = root_mean_square(residuals(asked, kept)), [], refit(asked)
    for field in fields(Efficiency):
        value = getattr(kept, field.name)
        off = [root_mean_square(residuals(asked, replace(kept, **{field.name: factor * value}))) for factor in (0.5, 2)]
        rows.append([field.name, f"{value:g}", f"{getattr(found, field.name):.3g}", *(f"{each:.3f}" for each in off)])
    print(f"Root mean square of the fourteen logarithmic errors: {base:.3f}.\n")
    table(["constant", "kept", "fitted again", "rms if halved", "rms if doubled"], rows)


def inputs(asked: dict[str, Asked], kept: Efficiency) -> None:
    rows = []
    for name in LENGTHS + SHARES:
        cells = [name]
        for factor in (0.8, 1.25):
            moved = {
                anchor: replace(
                    plan,
                    lengths=replace(
                        plan.lengths,
                        **{
                            name: min(1.0, factor * getattr(plan.lengths, name))
                            if name in ("valid", "varied_dev", "varied_questions")
                            else factor * getattr(plan.lengths, name)
                        },
                    ),
                )
                for anchor, plan in asked.items()
            }
            found = residuals(moved, kept)
            totals = [f"{row.error:+.1%}" for row in found if row.phase == "total"]
            cells += [" / ".join(totals), f"{max(abs(row.error) for row in found):.0%}"]
        rows.append(cells)
    table(["input", "x 0.8: totals 4B / 8B", "worst cell", "x 1.25: totals", "worst cell"], rows)


def sizes() -> None:
    from infuser_core.config.overlays import load

    for path in CONFIGS:
        plan = Asked.of(load([path], ENGINES), "8xH100")
        plan = replace(plan, layout=replace(plan.layout, sampler_ranks=plan.cluster.ranks))
        found = scale(plan)
        rows = [
            [
                str(size.gpus),
                f"{size.iteration:.0f}",
                f"{size.speedup:.2f}",
                f"{size.gpu_hours:.0f}",
                f"{size.terms['longest']:.0f}",
                f"{size.terms.get('uneven', 0.0):.0f}",
                f"{size.terms['files']:.0f}",
            ]
            for size in found.sizes
        ]
        print(f"{path.stem}, sharded trainer and one sampling engine per GPU:\n")
        table(
            ["GPUs", "s/iteration", "speed-up", "GPU-hours", "longest response, s", "uneven ranks, s", "files, s"], rows
        )
        print(f"Stops at {found.stops_at} GPUs: {found.reason}.\n")


def answer_time() -> None:
    words = [sys.executable, "-m", "flows.cli.main", "plan", str(CONFIGS[1]), "--gpus", "8xH100", "--json"]
    for extra in ([], ["--scale"]):
        start = time.perf_counter()
        subprocess.run([*words, *extra], cwd=ROOT, check=True, capture_output=True)
        print(f"`infuser plan ... --json {' '.join(extra)}`: {time.perf_counter() - start:.2f} s\n")


def main() -> None:
    asked, kept = anchors(CONFIGS), calibrated()
    cells(asked, kept)
    constants(asked, kept)
    inputs(asked, kept)
    sizes()
    answer_time()


if __name__ == "__main__":
    main()
