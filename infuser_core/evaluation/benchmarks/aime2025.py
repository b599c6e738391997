"""Benchmark AIME 2025: part I and part II, fifteen problems each."""

from dataclasses import replace

from infuser_core.evaluation.benchmarks import aime2024

BENCHMARK = replace(
    aime2024.BENCHMARK,
    name="aime2025",
    title="AIME2025",
    repos=("opencompass/AIME2025",),
    split="test",
    revision="a6ad95f611d72cf628a80b58bd0432ef6638f958",
    files=("aime2025-I.jsonl aime2025-II.jsonl", "data/train-*.parquet", "*.jsonl"),
)
