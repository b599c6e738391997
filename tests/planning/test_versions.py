"""Code that computes artifacts does not change behind the back of its VERSION: stores would keep stale results.

The golden file holds, per stage, the VERSION and a hash of the code behind it, comments and docstrings stripped: the
module and all modules of the algorithm, the corpus and the nano lab that it imports.
"""

import ast
import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import places
import pytest
from places import ROOT

GOLDEN = places.GOLDEN / "phases.json"
REFRESH = "INFUSER_REFRESH_GOLDEN"

ALGORITHM = (
    "infuser_core.cotrain.", "infuser_core.algorithm.",
    "infuser_core.evaluation.answering", "infuser_core.evaluation.evaluate",
    "infuser_core.evaluation.resumable_sampling",
    "infuser_core.prompts.templates", "infuser_core.prompts.reasoning", "infuser_core.verifiers.",
)  # fmt: skip
SEEDS = ("infuser_core.seeding",)
LIBRARY = ("corpus.", "infuser_core.nano.")
BY_NAME = {
    "infuser_core.verifiers.parts.batch": "infuser_core/verifiers",
    "infuser_core.cotrain.reward": "infuser_core/cotrain/rewards",
    "infuser_core.cotrain.route": "infuser_core/cotrain/routes",
}
BY_NAME["infuser_core.cotrain.studies.candidates"] = "infuser_core/cotrain/studies/scores"
# Training the anchor: its artifact enters by the digest of its files.
BUILD = ("infuser_core.nano.build", "infuser_core.nano.pretrain")


def file_of(module: str) -> Path | None:
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    return path if path.is_file() else None


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_behind(module: str, rooms: tuple[str, ...]) -> list[str]:
    """The module and what it imports from the rooms, at any depth; plug-ins of a folder count with their finder."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        name = ahead.pop()
        if name in BY_NAME:
            ahead += [".".join(plug.relative_to(ROOT).with_suffix("").parts) for plug in plug_ins(BY_NAME[name])]
        path = file_of(name)
        if path is None or name in found or name in BUILD:
            continue
        found.add(name)
        ahead += [other for other in imports(path) if other.startswith(rooms) or other in BY_NAME]
    return sorted(found)


def plug_ins(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py")


@cache
def stripped(path: Path) -> str:
    """The syntax tree as text, without comments, docstrings and positions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kept = [part for part in node.body if not is_string(part)]
            node.body = kept or [ast.Pass()]
    return ast.dump(tree)


def is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code_of(modules: list[str]) -> str:
    joined = "\n".join(f"{name} {stripped(file_of(name) or Path())}" for name in modules)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


CORPUS_STAGES = (
    ("corpus", "tasks.documents"),
    ("textbooks", "tasks.textbooks"),
    ("audits", "tasks.audits"),
    ("pool", "tasks.pool"),
    ("training_pool", "tasks.training_pool"),
)


def stages() -> dict[str, tuple[str, list[str]]]:
    """Stage -> where its VERSION stands, and the modules behind it."""
    found = {}
    core = ROOT / "infuser_core"
    phases, studies = core.glob("cotrain/phases/*.py"), core.glob("cotrain/studies/*.py")
    for path in sorted([*phases, *studies, core / "evaluation/evaluate.py"]):
        if any(line.startswith("VERSION = ") for line in path.read_text(encoding="utf-8").splitlines()):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[f"{path.stem}_study" if path.parent.name == "studies" else path.stem] = (
                module,
                modules_behind(module, ALGORITHM + SEEDS),
            )
    for name, module in CORPUS_STAGES:
        found[name] = (module, modules_behind(module, LIBRARY + SEEDS))
    return found


def version_of(module: str) -> int:
    path = file_of(module)
    assert path is not None, module
    (value,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERSION"
    ]
    return int(value)


@cache
def current() -> dict[str, dict[str, object]]:
    return {
        stage: {"version": version_of(module), "code": code_of(modules)}
        for stage, (module, modules) in stages().items()
    }


STAGES = stages()


@cache
def golden() -> dict[str, dict[str, object]]:
    if os.environ.get(REFRESH):
        GOLDEN.write_text(json.dumps(current(), indent=1) + "\n")
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("stage", STAGES)
def test_changed_code_has_a_new_version(stage: str):
    was, now = golden()[stage], current()[stage]
    module, modules = STAGES[stage]
    refresh = f"{REFRESH}=1 .venv/bin/pytest tests/planning/test_versions.py"
    if was["version"] == now["version"]:
        assert was["code"] == now["code"], (
            f"the code behind {stage} changed, but VERSION in {module} did not: artifacts in every store would be "
            f"taken for current. Raise VERSION, then run: {refresh}\n"
            f"Where the results are the same bit for bit (a renaming, a type), the second step alone will do.\n"
            f"Code behind it: {', '.join(modules)}"
        )
    assert was == now, f"VERSION of {stage} changed: record it with {refresh}"


def test_the_seven_phases_and_nothing_forgotten_are_watched():
    seven = "rollout_dev dev_gradient generate_questions rollout_questions score_influence update_generator"
    assert {*seven.split(), "update_solver", "evaluate", "select", "corpus", "effects_study"} <= set(STAGES)
    assert set(golden()) == set(STAGES)


def test_the_code_behind_a_phase_reaches_the_algorithm():
    _, modules = STAGES["update_generator"]
    assert {
        "infuser_core.cotrain.phases.training",
        "infuser_core.algorithm.advantage",
        "infuser_core.cotrain.rewards.influence",
    } <= {*modules}
    assert "infuser_core.verifiers.choice" in STAGES["rollout_dev"][1]
    assert "corpus.chunk.chunk" in STAGES["corpus"][1]
    assert "infuser_core.nano.textbooks" in STAGES["textbooks"][1]


def test_comments_and_docstrings_are_no_code(tmp_path: Path):
    plain, commented, changed = tmp_path / "plain.py", tmp_path / "commented.py", tmp_path / "changed.py"
    plain.write_text("def f(x):\n    return x + 1\n")
    commented.write_text('"""Module."""\n\n\ndef f(x):\n    """Adds."""\n    # why\n    return (x + 1)\n')
    changed.write_text("def f(x):\n    return x + 2\n")
    assert stripped(plain) == stripped(commented) != stripped(changed)
