"""What the corpus of a run needs and does not find, before anything is searched or downloaded. Costs no torch."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from infuser_core import settings
from infuser_core.config import FolderAnchor, RunConfig
from infuser_core.errors import ConfigError
from infuser_core.prompts.load import load
from infuser_core.routes.find import needs_documents


def missing(config: RunConfig) -> list[ConfigError]:
    """Everything that is missing on this machine, in the order in which a run would ask for it.

    A run that trains on the dev set alone, or by a route that needs no document, builds no corpus.
    """
    if not needs_documents(config):
        return []
    if config.corpus.pool:
        return [*_pool(config), *_references(config)]
    return [*_models(config), *_marker(config), *_references(config)]


def _pool(config: RunConfig) -> Iterator[ConfigError]:
    if not Path(config.corpus.pool).exists():
        yield ConfigError(
            f"corpus.pool = {config.corpus.pool!r}: no such file or folder",
            hint="name a pool of `infuser corpus build`, or a documents.json",
        )


def _models(config: RunConfig) -> Iterator[ConfigError]:
    corpus = config.corpus
    named = {
        "corpus.catalogue.model": corpus.catalogue.model,
        "corpus.chunk.tokenizer": corpus.chunk.tokenizer,
        "corpus.judge": corpus.judge,
    }
    for key, source in named.items():
        if isinstance(source, FolderAnchor) and not (Path(source.path) / "config.json").is_file():
            message = f"{key}.path = {source.path!r}: no config.json there"
            yield ConfigError(message, hint="name a model folder in Hugging Face layout")
    judge = corpus.judge
    if judge is None or judge.type not in ("rules", "none"):
        try:
            load("judge_chunk", profile=config.prompts)
        except ConfigError as error:
            yield error


def _marker(config: RunConfig) -> Iterator[ConfigError]:
    """The external converter, where every book goes through it. A store with a pool may need no conversion any more."""
    words = shlex.split(settings.marker_command())
    if config.corpus.convert.type != "marker" or (words and shutil.which(words[0])):
        return
    if not any((settings.store_root() / "artifacts" / "pool").glob("*")):
        yield ConfigError(
            f"corpus.convert.type = 'marker': no command {settings.marker_command()!r} is installed",
            hint="install marker-pdf in an environment of its own and name its marker_single in INFUSER_MARKER; or "
            "--set corpus.convert.type=auto",
        )


def _references(config: RunConfig) -> Iterator[ConfigError]:
    overlap = config.corpus.overlap
    for key, paths in (("references", overlap.references), ("mixture", overlap.mixture)):
        for number, path in enumerate(paths):
            if not Path(path).exists():
                yield ConfigError(
                    f"corpus.overlap.{key}.{number} = {path!r}: no such file or folder",
                    hint=f"fetch the data set, correct the path, or --set 'corpus.overlap.{key}=[]'",
                )
