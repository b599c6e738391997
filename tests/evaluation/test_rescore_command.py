"""`infuser rescore` and `infuser passk`: saved answers under other presets, and their pass@k curves."""

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from statistics import mean

import pytest
from launcher import ROOT, Launcher, SmallRun

from infuser_core.evaluation.plan import AskedQuestion, single_plan
from infuser_core.evaluation.record import EvaluationRecord
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question
from infuser_core.store.tables import read_rows, save_rows, write_rows

PRESETS = ("paper", "official", "strict-last", "phrase")
TEXTS = ["\\boxed{A}", "\\boxed{B. because}", "\\boxed{A} or \\boxed{B}", "the answer is B", "\\boxed{Because}"]


def question(number: int) -> Question:
    return Question(
        question_id=f"q{number}",
        text="which?",
        choices=["w", "x", "y", "z"],
        answer="B",
        verifier="choice",
        domain="",
        subdomain="",
    )


def responses(count: int) -> list[BenchmarkResponse]:
    return [
        BenchmarkResponse(
            benchmark="letters",
            question_id=f"q{number}",
            sample_index=index,
            response=f"thought {number} {TEXTS[(number + index) % len(TEXTS)]}",
            finish_reason="stop",
            prompt_tokens=1,
            response_tokens=2,
        )
        for number in range(count)
        for index in range(2)
    ]


def exam(path: Path, count: int = 10) -> Path:
    """A folder as `infuser eval --out` writes it."""
    plan = single_plan("letters", [question(n) for n in range(count)], samples=2, title="Letters", category="general")
    EvaluationRecord(model="m", identity={"model": "m"}, sheets=plan.sheets).write(path)
    save_rows(path / "questions.parquet", plan.question_rows(), AskedQuestion)
    save_rows(path / "responses.parquet", responses(count), BenchmarkResponse)
    return path


def without_torch(*arguments: str, store: Path) -> dict:
    """`infuser` in a process of its own, which must not load what needs an accelerator."""
    code = (
        "import sys; sys.argv = ['infuser', *sys.argv[1:]]\n"
        "import flows.cli.main\n"
        "try: flows.cli.main.main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "heavy = {'torch', 'transformers', 'prefect', 'ray', 'vllm'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = {**os.environ, "INFUSER_STORE": str(store)}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done
    return json.loads(done.stdout)


def test_a_folder_is_scored_under_every_preset_without_torch(tmp_path: Path):
    out = tmp_path / "verdicts"
    found = without_torch("eval", "rescore", str(exam(tmp_path / "exam")), "--out", str(out), "--json", store=tmp_path)
    accuracies = {row["preset"]: row["accuracy"] for row in found["scores"]}
    # Of the five texts the paper's rule takes none, the lenient ones `B. because`, the last box, and the first letter.
    assert accuracies == {"paper": 0.0, "official": 0.6, "strict-last": 0.4, "phrase": 0.6}
    assert found["responses"] == 20 and found["changed"] == 16
    differing = {row["preset"]: row["differing"] for row in found["scores"]}
    assert differing == {"paper": 0, "official": 12, "strict-last": 8, "phrase": 12}
    kinds = {(c["after"], c["before_verdict"], c["after_verdict"]): 0 for c in found["changes"]}
    by_phrase = ("phrase", "no_answer", "correct")
    assert set(kinds) == {*((name, "wrong", "correct") for name in PRESETS[1:]), by_phrase}
    assert sum(change["rows"] for change in found["changes"]) == 32
    for preset in PRESETS:
        rows = read_rows(out / f"{preset}.parquet", BenchmarkVerdict)
        assert len(rows) == 20 and {row.preset for row in rows} == {preset}
        assert sum(row.verdict == "correct" for row in rows) / 20 == pytest.approx(accuracies[preset])


def test_a_file_with_its_questions_is_scored_like_the_folder(launch: Launcher, tmp_path: Path):
    def infuser(*arguments: str, store: Path) -> dict:
        ended = launch(*arguments, store=store)
        assert (ended.code, ended.err) == (0, "")
        return json.loads(ended.out)

    exam(tmp_path / "exam")
    whole = infuser("eval", "rescore", str(tmp_path / "exam"), "--json", store=tmp_path)
    write_rows(tmp_path / "rows.parquet", responses(10), BenchmarkResponse)
    questions = tmp_path / "exam" / "questions.parquet"
    of_parquet = infuser(
        "eval", "rescore", str(tmp_path / "rows.parquet"), "--questions", str(questions), "--json", store=tmp_path
    )
    names = [field for field in BenchmarkResponse.__dataclass_fields__]
    lines = [json.dumps({name: getattr(row, name) for name in names}) for row in responses(10)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    released = [
        {"question_id": f"q{n}", "question_text": "which?", "choices": ["w", "x", "y", "z"], "ground_truth": "x"}
        for n in range(10)
    ]
    (tmp_path / "questions.json").write_text(json.dumps(released))
    arguments = ["--questions", str(tmp_path / "questions.json"), "--out", str(tmp_path / "out")]
    of_lines = infuser("eval", "rescore", str(tmp_path / "rows.jsonl"), *arguments, "--json", store=tmp_path)
    for found in (of_parquet, of_lines):
        assert {**found, "answers": "", "scores": []} == {
            **whole,
            "answers": "",
            "scores": [],
            "averages": found["averages"],
        }
        assert found["scores"] == whole["scores"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{name}.parquet" for name in sorted(PRESETS)]


@pytest.mark.slow
def test_a_runs_evaluations_keep_the_verdicts_they_had(small_run: SmallRun, tmp_path: Path, launch: Launcher):
    ended = launch("eval", "rescore", small_run.name, "--json", "--out", str(tmp_path), store=small_run.root)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    result = json.loads(launch("result", small_run.name, "--json", store=small_run.root).out)
    by_label = {row["benchmark"]: row["accuracy"] for row in found["scores"] if row["preset"] == "paper"}
    assert by_label["exam@0"] == pytest.approx(result["benchmarks"]["exam"]["anchor"])
    selected = result["selected_iteration"]
    assert by_label[f"exam@{selected}"] == pytest.approx(result["benchmarks"]["exam"]["selected"])


WRONG = {
    "nothing there": (["eval", "rescore", "nowhere"], 2, "nowhere: no saved answers there"),
    "unknown preset": (["eval", "rescore", "exam", "--preset", "paper,loose"], 2, "--preset paper,loose: unknown"),
    "a file alone": (["eval", "rescore", "rows.jsonl"], 2, "rows.jsonl: which questions does it answer?"),
    "a file without a column": (["eval", "rescore", "rows.jsonl", "--questions", "rows.jsonl"], 3, "no question_"),
    "k of nothing": (["eval", "passk", "exam", "--k", "0"], 2, "--k 0: expected whole numbers from 1"),
    "all presets": (["eval", "passk", "exam", "--preset", "all"], 2, "options: preset = 'all'"),
    "two presets": (["eval", "passk", "exam", "--preset", "paper,phrase"], 2, "options: preset = 'paper,phrase'"),
    "unknown benchmark": (["eval", "passk", "exam", "--benchmarks", "maths"], 2, "no answers to maths"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_one_line_and_a_hint(launch: Launcher, tmp_path: Path, case: str):
    exam(tmp_path / "exam", 2)
    (tmp_path / "rows.jsonl").write_text('{"benchmark": "b", "sample_index": 0}\n')
    arguments, code, message = WRONG[case]
    ended = launch(*arguments, store=tmp_path / "store", folder=tmp_path)
    lines = ended.err.splitlines()
    assert ended.code == code and len(lines) == 2 and lines[1].startswith("  hint: "), ended
    assert message in lines[0]


def test_a_damaged_record_and_a_stranger_among_the_answers_are_named(launch: Launcher, tmp_path: Path):
    exam(tmp_path / "exam", 3)
    save_rows(tmp_path / "exam" / "responses.parquet", responses(4), BenchmarkResponse)
    ended = launch("eval", "rescore", "exam", store=tmp_path / "store", folder=tmp_path)
    assert ended.code == 3 and "has no question q3 of letters" in ended.err
    (tmp_path / "exam" / "evaluation.json").write_text("{")
    ended = launch("eval", "rescore", "exam", store=tmp_path / "store", folder=tmp_path)
    assert ended.code == 3 and "evaluation.json is damaged" in ended.err


# pass@k of saved answers: unbiased, refused beyond the samples there are, the same from saved verdicts


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
