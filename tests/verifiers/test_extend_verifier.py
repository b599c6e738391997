"""A verifier of one's own is one small file, named by the questions that it decides."""

import json
from pathlib import Path

from launcher import ROOT, Launcher

from infuser_core.config.run import BenchmarkSettings
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.verifiers.parts.batch import find_verifier

FOLDER = ROOT / "examples" / "my_verifier"
NAME = "examples.my_verifier.my_verifier:load"


def test_it_reads_durations_in_any_unit():
    (tide, *_) = find_benchmark(NAME)(BenchmarkSettings(name=NAME, path=str(FOLDER / "durations.jsonl")))
    check = find_verifier(tide.verifier).check
    said = {text: check(text, tide).verdict for text in (r"\boxed{6.25 h}", r"\boxed{6 h}", r"\boxed{long}", "6.25 h")}
    assert list(said.values()) == ["correct", "wrong", "wrong", "no_answer"]


def test_a_model_s_answers_are_verified_by_it(launch: Launcher, tmp_path: Path):
    ended = launch(
        *("eval", "--model", "nano-wide", "--benchmarks", f"{NAME}={FOLDER / 'durations.jsonl'}", "--json"),
        *("--prompts", "paper", "--prompt-tokens", "4096"),
        store=tmp_path / "store",
    )
    assert ended.code == 0, ended.err
    row = json.loads(ended.out)["benchmarks"]["my_verifier"]
    assert row["questions"] == 3 and row["unverified"] == 0
