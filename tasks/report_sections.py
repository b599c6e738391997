"""Sections of a run's report that take more than its tables: habits of the anchor, its training data, its questions."""

from pathlib import Path

from infuser_core.report import retention
from infuser_core.report.chosen import with_sql
from infuser_core.report.content import Query, Section
from infuser_core.report.mixture import mixture
from infuser_core.report.quality import quality
from tasks.quality_record import read
from tasks.retention import special_tokens


def added(root: Path, run: str, query: Query) -> list[Section]:
    """The sections in reading order."""
    specials = special_tokens(root, run)
    return [
        quality(read(root, run)),
        with_sql(query, lambda asked: retention.section(retention.look(asked, run, specials=specials))),
        with_sql(query, lambda asked: mixture(asked, run)),
    ]
