"""The page for new contributors names files that exist, and a question's way stays short."""

import re

from places import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:flows|tasks|corpus|infuser_core|tests|docs)/[\w/]+\.py)`", PAGE)))


def test_every_file_that_the_page_names_exists():
    assert len(PATHS) >= 30
    assert [path for path in PATHS if not (ROOT / path).is_file()] == []


def test_a_question_passes_at_most_30_files():
    steps = re.findall(r"^\| (\d+) \| `([^`]+)`", PAGE, flags=re.M)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 0 < len(steps) <= 30
