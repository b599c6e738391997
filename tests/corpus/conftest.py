"""What tests of the corpus share: a store with the plain nano corpus, made once, and servers on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus_stages import Built, build, config_of
from loopback import Loopback, serving


@pytest.fixture(scope="session")
def corpus_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus") / "store"


@pytest.fixture(scope="module")
def corpus_store(corpus_root: Path) -> Iterator[Path]:
    """The store, for as long as a file's tests run."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("INFUSER_STORE", str(corpus_root))
        yield corpus_root


@pytest.fixture(scope="module")
def plain(corpus_store: Path) -> Built:
    """The corpus of the nano configuration."""
    del corpus_store
    return build(config_of())


@pytest.fixture
def server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback
