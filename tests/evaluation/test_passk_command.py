"""pass@k of saved answers: unbiased, refused beyond the samples there are, the same from saved verdicts."""

import json
from itertools import combinations
from pathlib import Path
from statistics import mean

import pytest
from launcher import Launcher
from test_rescore_command import exam, responses

from infuser_core.schemas import BenchmarkVerdict
from infuser_core.store.tables import read_rows


def passk(launch: Launcher, tmp_path: Path, *arguments: str) -> dict:
    ended = launch("eval", "passk", str(tmp_path / "exam"), *arguments, "--json", store=tmp_path / "store")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def plainly(tmp_path: Path, preset: str, k: int) -> float:
    """Over all subsets of k samples, the share with a correct one."""
    rows = read_rows(tmp_path / "verdicts" / f"{preset}.parquet", BenchmarkVerdict)
    by_question: dict[str, list[bool]] = {}
    for row in rows:
        by_question.setdefault(row.question_id, []).append(row.verdict == "correct")
    return mean(mean(any(some) for some in combinations(own, k)) for own in by_question.values())


def test_the_curve_equals_counting_subsets(launch: Launcher, tmp_path: Path):
    exam(tmp_path / "exam")
    for preset in ("paper", "official", "strict-last"):
        found = passk(launch, tmp_path, "--preset", preset)
        verdicts = ("--out", str(tmp_path / "verdicts"))
        assert launch("eval", "rescore", str(tmp_path / "exam"), *verdicts, store=tmp_path / "store").code == 0
        points = found["curves"]["letters"]
        assert [point["k"] for point in points] == [1, 2]
        for point in points:
            assert point["value"] == pytest.approx(plainly(tmp_path, preset, point["k"]))
            assert point["low"] <= point["value"] <= point["high"] and point["questions"] == 10
        assert passk(launch, tmp_path, "--preset", preset) == found, "from saved verdicts"


def test_k_above_the_samples_is_refused_with_their_number(launch: Launcher, tmp_path: Path):
    exam(tmp_path / "exam")
    ended = launch("eval", "passk", str(tmp_path / "exam"), "--k", "1,2,4,128", store=tmp_path)
    assert ended.code == 2 and ended.out == ""
    assert ended.err.splitlines()[0] == "infuser: pass@4 of letters: there are 2 responses per question"


def test_the_samples_there_are_come_from_the_answers():
    assert {row.sample_index for row in responses(3)} == {0, 1}
