"""Converter and audit settings of the library, made from a run's configuration."""

from dataclasses import replace
from pathlib import Path

from corpus.audit.overlap import OverlapConfig, config_of
from corpus.read.convert import ChoiceConfig
from corpus.read.embedded import ConvertConfig, ReadingConfig
from corpus.read.marker import MarkerConfig
from infuser_core import settings
from infuser_core.child import Limits
from infuser_core.config.corpus import ConvertSettings, OverlapSettings


def choice_of(convert: ConvertSettings, work: Path) -> ChoiceConfig:
    """Which converter for which source; `work` keeps what marker finished before a kill."""
    limits = Limits(wall_seconds=convert.seconds, cpu_seconds=int(convert.seconds) + 1)
    return ChoiceConfig(
        embedded=ConvertConfig(reading=ReadingConfig(max_pages=convert.max_pages), limits=limits),
        marker=MarkerConfig(
            # The text layer alone: no command is at hand.
            command="" if convert.type == "pdfium" else settings.marker_command(),
            wall_seconds=convert.seconds,
            memory_bytes=int(convert.marker_gigabytes * 10**9),
            pages_per_range=convert.marker_pages,
            work=work / "marker",
        ),
        always_marker=convert.type == "marker",
    )


def overlap_of(audit: OverlapSettings) -> OverlapConfig:
    """When two texts count as one, with the mode's own values where the settings name none."""
    own = config_of(audit.mode)
    return replace(
        own,
        n=audit.n or own.n,
        containment=audit.containment or own.containment,
        run_words=audit.run_words,
        min_words=audit.min_words,
        paper_min_chars=audit.min_chars,
    )
