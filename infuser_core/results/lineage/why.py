"""`infuser why`: resolve an identifier, find the run that knows it, and tell where it comes from."""

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from infuser_core.config.phase_table import CHECKPOINTS, Phase
from infuser_core.errors import NUMBER, UsageError, beginning
from infuser_core.results.lineage import exams, questions
from infuser_core.results.lineage.answer import Answer
from infuser_core.results.lineage.graph import Graph, graph_of, graphs
from infuser_core.results.lineage.run_view import RunView
from infuser_core.store.runs import find_run, list_runs
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

_WRITTEN = re.compile(r"(?P<rollout>(?P<iteration>\d+)/.+?/\d+)((?P<question>-[0-9a-f]+)(/\d+)?)?")
_LEAST = 6
"""Characters below which the beginning of a key names nothing."""


def why(root: Path, name: str, *, run: str | None = None) -> Answer:
    """Explanation of anything by its name: its origin, and what it did. Raises UsageError where nothing has it."""
    run = find_run(root, run) if run else None
    with closing(Lens(Store(root), runs=[])) as lens:
        answer = _in_a_run(lens, name, run) or _in_runs(lens, name, run)
    if answer is None:
        if len(beginning(_parted(name)[0], list_runs(root))) > 1:
            find_run(root, _parted(name)[0])  # says that several runs begin so
        where = f"in run {run}" if run else "in any run"
        raise UsageError(
            f"{name}: no question, rollout, checkpoint, document, source, benchmark or artifact {where}",
            hint="ids as `infuser sql` prints them, RUN@ITERATION, RUN/BENCHMARK or RUN/BENCHMARK/QUESTION",
        )
    return answer


def _in_a_run(lens: Lens, name: str, run: str | None) -> Answer | None:
    """Names that begin with a run's: RUN@ITERATION, RUN/BENCHMARK and RUN/BENCHMARK/QUESTION."""
    head, mark, rest = _parted(name)
    known = list_runs(lens.catalogue.root)
    meant = [head] if head in known else beginning(head, known)
    if not mark or len(meant) != 1 or run not in (None, *meant):
        return None
    view = RunView(lens=lens, graph=graph_of(lens.catalogue, meant[0]))
    if mark == "/":
        label, _, asked = rest.partition("/")
        return exams.of_given(view, asked, label=label) if asked else exams.of_benchmark(view, label)
    return _after(view, int(rest)) if re.fullmatch(NUMBER, rest) else None


def _parted(name: str) -> tuple[str, str, str]:
    """A name before its first `@` or `/`, that mark, and what follows it."""
    head = re.split("[@/]", name, maxsplit=1)[0]
    return head, name[len(head) : len(head) + 1], name[len(head) + 1 :]


def _after(view: RunView, iteration: int) -> Answer:
    record = view.graph.checkpoint("solver", iteration)
    done = max((r.iteration for r in view.graph.of(*CHECKPOINTS)), default=-1) + 1
    if record is None or iteration > done:
        raise UsageError(
            f"run {view.graph.run} has no checkpoint after {iteration} iterations", hint=f"it has done {done}"
        )
    return exams.of_checkpoint(view, record)


def _in_runs(lens: Lens, name: str, run: str | None) -> Answer | None:
    """Everything else: the latest run that knows it, with the others that do."""
    catalogue = lens.catalogue
    ref = Store(catalogue.root).ref(name) if len(name) >= _LEAST else None
    if ref is not None:
        record = catalogue.record(ref.key)
        holders = list(graphs(catalogue, run, holding=[record.key]))
        graph = holders[0] if holders else Graph(catalogue, "", [each.key for each in catalogue.of_phase()])
        story = exams.of_artifact(RunView(lens=lens, graph=graph), record)
        return replace(story, also=tuple(f"run {other.run} has it too" for other in holders[1:]))
    match = _WRITTEN.fullmatch(name)
    if match:
        return _generated(lens, run, match)
    for tell in (questions.of_document, exams.of_given, _given_rollout, questions.of_source):
        for graph in graphs(catalogue, run):
            answer = tell(RunView(lens=lens, graph=graph), name)
            if answer is not None:
                return answer
    return None


def _generated(lens: Lens, run: str | None, match: re.Match[str]) -> Answer | None:
    """A generated question or a rollout of either role: its identifier says which iteration wrote it."""
    name, rollout, iteration = match[0], match["rollout"], int(match["iteration"])
    asked = rollout + match["question"] if match["question"] else ""
    places = [r.key for r in lens.catalogue.of_phase(Phase.GENERATE_QUESTIONS) if r.iteration == iteration]
    table, column, value = ("questions", "question_id", asked) if asked else ("rollouts", "rollout_id", rollout)
    rows = lens.rows(table, places, ("rollout_id",), where=f"{column} = ?", parameters=[value])
    holding = {row["artifact_key"] for row in rows}
    # The latest run first: the same identifier may name another text in another run.
    order = [
        (graph, key)
        for graph in graphs(lens.catalogue, run, holding=holding)
        for key in holding
        if key in graph.records
    ]
    if not order:
        return None
    graph, key = order[0]
    others = tuple(
        f"run {other.run} has {'the same artifact' if its == key else 'another text under this id'}"
        for other, its in order[1:]
    )
    story = questions.of_written(RunView(lens=lens, graph=graph), graph.records[key], name, asked, rollout)
    return replace(story, also=others) if story else None


def _given_rollout(view: RunView, name: str) -> Answer | None:
    head, mark, sample = name.rpartition("/")
    return exams.of_given(view, head, rollout_id=name) if mark and re.fullmatch(NUMBER, sample) else None
