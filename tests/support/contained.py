"""Tests that run programs need a sandbox: on a host without one they are skipped, with the reason."""

import pytest

from infuser_core.verifiers.sandbox import run
from infuser_core.verifiers.sandbox.program import SandboxUnavailable


def trouble() -> str:
    """Why this host has no sandbox; empty where it has one."""
    try:
        run.find_containment()
    except SandboxUnavailable as error:
        return error.message
    return ""


TROUBLE = trouble()
needs_sandbox = pytest.mark.skipif(bool(TROUBLE), reason=TROUBLE)
