"""OlympiadBench, physics: English competition problems without figures and with a final answer."""

from infuser_core.benchmarks.olympiadbench_math import FIELDS, olympiad_reader
from infuser_core.benchmarks.parts.spec import Benchmark

BENCHMARK = Benchmark(
    name="olympiadbench_phys",
    title="OlympiadBench (Phys)",
    category="math",
    repos=("Hothan/OlympiadBench",),
    config="OE_TO_physics_en_COMP",
    split="train",
    files=("*OE_TO_physics_en_COMP*.parquet", "*OE_TO_physics_en_COMP*.json", "*OE_TO_physics_en_COMP*.jsonl"),
    rows=236,
    verifier="math",
    fields=FIELDS,
    read=olympiad_reader("olympiadbench_phys"),
)
