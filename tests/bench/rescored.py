"""Published answers of others, with their graders' verdicts, scored again under every preset.

    .venv/bin/python tests/bench/rescored.py FILE BENCHMARK [--differences OUT.jsonl]

Prints a line of Markdown: answers, published accuracy, and ours under every preset with the answers that are correct for
us alone and for them alone. None of the files is part of this repository:

- math500, gsm8k: the repository microsoft/rho has `rho-1/outputs.zip`; its folders `minerva_math` are MATH-500.
- math500: QwenLM/Qwen2.5-Math, `evaluation/data/eval_rm_maj_example/math_cot_100.jsonl`, 100 problems of MATH.
- gsm8k: GAIR-NLP/abel, `outputs/gsm8k/*.jsonl`.
- mmlu_pro: TIGER-AI-Lab/MMLU-Pro, `eval_results/*.zip`.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from infuser_core.evaluation.dumps import _rows, read_dump
from infuser_core.evaluation.evaluate import grade
from infuser_core.schemas import Verdict
from infuser_core.verifiers.parts.extract import PRESETS

Row = dict[str, Any]


def harness_row(row: Row) -> Row:
    """An output of abel in the columns of math-evaluation-harness; other rows as they are."""
    if "result" not in row:
        return row
    text = row["prompt"].removeprefix("Question:\n").partition("\nAnswer:")[0]
    return {
        "idx": row["id"], "question": text, "gt": row["gold"], "code": [row["response"]], "score": [row["result"]]
    }  # fmt: skip


def published(row: Row) -> tuple[str, list[bool]]:
    """The question's identifier, and the verdicts on its answers."""
    if "score" in row:
        return str(row["idx"]), row["score"]
    return str(row["question_id"]), [row["pred"] == row["answer"]]


def main() -> None:
    """Score one file and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("benchmark")
    parser.add_argument("--differences", type=Path)
    arguments = parser.parse_args()
    rows = [harness_row(dict(row)) for row in _rows(arguments.file)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        questions, responses = read_dump(path, arguments.benchmark)
    by_key = {(arguments.benchmark, question.question_id): question for question in questions}
    verdicts_of = dict(map(published, rows))
    theirs = [bool(verdicts_of[row.question_id][row.sample_index]) for row in responses]
    cells, differences = [arguments.file.stem, f"{len(theirs):,}", f"{sum(theirs) / len(theirs):.1%}"], []
    for preset in PRESETS:
        verdicts = grade(responses, by_key, preset=preset)
        ours = [row.verdict == Verdict.CORRECT for row in verdicts]
        more, fewer = (sum(a > b for a, b in zip(*pair, strict=True)) for pair in ((ours, theirs), (theirs, ours)))
        cells.append(f"{sum(ours) / len(ours):.1%} (+{more} -{fewer})")
        differences += [
            {"preset": preset, "published": other, "verdict": verdict.verdict, "reason": verdict.reason}
            | {"id": row.question_id, "sample": row.sample_index, "extracted": verdict.extracted, "end": row.response[-400:]}
            | {"gold": by_key[row.benchmark, row.question_id].answer}
            for verdict, row, one, other in zip(verdicts, responses, ours, theirs, strict=True)
            if one != other
        ]  # fmt: skip
    print(f"| {' | '.join(cells)} |")
    if arguments.differences:
        arguments.differences.write_text("".join(json.dumps(each) + "\n" for each in differences))


if __name__ == "__main__":
    main()
