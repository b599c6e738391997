"""The page for new contributors names files and phases that exist, and the path of a question stays short."""

import re

from places import ROOT

from infuser_core.config.phase_table import Phase, PipelinePart

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:flows|tasks|corpus|infuser_core|tests|docs)/[\w/]+\.py)`", PAGE)))


def test_every_file_that_the_page_names_exists():
    assert len(PATHS) >= 30
    assert [path for path in PATHS if not (ROOT / path).is_file()] == []


def test_a_question_passes_at_most_20_files():
    steps = re.findall(r"^\| (\d+) \| `([^`]+)`", PAGE, flags=re.M)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 0 < len(steps) <= 20


def test_the_table_of_phases_is_that_of_the_code():
    rows = re.findall(r"^\| ([^|]+) \| ((?:`\w+`(?:, )?)+) \| [^|]+ \|$", PAGE.split("## The phases")[1], flags=re.M)
    table = {part: re.findall(r"`(\w+)`", phases) for part, phases in rows}
    assert table == {part.value: [phase.value for phase in Phase if phase.facts.part is part] for part in PipelinePart}
