"""The page on presets: every example is run, every preset has ten, and the page names all presets."""

import json
import re
from typing import Any

import pytest
from places import ROOT

from infuser_core.evaluation.verify_lines import Refusals, answer_lines
from infuser_core.verifiers.parts.extract import PRESETS

PAGE = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^## (\S+)\n[^#]*?```jsonl\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))


def test_every_preset_has_a_section_with_ten_examples():
    assert set(BLOCKS) == set(PRESETS)
    assert {name: len(block.splitlines()) for name, block in BLOCKS.items()} == dict.fromkeys(PRESETS, 10)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_examples_come_out_as_the_page_says(preset: str):
    rows: list[dict[str, Any]] = [json.loads(line) for line in BLOCKS[preset].splitlines()]
    asked = [{key: value for key, value in row.items() if key != "verdict"} | {"preset": preset} for row in rows]
    said = answer_lines([json.dumps(row).encode() for row in asked], Refusals())
    assert [json.loads(line)["verdict"] for line in said] == [row["verdict"] for row in rows]
