"""The pinned packages install on every Python that the project names."""

from importlib.metadata import distributions

import pytest
from packaging.specifiers import SpecifierSet


@pytest.mark.parametrize("python", ["3.11.2", "3.12.0", "3.13.0"])
def test_no_pinned_package_asks_for_a_newer_python(python: str):
    # 3.11.2 is that of Debian 12.
    asked = {found.name: SpecifierSet(found.metadata["Requires-Python"] or "") for found in distributions()}
    assert len(asked) > 100 and [name for name, versions in asked.items() if not versions.contains(python)] == []
