"""Export a run's generated questions as a data set: a parquet file, also readable as `data.dev`, and a card."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from infuser_core.config.overlays import validate
from infuser_core.errors import UsageError
from infuser_core.prompts.templates import LETTERS
from infuser_core.results.export.card import base_text, render, textbooks
from infuser_core.results.export.model import number_of
from infuser_core.results.lineage.graph import graph_of
from infuser_core.schemas import InfluenceScore, ScoreStatus, overview
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.runs import read_config
from infuser_core.store.store import Store
from infuser_core.store.tables import write_rows
from infuser_core.store.views import Lens
from infuser_core.system.durable import refuse_nonempty, replacing_folder

FILE = "questions.parquet"
MEASURED = {name: get_type_hints(InfluenceScore)[name] for name in overview(InfluenceScore)}
"""Columns of influence scores in the data set, with their types."""
_QUERY = f"""
    select q.*, h.source_title, h.header_path, {", ".join(f"h.{name}" for name in MEASURED)}
    from questions q
    join question_history h on h.artifact_key = q.artifact_key and h.question_id = q.question_id
    where q.phase = 'generate_questions' and q.iteration < ?
    order by q.iteration, q.question_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuestion:
    """A generated question in the layout of published question sets."""

    question_id: str
    """Identifier, prefixed with its iteration."""
    question_text: str
    """Question without its choices."""
    choices: list[str]
    """Choices in the order shown; empty for free answers."""
    ground_truth: str
    """The generator's reference answer: the text of a choice, or the value."""
    verifier: str
    """Verifier that compared answers with the reference answer."""
    field: str
    """Broad area of the textbook, or empty."""
    subfield: str
    """Specialisation, or empty."""
    textbook: str
    """Title of the book that it was written from."""
    place: str
    """Headings above the passage."""
    iteration: int
    """Iteration that it was written in, from 0."""


QuestionRow: Any = make_dataclass(
    "QuestionRow",
    [(name, kind if kind is str else kind | None) for name, kind in MEASURED.items()],
    bases=(PublishedQuestion,),
    frozen=True,
    slots=True,
    kw_only=True,
)
"""A published question with its influence columns, which are empty if it was not scored."""


def export_questions(root: Path, run: str, *, iteration: str, out: Path, name: str = ".") -> dict[str, Any]:
    """Write the questions of a run's first `iteration` iterations (or `selected`) into a new folder, and count them.

    Raises UsageError if there are none, or the folder is not empty.
    """
    refuse_nonempty(out, option="--out")
    store = Store(root)
    graph = graph_of(Catalogue(root), run)
    iterations = number_of(graph, store, iteration)
    with closing(Lens(store, runs=[run])) as lens:
        rows = list(_rows(lens, iterations))
    if not rows:
        raise UsageError(f"run {run} wrote no question before iteration {iterations}", hint="give a later --iteration")
    with replacing_folder(out) as draft:
        write_rows(draft / FILE, rows, QuestionRow)
        metadata = {
            "pretty_name": f"Questions of {run}",
            "license": "other",
            "license_name": "see-textbooks",
            "task_categories": ["question-answering", "multiple-choice"],
            "annotations_creators": ["machine-generated"],
            "tags": ["infuser", "synthetic"],
            "configs": [{"config_name": "default", "data_files": FILE}],
        }
        card = render(
            "questions.md",
            sources=textbooks(graph, store),
            metadata=yaml.safe_dump(metadata, sort_keys=False),
            name=name,
            file=FILE,
            run=run,
            rows=rows,
            measured=list(MEASURED),
            iterations=iterations,
            scored=sum(row.score is not None for row in rows),
            base=base_text(validate(read_config(root, run))),
        )
        (draft / "README.md").write_text(card, encoding="utf-8")
    return {"out": str(out), "questions": len(rows)}


def _rows(lens: Lens, iterations: int) -> Iterator[Any]:
    for row in lens.query(_QUERY, [iterations]):
        if row["status"] != ScoreStatus.SCORED:
            row["score"] = None
        choices, answer = list(row["choices"]), row["answer"]
        yield QuestionRow(
            question_id=f"{row['iteration']}-{row['question_id']}",
            question_text=row["text"],
            choices=choices,
            ground_truth=choices[LETTERS.index(answer)] if choices else answer,
            verifier=row["verifier"],
            field=row["domain"],
            subfield=row["subdomain"],
            textbook=row["source_title"] or "",
            place=row["header_path"] or "",
            iteration=row["iteration"],
            **{name: row[name] or "" if kind is str else row[name] for name, kind in MEASURED.items()},
        )
