"""Questions of validation and benchmarks, with how every checkpoint of a run answered them: one row per question."""

from dataclasses import dataclass, replace
from typing import Any

from infuser_core.store.views import Lens
from infuser_core.view.site import Listing, listing

CHANGES = {
    "all": "true",
    "won: more right at the end": "last > first",
    "lost: less right at the end": "last < first",
    "never right": "most = 0",
    "always right": "least = 1",
}
"""Change between the first and the last checkpoint in words, to its condition."""
MOST_COLUMNS = 24
"""Checkpoints with a column; of more, the first, the last and a regular choice between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One page of a benchmark's questions."""

    benchmarks: list[str]
    """Benchmarks and the validation set, as far as the run has scores of them."""
    benchmark: str
    """The one that is shown; empty where there is none."""
    checkpoints: list[int]
    """Iterations behind each checkpoint, a column each."""
    listing: Listing
    """Per question that the filter lets through its id, text, domain and `cells`: share right by iterations."""


def sheet(lens: Lens, *, benchmark: str, search: str, change: str, page: int) -> Sheet:
    """Questions of one benchmark, of the first where none or an unknown one is named; pages count from 1."""
    names = [row["name"] for row in lens.query("select distinct benchmark as name from question_scores order by 1")]
    chosen = benchmark if benchmark in names else (names[0] if names else "")
    if not chosen:
        return Sheet(benchmarks=[], benchmark="", checkpoints=[], listing=Listing(rows=[], total=0, page=1))
    seen = lens.query("select distinct iteration as n from question_scores where benchmark = ? order by 1", [chosen])
    checkpoints = _spread([row["n"] for row in seen])
    found = listing(
        lens,
        f"""with shares as (
            select question_id, iteration, any_value(domain) as domain,
                sum(num_correct) / nullif(sum(num_samples), 0) as share
            from question_scores where benchmark = ? group by question_id, iteration),
        moved as (
            select question_id, any_value(domain) as domain, arg_min(share, iteration) as first,
                arg_max(share, iteration) as last, max(share) as most, min(share) as least,
                map_from_entries(list((iteration, share))) as cells
            from shares group by question_id),
        texts as (
            select question_id, any_value(text) as text from (
                select question_id, text from asked_questions union all
                select question_id, text from reference_questions) group by question_id)
        select m.question_id, t.text, m.domain, m.cells
        from moved m left join texts t on t.question_id = m.question_id
        where ({CHANGES.get(change, "true")}) and (contains(lower(coalesce(t.text, '')), lower(?)) or
            contains(m.question_id, ?))""",
        [chosen, search, search],
        order="question_id",
        page=page,
    )
    rows = [{**row, "cells": [row["cells"].get(each) for each in checkpoints]} for row in found.rows]
    return Sheet(
        benchmarks=names,
        benchmark=chosen,
        checkpoints=checkpoints,
        listing=replace(found, rows=rows),
    )


def _spread(iterations: list[Any]) -> list[Any]:
    """So many of these that a screen holds them, with both ends."""
    if len(iterations) <= MOST_COLUMNS:
        return iterations
    step = (len(iterations) - 1) / (MOST_COLUMNS - 1)
    return [iterations[round(place * step)] for place in range(MOST_COLUMNS)]
