"""Settings of who judges a pool's chunks, models behind an address included."""

from typing import Annotated, Literal

from pydantic import Field

from infuser_core.config_sources import FolderAnchor, HubAnchor, NanoAnchor, Settings


class EndpointModel(Settings):
    """A model behind an OpenAI-compatible address. The key comes from `INFUSER_API_KEY`."""

    type: Literal["endpoint"]
    model: str = Field(min_length=1)
    """Name that the server knows it by."""
    url: str = Field(pattern=r"^https?://[^\s?#@]+$")
    """Address up to and with the version, e.g. `http://127.0.0.1:8000/v1`."""
    concurrency: int = Field(default=16, gt=0)
    """Requests under way at one time."""


class RuleJudge(Settings):
    """Rules without a model: lists of contents, indexes, references, tables and debris of formulas are dropped."""

    type: Literal["rules"]


class NoJudge(Settings):
    """Every chunk is kept."""

    type: Literal["none"]


JudgeSource = Annotated[
    NanoAnchor | FolderAnchor | HubAnchor | EndpointModel | RuleJudge | NoJudge, Field(discriminator="type")
]
"""What judges chunks: a model's files, a model behind an address, rules, or nobody."""
