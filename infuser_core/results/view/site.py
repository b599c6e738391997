"""Shared parts of the pages of `infuser view`: templates, SQL access, paging, links."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from infuser_core.results.lineage.pages import environment
from infuser_core.schemas import COLUMNS
from infuser_core.store.runs import RUNS
from infuser_core.store.store import Store
from infuser_core.store.verify import format_size
from infuser_core.store.views import Lens, Rows

PER_PAGE = 40
"""Most questions on one page, which keeps it below 5,000 px."""
Number = Annotated[int, Query(alias="page", ge=1, le=1_000_000)]
"""Number of the requested page, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSite:
    """Access of the pages to one store: templates and SQL."""

    root: Path

    def page(self, template: str, /, **values: Any) -> HTMLResponse:
        """Render a template as an HTML response."""
        return HTMLResponse(self.html(template, **values))

    def html(self, template: str, /, **values: Any) -> str:
        """Render a template."""
        return templates().get_template(template).render(**values)

    def lens(
        self, names: Sequence[str] | None, *, iterations: Collection[int] | None = None, shelf: str = RUNS
    ) -> closing[Lens]:
        """Open SQL access to these runs (None: all), to some of their iterations, or to evaluations of any model."""
        return closing(Lens(Store(self.root), runs=names, iterations=iterations, shelf=shelf))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One page of the rows that an SQL statement returns."""

    rows: Rows
    """Rows of this page, with a column `total`."""
    total: int
    """Rows of all pages."""
    page: int
    """Number of this page, from 1; the last page if a later one was requested."""

    @property
    def pages(self) -> int:
        """Number of pages, at least 1."""
        return max(1, -(-self.total // PER_PAGE))


def listing(lens: Lens, statement: str, parameters: Mapping[str, Any], *, order: str, page: int) -> Listing:
    """Run a statement and return one page of its rows in this order; pages count from 1."""
    paged = f"select *, count(*) over () as total from ({statement}) order by {order} limit $size offset $start"
    rows = lens.query(paged, {**parameters, "size": PER_PAGE, "start": PER_PAGE * (page - 1)})
    if rows or page == 1:
        return Listing(rows=rows, total=rows[0]["total"] if rows else 0, page=page)
    total = lens.query(f"select count(*) as total from ({statement})", parameters)[0]["total"]
    return listing(lens, statement, parameters, order=order, page=max(1, -(-total // PER_PAGE)))


def address(run: str, column: str, value: object) -> str:
    """Address of the page about a table cell's value, in a page of this run; empty if there is none."""
    if column == "run":
        return f"/runs/{quote(str(value))}"
    is_link = column in COLUMNS and COLUMNS[column].refers_to and isinstance(value, str) and value and run
    return f"/runs/{quote(run)}/why/{quote(str(value))}" if is_link else ""


@cache
def templates() -> Environment:
    jinja = environment("infuser_core.results.view", "infuser_core.results.lineage")
    jinja.filters["size"] = format_size
    jinja.globals |= {"live": True, "address": address}
    return jinja
