"""Folders that tests read: the checkout, its configurations, and the tests' own data."""

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
CONFIGS = ROOT / "configs"
DATA = TESTS / "data"
GOLDEN = TESTS / "golden"
