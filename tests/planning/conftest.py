"""What tests of planning share: a store of their own."""

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path))
    return tmp_path
