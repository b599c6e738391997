"""The rules of the house about code. A failing test here says which rule, where, and what to do."""

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

from house import FILES, TREES, at, is_docstring, name, nodes
from places import ROOT

from infuser_core import errors

# Process boundaries: the only places where any exception is caught, each to record it and name it for a person.
BOUNDARIES = {
    "flows/execute.py",
    "infuser_core/engines/cluster/machines.py",
    "infuser_core/system/worker_pool.py",
    "infuser_core/results/trackers/parts/follow.py",
    "infuser_core/results/trackers/parts/run_log.py",
    "tasks/interrupts.py",
    "tasks/stage.py",
    "tasks/work.py",
}
# Their fields are settings, columns of artifacts and the engines' contract: the generated reference shows them.
DOCUMENTED = ("infuser_core/schemas.py", "infuser_core/config/", "infuser_core/protocols.py")
# State of one process, by their nature not frozen.
MUTABLE = {
    "infuser_core/engines/pool.py:WarmEngine",
    "infuser_core/terminal.py:Console",
    "tasks/run.py:Execution",
    "tasks/run.py:Run",
}


def test_package_files_hold_no_code():
    holding = [name(path) for path, tree in TREES.items() if path.name == "__init__.py" and not is_bare(tree)]
    assert holding == ["infuser_core/__init__.py"], "only the public surface is loaded by a package"


def is_bare(tree: ast.Module) -> bool:
    """Nothing but, at most, a docstring."""
    return not tree.body or (len(tree.body) == 1 and ast.get_docstring(tree) is not None)


def dataclasses() -> Iterator[tuple[Path, ast.ClassDef, str]]:
    for path, node in nodes(ast.ClassDef):
        for decorator in node.decorator_list:
            if "dataclass" in ast.unparse(decorator):
                yield path, node, ast.unparse(decorator)


def test_dataclasses_are_frozen_slotted_and_keyword_only():
    loose = []
    for path, node, decorator in dataclasses():
        wanted = {"slots=True", "kw_only=True"}
        if f"{name(path)}:{node.name}" not in MUTABLE:
            wanted |= {"frozen=True"}
        loose += [f"{at(path, node)} {node.name}: no {mark}" for mark in wanted if mark not in decorator]
    assert loose == []


def test_fields_that_users_read_have_a_docstring():
    bare = []
    for path, node, _ in dataclasses():
        if not name(path).startswith(DOCUMENTED):
            continue
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            own = isinstance(field, ast.AnnAssign) and not ast.unparse(field.annotation).startswith("ClassVar")
            public = own and not ast.unparse(field.target).startswith("_")
            if public and not is_docstring(after):
                bare.append(f"{at(path, field)} {node.name}.{ast.unparse(field.target)}")
    assert bare == [], "say what the field holds, with its unit, in a string below it"


def test_flows_compose_and_do_not_compute():
    operations = nodes((ast.BinOp, ast.AugAssign), "flows/")
    found = [f"{at(path, node)} {ast.unparse(node)}" for path, node in operations if not composes(node)]
    assert found == [], "arithmetic belongs into infuser_core"


def composes(node: ast.AST) -> bool:
    """Operators that are no arithmetic: unions of types, sets, paths, lists; a count, an "every k-th", a deadline."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.value, ast.List)
    assert isinstance(node, ast.BinOp)
    left, right, operator = ast.unparse(node.left), ast.unparse(node.right), node.op
    if isinstance(operator, ast.BitOr | ast.BitAnd):
        return True
    if isinstance(operator, ast.Div):
        return isinstance(node.right, ast.Constant | ast.JoinedStr) and not right.isnumeric()
    if isinstance(operator, ast.Mod):
        return right.endswith("_every")
    if isinstance(operator, ast.Add):
        joins = isinstance(node.left, ast.List) or isinstance(node.right, ast.List)
        return joins or right == "1" or left == "time.monotonic()"
    return False


def test_flows_and_tasks_pass_references_not_tensors_or_tables():
    heavy = {"Tensor", "Table", "RecordBatch", "DataFrame", "ndarray", "Module"}
    found = []
    for path, node in nodes((ast.FunctionDef, ast.AsyncFunctionDef), "flows/", "tasks/"):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        annotations = [argument.annotation for argument in arguments] + [node.returns]
        for annotation in filter(None, annotations):
            words = {child.id for child in ast.walk(annotation) if isinstance(child, ast.Name)}
            words |= {child.attr for child in ast.walk(annotation) if isinstance(child, ast.Attribute)}
            if words & heavy:
                found.append(f"{at(path, node)} {node.name}: {ast.unparse(annotation)}")
    assert found == []


def test_exceptions_are_caught_by_name():
    broad = {"Exception", "BaseException"}
    found = [
        at(path, node)
        for path, node in nodes(ast.ExceptHandler)
        if node.type is None or broad & {ast.unparse(part) for part in parts(node.type)}
    ]
    assert [place for place in found if place.split(":")[0] not in BOUNDARIES] == []


def test_every_error_for_people_says_what_to_do():
    # The corpus rejects sources with a reason: a row of the registry, no message.
    kinds = {kind for kind, value in vars(errors).items() if isinstance(value, type)}
    silent = [
        f"{at(path, node)} {ast.unparse(node.exc)[:80]}"
        for path, node in nodes(ast.Raise, "flows/", "tasks/", "infuser_core/")
        if isinstance(node.exc, ast.Call)
        and ast.unparse(node.exc.func) in kinds
        and "hint" not in {keyword.arg for keyword in node.exc.keywords}
    ]
    assert silent == []


def parts(node: ast.AST) -> list[ast.AST]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def test_no_code_asks_for_a_model_by_name():
    named = [
        f"{at(path, node)} {node.value!r}"
        for path, node in nodes(ast.Constant)
        if isinstance(node.value, str)
        and not is_prose(node.value)
        and any(family in node.value.lower() for family in ("qwen", "olmo", "llama", "gpt", "mistral"))
    ]
    assert named == [], "differences between models are data: a chat template, a field of a configuration"


def is_prose(text: str) -> bool:
    """Docstrings and messages have blanks; names of models have none."""
    return " " in text


def test_zips_are_strict_or_say_why_not():
    loose = [
        at(path, node)
        for path, node in nodes(ast.Call)
        if ast.unparse(node.func) == "zip" and "strict" not in {keyword.arg for keyword in node.keywords}
    ]
    assert loose == []


def test_only_commands_print():
    assert [at(path, node) for path, node in nodes(ast.Call) if ast.unparse(node.func) == "print"] == []


def test_no_work_is_left_in_comments():
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    found = [name(path) for path in FILES for line in path.read_text().splitlines() if any(m in line for m in marks)]
    assert found == []


def test_comments_are_plain_ascii():
    found = []
    for path in FILES:
        with path.open("rb") as file:
            found += [name(path) for token in tokenize.tokenize(file.readline) if not is_ascii_comment(token)]
    assert found == []


def is_ascii_comment(token: tokenize.TokenInfo) -> bool:
    return token.type != tokenize.COMMENT or token.string.isascii()


def test_tests_use_no_mocks():
    words = ("unittest" + ".mock", "import mock", "mocker.", "MagicMock")
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = [f"{path.name}: {word}" for path in files for word in words if word in path.read_text()]
    assert [line for line in found if not line.startswith("test_house_code.py")] == []
