"""Report sections on the corpus and sample questions."""

import re
from collections.abc import Sequence

from infuser_core.report import queries
from infuser_core.report.content import Query, Sample, Section, Table, number, percent, printable, small, text

SHOWN_REASONS = 12
"""Reasons listed per stage and decision; the rest is counted in one row."""
LONGEST_TEXT = 4000
"""Longest text shown of a sample, characters."""

_SHARE = re.compile(r"(?P<of>^|: )(?:minhash_)?(?:recall|false[_ ]matches)(?: \([^)]*\))?(?P<between>_|, )")
"""Names of shares: `recall_edited` of `controls_edited`, `data: recall (exact), edited` of `data: controls, edited`."""

_SAME = ("references", "short_references", "tiny_references", "below_paper_floor")
"""Counts of the questions, with which every group is compared."""


def corpus(query: Query, run: str) -> Section:
    """From textbooks offered to the document pool, and the overlap audit."""
    title = "Corpus"
    found = [table for table in (_funnel(query, run), _pool(query, run), *_audit(query, run)) if table.rows]
    return Section(title=title, lines=[] if found else ["No corpus stages in this run."], tables=found)


def _funnel(query: Query, run: str) -> Table:
    cells: list[list[str]] = []
    shown: dict[tuple[str, bool], int] = {}
    rest: dict[tuple[str, bool], int] = {}
    for row in queries.funnel(query, run):
        key, items = (text(row["stage"]), bool(row["kept"])), row["items"]
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= SHOWN_REASONS:
            cells.append([key[0], "kept" if key[1] else "dropped", text(row["reason"]), number(items)])
        else:
            rest[key] = rest.get(key, 0) + (items if isinstance(items, int) else 0)
    for (stage, kept), items in rest.items():
        cells.append([stage, "kept" if kept else "dropped", "other reasons", number(items)])
    columns = ["stage", "decision", "reason", "items"]
    return Table(title="What was kept and why the rest was not", columns=columns, rows=cells, text_columns=3)


def _pool(query: Query, run: str) -> Table:
    names = ("sources", "chunks", "tokens")
    cells = [[text(row["domain"]), *(number(row[name]) for name in names)] for row in queries.pool(query, run)]
    return Table(title="Document pool", columns=["domain", "textbooks", "chunks", "tokens"], rows=cells)


def _audit(query: Query, run: str) -> list[Table]:
    cells = [
        [
            text(row["pairs"]),
            number(row["compared"]),
            number(row["matched"]),
            _share(row["matched"], row["compared"]),
            number(row["jaccard"]),
            number(row["longest_run"]),
        ]
        for row in queries.overlaps(query, run)
    ]
    columns = ["pairs", "listed", "matched", "matched share", "largest Jaccard", "longest run, words"]
    audit = Table(title="Overlap audit; the share of planted controls found is its recall", columns=columns, rows=cells)
    facts = _facts(query, run)
    recalls = [[name, small(value)] for name, value in facts.items() if _is_share(name)]
    counts = [[name, _fact(value)] for name, value in facts.items() if not _is_share(name)]
    return [
        audit,
        Table(title="Planted overlaps found, and unrelated texts matched", columns=["planted", "share"], rows=recalls),
        Table(title="Audit summary", columns=["quantity", "value"], rows=counts),
    ]


def _facts(query: Query, run: str) -> dict[str, float]:
    """The audits' numbers over all groups of books: counts added up, shares weighted by the controls of their group."""
    groups: dict[str, dict[str, float]] = {}
    rows = query(f"SELECT artifact_key, name, value FROM audit_summary WHERE run = {queries.literal(run)} ORDER BY ALL")
    for row in rows:
        value = row["value"]
        groups.setdefault(text(row["artifact_key"]), {})[str(row["name"])] = value if isinstance(value, float) else 0.0
    names = sorted({name for group in groups.values() for name in group})
    return {name: _over_groups(name, [group for group in groups.values() if name in group]) for name in names}


def _over_groups(name: str, groups: Sequence[dict[str, float]]) -> float:
    if name in _SAME:
        return max(group[name] for group in groups)
    if not _is_share(name):
        return sum(group[name] for group in groups)
    weights = [group.get(_planted(name), 1.0) for group in groups]
    return sum(group[name] * weight for group, weight in zip(groups, weights, strict=True)) / (sum(weights) or 1.0)


def _is_share(name: str) -> bool:
    return bool(_SHARE.search(name))


def _planted(name: str) -> str:
    """The count of the controls that a share is of."""
    return _SHARE.sub(lambda match: f"{match['of'] or ''}controls{match['between']}", name)


def _share(part: object, whole: object) -> str:
    return percent(part / whole) if isinstance(part, int) and isinstance(whole, int) and whole else "-"


def _fact(value: float) -> str:
    return number(int(value)) if value.is_integer() else small(value)


def samples(query: Query, run: str) -> Section:
    """Questions of the first and the last iteration."""
    rows = queries.samples(query, run)
    if not rows:
        return Section(title="Sample questions", lines=["No generated questions in this run."])
    said = "Drawn by a hash of the question's id from the first and the last iteration, not by quality."
    return Section(title="Sample questions", lines=[said], samples=[_sample(row) for row in rows])


def _sample(row: dict[str, object]) -> Sample:
    choices = row["choices"]
    lettered = [
        f"{chr(65 + index)}) {choice}" for index, choice in enumerate(choices if isinstance(choices, list) else [])
    ]
    facts = [
        ("answer", text(row["answer"])),
        ("influence", small(row["score"]) if row["status"] == "scored" else text(row["status"])),
        ("solver accuracy", percent(row["solver_accuracy"])),
        ("document", text(row["document_id"])),
    ]
    texts = [
        ("question", "\n".join([str(row["text"]), *lettered])),
        ("author's reasoning", row["reasoning"]),
        (f"one response ({text(row['verdict'])})", row["response"]),
    ]
    return Sample(
        title=f"Iteration {number(row['iteration'])}: {text(row['question_id'])}",
        facts=facts,
        texts=[(label, _shorten(printable(str(body)))) for label, body in texts if body],
    )


def _shorten(body: str) -> str:
    return (
        body if len(body) <= LONGEST_TEXT else body[:LONGEST_TEXT] + f"\n[{len(body) - LONGEST_TEXT} more characters]"
    )
