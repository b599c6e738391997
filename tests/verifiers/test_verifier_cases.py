r"""The table of hand-made cases: what each preset reads in a response, says and why; also what the authors' code does.

A row of `verifier_cases.jsonl` names the rule it is about. `asked` is a verifier or a reader: `boxed` (the box that
counts), `unwrap` (text wrappers off), `phrase` (BIG-Bench Extra Hard's answer phrases), `program`. `found` holds, per
preset, the verdict, the extracted answer and the reason, or what the reader returned.
"""

import json
from collections import defaultdict
from typing import Any

import pytest
from places import DATA
from verifier_cases import question

from infuser_core.plugins import VERIFIERS
from infuser_core.verifiers.code import extract_program
from infuser_core.verifiers.parts import extract
from infuser_core.verifiers.parts.batch import find_verifier
from infuser_core.verifiers.parts.grading import Grading

ROWS = [json.loads(line) for line in (DATA / "verifier_cases.jsonl").read_text().splitlines()]
READERS = {"boxed": extract.boxed, "program": extract_program}
RULES: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
for each in ROWS:
    RULES[each["asked"], each["rule"]].append(each)


def found(row: dict[str, Any], preset: str) -> object:
    """What the code under test makes of a row."""
    asked, response = row["asked"], row["response"]
    if asked in READERS:
        return READERS[asked](response, preset=preset)
    if asked in ("unwrap", "phrase"):
        return extract.unwrap(response) if asked == "unwrap" else extract.official_bbeh(response)
    grading, choices = Grading(**row.get("grading", {})), row.get("choices", 0)
    asks = question(row["answer"], choices=choices, verifier=asked, text=row.get("text", "?"), grading=grading)
    finding = find_verifier(asked).check(response, asks, preset=preset)
    return [finding.verdict, finding.extracted, finding.reason]


@pytest.mark.parametrize(("asked", "rule"), RULES)
def test_every_row_is_read_and_judged_as_the_table_says(asked: str, rule: str):
    rows = RULES[asked, rule]
    wanted = [(row, preset, said) for row in rows for key, said in row["found"].items() for preset in key.split(",")]
    assert wanted
    assert [(row, preset) for row, preset, said in wanted if found(row, preset) != said] == []


def test_the_table_covers_every_verifier_reader_and_preset():
    asked = {row["asked"] for row in ROWS}
    assert asked == {*VERIFIERS.names(), "boxed", "unwrap", "phrase", "program"} - {"code"}
    for name in asked - {"unwrap", "phrase"}:
        presets = {preset for row in ROWS if row["asked"] == name for key in row["found"] for preset in key.split(",")}
        assert presets == set(extract.PRESETS), name
