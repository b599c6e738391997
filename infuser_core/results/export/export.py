"""Export a checkpoint or the questions of a run to a new folder, and push it to the hub."""

from pathlib import Path
from typing import Any

from infuser_core import settings
from infuser_core.errors import UsageError
from infuser_core.results.export.model import SELECTED, export_model
from infuser_core.results.export.questions import export_questions
from infuser_core.store import runs
from infuser_core.system import hub


def export(
    run: str,
    out: str | Path,
    *,
    iteration: int | str = SELECTED,
    role: str = "solver",
    adapter: bool = False,
    questions: bool = False,
    push: str = "",
    store: str | Path | None = None,
) -> dict[str, Any]:
    """Write a model folder in the layout of Hugging Face, or with `questions` a data set, each with its card.

    `iteration` is the number of iterations that the checkpoint has seen, or `selected`; `adapter` writes only the
    adapters; `push` is an address `hf://[datasets/]OWNER/NAME`. Returns the folder, the checkpoint or the number of
    questions, and the address of the pushed commit.

    Raises UsageError if the run has no such checkpoint, the folder is not empty, or the hub refuses.
    """
    if questions and (adapter or role != "solver"):
        raise UsageError("--questions: a data set has no role and no adapter", hint="leave out --role and --adapter")
    root = settings.store_root(store)
    run, out = runs.find_run(root, run), Path(out)
    # Check first, before anything is written: the hub's refusal takes only a second.
    repository = hub.create_repository(push, "dataset" if questions else "model") if push else None
    name = repository.repo if repository else "."
    if questions:
        facts = export_questions(root, run, iteration=str(iteration), out=out, name=name)
    else:
        facts = export_model(root, run, iteration=str(iteration), role=role, out=out, adapter=adapter, name=name)
    if repository:
        facts["pushed"] = hub.push_folder(out, repository, message=f"{run} after {iteration}")
    return facts
