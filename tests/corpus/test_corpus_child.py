"""A child process that exceeds a limit ends as an error of ours."""

import pytest

from infuser_core.child import Limits, call
from infuser_core.errors import DocumentError


def test_the_result_comes_back():
    assert call("builtins:dict", {"a": 1}, Limits()) == {"a": 1}


def test_the_wall_limit_kills():
    with pytest.raises(DocumentError, match="still running"):
        call("signal:sigwait", {"sigset": [10]}, Limits(wall_seconds=0.3))


def test_the_memory_limit_holds():
    with pytest.raises(DocumentError, match="Cannot allocate memory"):
        call("mmap:mmap", {"fileno": -1, "length": 1 << 31}, Limits(memory_bytes=1 << 29))
