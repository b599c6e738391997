"""Benchmark OlympiadBench, physics: English competition problems without figures and with a final answer."""

from dataclasses import replace

from infuser_core.evaluation.benchmarks import olympiadbench_math

BENCHMARK = replace(
    olympiadbench_math.BENCHMARK,
    name="olympiadbench_phys",
    title="OlympiadBench (Phys)",
    files=("*OE_TO_physics_en_COMP*.parquet", "*OE_TO_physics_en_COMP*.json", "*OE_TO_physics_en_COMP*.jsonl"),
    rows=236,
)
