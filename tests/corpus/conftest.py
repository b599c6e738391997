"""One store with the plain nano corpus for all tests that compose the corpus stages: what is the same is made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus_stages import Built, build, config_of


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
