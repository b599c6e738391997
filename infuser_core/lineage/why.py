"""`infuser why`: find out what an identifier names, in which run, and have its story told."""

import re
from collections.abc import Sequence
from pathlib import Path

from infuser_core.errors import UsageError
from infuser_core.lineage import checkpoint, documents, question, reference_question
from infuser_core.lineage.answer import Answer, Passage
from infuser_core.lineage.graph import CHECKPOINTS, Graph, graph_of, graphs
from infuser_core.lineage.run_view import Sight
from infuser_core.store.catalogue import Catalogue, Record
from infuser_core.store.runs import list_runs
from infuser_core.store.views import Lens

_WRITTEN = re.compile(r"(?P<iteration>\d+)/(?P<document>.+?)/(?P<index>\d+)((?P<question>-[0-9a-f]+)(/\d+)?)?")
_LEAST = 6
"""Characters below which the beginning of a key names nothing."""


def why(root: Path, name: str, *, run: str | None = None) -> Answer:
    """Where the named thing comes from and what it did. Raises UsageError where nothing in the store has that name."""
    catalogue = Catalogue(root)
    lens = Lens(catalogue, runs=[])
    try:
        answer = _in_a_run(catalogue, lens, name, run) or _in_runs(catalogue, lens, name, run)
    finally:
        lens.close()
    if answer is None:
        where = f"in run {run}" if run else "in any run"
        raise UsageError(
            f"{name}: no question, rollout, checkpoint, document, source, benchmark or artifact {where}",
            hint="ids as `infuser sql` prints them, RUN@ITERATION, RUN/BENCHMARK or RUN/BENCHMARK/QUESTION",
        )
    return answer


def _in_a_run(catalogue: Catalogue, lens: Lens, name: str, run: str | None) -> Answer | None:
    """Names that begin with a run's: RUN@ITERATION, RUN/BENCHMARK and RUN/BENCHMARK/QUESTION."""
    for known in sorted(list_runs(catalogue.root), key=len, reverse=True):
        if run not in (None, known) or not name.startswith((f"{known}@", f"{known}/")):
            continue
        mark, rest = name[len(known)], name[len(known) + 1 :]
        sight = Sight(lens=lens, graph=graph_of(catalogue, known))
        if mark == "/":
            label, _, asked = rest.partition("/")
            found = (
                reference_question.of_given(sight, asked, label=label)
                if asked
                else reference_question.of_benchmark(sight, label)
            )
            if found is not None:
                return found
        elif rest.isdigit():
            return _after(sight, int(rest))
    return None


def _after(sight: Sight, iteration: int) -> Answer:
    record = sight.graph.checkpoint("solver", iteration)
    done = max((r.iteration for r in sight.graph.of(*CHECKPOINTS)), default=-1) + 1
    if record is None or iteration > done:
        raise UsageError(
            f"run {sight.graph.run} has no checkpoint after {iteration} iterations", hint=f"it has done {done}"
        )
    return checkpoint.of_checkpoint(sight, record)


def _in_runs(catalogue: Catalogue, lens: Lens, name: str, run: str | None) -> Answer | None:
    """Everything else: the latest run that knows it, with the others that do."""
    record = _artifact(catalogue, name)
    if record is not None:
        holders = list(graphs(catalogue, run, holding=[record.key]))
        graph = holders[0] if holders else Graph(catalogue, "", catalogue.records)
        return _told(_of_artifact(Sight(lens=lens, graph=graph), record), [g.run for g in holders[1:]])
    match = _WRITTEN.fullmatch(name)
    if match:
        return _generated(catalogue, lens, name, run, match)
    for tell in (_document, _given, _given_rollout, _source):
        for graph in graphs(catalogue, run):
            answer = tell(Sight(lens=lens, graph=graph), name)
            if answer is not None:
                return answer
    return None


def _told(answer: Answer, others: Sequence[str]) -> Answer:
    also = tuple(f"run {other} has it too" for other in others)
    return Answer(
        id=answer.id, kind=answer.kind, run=answer.run, headline=answer.headline, passages=answer.passages, also=also
    )


def _artifact(catalogue: Catalogue, name: str) -> Record | None:
    """The artifact of a key or an id, or of the only one that begins so."""
    if name in catalogue.records:
        return catalogue.records[name]
    if len(name) < _LEAST:
        return None
    found = [record for record in catalogue.records.values() if record.key.startswith(name) or record.id == name]
    if len(found) > 1:
        raise UsageError(f"{len(found)} artifacts begin with {name}", hint=f"e.g. {found[0].key} and {found[1].key}")
    return found[0] if found else None


def _generated(catalogue: Catalogue, lens: Lens, name: str, run: str | None, match: re.Match[str]) -> Answer | None:
    """A generated question or a rollout of either role: its identifier says which iteration wrote it."""
    iteration = int(match["iteration"])
    records = catalogue.records.values()
    places = [r.key for r in records if r.iteration == iteration and r.phase == "generate_questions"]
    rollout = f"{iteration}/{match['document']}/{match['index']}"
    asked = rollout + match["question"] if match["question"] else ""
    table, column, value = ("questions", "question_id", asked) if asked else ("rollouts", "rollout_id", rollout)
    rows = lens.rows(table, places, ("rollout_id",), where=f"{column} = ?", parameters=[value])
    holding = {row["artifact_key"] for row in rows}
    # The latest run first: the same identifier may name another text in another run.
    order = [
        (graph, key) for graph in graphs(catalogue, run, holding=holding) for key in holding if key in graph.records
    ]
    if not order:
        return None
    graph, key = order[0]
    sight, record = Sight(lens=lens, graph=graph), graph.records[key]
    others = tuple(
        f"run {other.run} has {'the same artifact' if its == key else 'another text under this id'}"
        for other, its in order[1:]
    )
    answer = _of_generated(sight, record, name, asked, rollout)
    return Answer(
        id=answer.id, kind=answer.kind, run=answer.run, headline=answer.headline, passages=answer.passages, also=others
    )


def _of_generated(sight: Sight, record: Record, name: str, asked: str, rollout: str) -> Answer:
    if not asked:
        return question.of_generator_rollout(sight, record, rollout)
    row = sight.row([record], "questions", question.QUESTION, "question_id = ?", asked)
    assert row is not None, asked
    if name == asked:
        return question.of_question(sight, record, row)
    return question.of_solver_rollout(sight, record, row, name)


def _document(sight: Sight, name: str) -> Answer | None:
    from infuser_core.lineage.documents import document

    return documents.of_document(sight, name) if document(sight, name) else None


def _source(sight: Sight, name: str) -> Answer | None:
    found = sight.row(sight.graph.holding("sources"), "sources", ("source_id",), "source_id = ?", name)
    known = found or sight.row(sight.graph.holding("documents"), "documents", ("source_id",), "source_id = ?", name)
    return documents.of_source(sight, name) if known else None


def _given(sight: Sight, name: str) -> Answer | None:
    return reference_question.of_given(sight, name)


def _given_rollout(sight: Sight, name: str) -> Answer | None:
    head, mark, sample = name.rpartition("/")
    return reference_question.of_given(sight, head, rollout_id=name) if mark and sample.isdigit() else None


def _of_artifact(sight: Sight, record: Record) -> Answer:
    if record.phase in CHECKPOINTS:
        return checkpoint.of_checkpoint(sight, record)
    above = [{"phase": r.phase, "iteration": r.iteration, "artifact": r.key} for r in sight.graph.above(record.key)]
    below = [{"phase": r.phase, "iteration": r.iteration, "artifact": r.key} for r in sight.graph.users(record.key)]
    facts = {
        "id": record.ref.id,
        "iteration": record.iteration,
        "code_version": record.version,
        "seed": record.seed,
        "settings": record.config,
        "rows": dict(record.rows),
        "summary": dict(record.summary),
        "seconds": record.seconds,
        "created": record.created,
        **({"machine": record.machine} if record.machine else {}),
    }
    passages = [
        Passage(name="artifact", title="Artifact", artifact=record.key, facts=facts),
        Passage(name="made_from", title="Made from, the nearest first", rows=above),
        Passage(name="used_by", title="Used by", rows=below),
    ]
    headline = f"{record.phase}, made from {len(record.inputs)} artifacts, used by {len(below)}"
    return Answer(id=record.ref.id, kind="artifact", run=sight.graph.run, headline=headline, passages=passages)
