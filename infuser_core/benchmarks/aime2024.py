"""AIME 2024, parts I and II, as one data set."""

from infuser_core.benchmarks.parts.competition import AIME_ANSWER, AIME_PROBLEM, aime_reader
from infuser_core.benchmarks.parts.spec import Benchmark

BENCHMARK = Benchmark(
    name="aime2024",
    title="AIME2024",
    category="math",
    repos=("HuggingFaceH4/aime_2024",),
    split="train",
    revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    files=("data/train-*.parquet", "aime_2024_problems.parquet", "*.jsonl"),
    rows=30,
    samples=32,
    verifier="integer",
    fields=(AIME_PROBLEM, AIME_ANSWER),
    read=aime_reader("aime2024", 2024),
)
