"""AIME 2025: part I and part II, fifteen problems each."""

from infuser_core.benchmarks.aime2024 import AIME_ANSWER, AIME_PROBLEM, aime_reader
from infuser_core.benchmarks.parts.spec import Benchmark

BENCHMARK = Benchmark(
    name="aime2025",
    title="AIME2025",
    category="math",
    repos=("opencompass/AIME2025",),
    split="test",
    revision="a6ad95f611d72cf628a80b58bd0432ef6638f958",
    files=("aime2025-I.jsonl aime2025-II.jsonl", "data/train-*.parquet", "*.jsonl"),
    rows=30,
    samples=32,
    verifier="integer",
    fields=(AIME_PROBLEM, AIME_ANSWER),
    read=aime_reader("aime2025", 2025),
)
