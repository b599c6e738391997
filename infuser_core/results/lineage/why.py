"""`infuser why`: resolve an identifier, find the run that has it, and explain it."""

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from infuser_core.config.phase_table import CHECKPOINTS, Phase
from infuser_core.errors import NUMBER, UsageError, names_starting_with, quantity
from infuser_core.results.lineage.artifact_story import artifact_story, checkpoint_story
from infuser_core.results.lineage.exam_story import benchmark_story, exam_question_story
from infuser_core.results.lineage.graph import Graph, graph_of, graphs
from infuser_core.results.lineage.question_story import document_story, generated_story, source_story
from infuser_core.results.lineage.run_story import run_story
from infuser_core.results.lineage.run_view import RunView
from infuser_core.results.lineage.story import Story
from infuser_core.store.runs import find_run, list_runs
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

_GENERATED = re.compile(r"(?P<rollout>(?P<iteration>\d+)/.+?/\d+)((?P<question>-[0-9a-f]+)(/\d+)?)?")
_SHORTEST = 6
"""Fewest characters of an artifact's key that can name the artifact."""


def why(root: Path, name: str, *, run: str | None = None) -> Story:
    """Explain anything by its name: its origin and its effects. Raises UsageError for an unknown name."""
    run = find_run(root, run) if run else None
    head = re.split("[@/]", name, maxsplit=1)[0]
    with closing(Lens(Store(root), runs=[])) as lens:
        story = _story_in_run(lens, name, head, run) or _story_in_runs(lens, name, run)
    if story is None:
        if len(names_starting_with(head, list_runs(root))) > 1:
            find_run(root, head)  # says that several runs begin so
        where = f"in run {run}" if run else "in any run"
        raise UsageError(
            f"{name}: no run, question, rollout, checkpoint, document, source, benchmark or artifact {where}",
            hint="RUN, ids as `infuser sql` prints them, RUN@ITERATION, RUN/BENCHMARK or RUN/BENCHMARK/QUESTION",
        )
    return story


def _story_in_run(lens: Lens, name: str, head: str, run: str | None) -> Story | None:
    """Explain names that begin with a run's name `head`: RUN, RUN@ITERATION, RUN/BENCHMARK, RUN/BENCHMARK/QUESTION."""
    names = list_runs(lens.catalogue.root)
    matches = [head] if head in names else names_starting_with(head, names)
    if len(matches) != 1 or run not in (None, *matches):
        return None
    view, rest = RunView(lens=lens, graph=graph_of(lens.catalogue, matches[0])), name[len(head) + 1 :]
    if head == name:
        return run_story(view)
    if name[len(head)] == "/":
        label, _, question_id = rest.partition("/")
        return exam_question_story(view, question_id, label=label) if question_id else benchmark_story(view, label)
    if not re.fullmatch(NUMBER, rest):
        return None
    record = view.graph.checkpoint("solver", int(rest))
    iterations = max((r.iteration for r in view.graph.of(*CHECKPOINTS)), default=-1) + 1
    if record is None or int(rest) > iterations:
        raise UsageError(
            f"run {view.graph.run} has no checkpoint after {quantity(int(rest), 'iteration')}",
            hint=f"it has done {iterations}",
        )
    return checkpoint_story(view, record)


def _story_in_runs(lens: Lens, name: str, run: str | None) -> Story | None:
    """Explain all other names, in the latest run that has them; other runs that do are mentioned."""
    catalogue = lens.catalogue
    ref = Store(catalogue.root).ref(name) if len(name) >= _SHORTEST else None
    if ref is not None:
        record = catalogue.record(ref.key)
        holders = list(graphs(catalogue, run, holding=[record.key]))
        graph = holders[0] if holders else Graph(catalogue, "", [each.key for each in catalogue.records_of_phase()])
        story = artifact_story(RunView(lens=lens, graph=graph), record)
        return replace(story, also=tuple(f"run {other.run} has it too" for other in holders[1:]))
    match = _GENERATED.fullmatch(name)
    if match:
        return _generated_in_runs(lens, run, match)
    question_id, mark, sample = name.rpartition("/")
    tellers: list[Callable[[RunView, str], Story | None]] = [document_story, exam_question_story, source_story]
    if mark and re.fullmatch(NUMBER, sample):
        tellers.insert(2, lambda view, name: exam_question_story(view, question_id, rollout_id=name))
    stories = (tell(RunView(lens=lens, graph=graph), name) for tell in tellers for graph in graphs(catalogue, run))
    return next((each for each in stories if each is not None), None)


def _generated_in_runs(lens: Lens, run: str | None, match: re.Match[str]) -> Story | None:
    """Explain a generated question, a generator's text or an answer: the identifier begins with its iteration."""
    rollout_id, iteration = match["rollout"], int(match["iteration"])
    question_id = rollout_id + match["question"] if match["question"] else ""
    batches = [r.key for r in lens.catalogue.records_of_phase(Phase.GENERATE_QUESTIONS) if r.iteration == iteration]
    table, column, value = (
        ("questions", "question_id", question_id) if question_id else ("rollouts", "rollout_id", rollout_id)
    )
    rows = lens.rows(table, batches, ("rollout_id",), where=f"{column} = ?", parameters=[value])
    holding = {row["artifact_key"] for row in rows}
    # The latest run comes first: the same identifier may name another text in another run.
    places = [
        (graph, key)
        for graph in graphs(lens.catalogue, run, holding=holding)
        for key in holding
        if key in graph.records
    ]
    if not places:
        return None
    graph, key = places[0]
    also = tuple(
        f"run {other.run} has {'the same artifact' if other_key == key else 'another text under this id'}"
        for other, other_key in places[1:]
    )
    view = RunView(lens=lens, graph=graph)
    story = generated_story(view, graph.records[key], match[0], question_id, rollout_id)
    return replace(story, also=also) if story else None
