"""The rules of the house about rooms, imports and names. A failing test here says which rule, where, and what to do."""

import ast
import importlib
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from house import FILES, PACKAGES, TREES, at, is_docstring, name, nodes
from places import ROOT

# A table of nouns may be longer than other modules.
NOUNS = {"infuser_core/schemas.py"}
# Heavy imports and the rooms that may have them. The nano lab pre-trains its anchor with transformers.
ROOMS = {
    "duckdb": ("infuser_core/store/views.py",),
    "transformers": ("infuser_core/engines/", "infuser_core/nano/"),
    "torch": ("infuser_core/algorithm/", "infuser_core/engines/", "infuser_core/nano/"),
    "vllm": ("infuser_core/engines/vllm/",),
    "ray": ("infuser_core/engines/cluster/",),
    "deepspeed": ("infuser_core/engines/deepspeed/",),
    "prefect": ("flows/", "tasks/"),
    "httpx": ("corpus/", "flows/", "tasks/display.py", "infuser_core/engines/endpoint.py"),
    "pyarrow": ("infuser_core/store/tables.py",),
}

RIDDLES = re.compile(
    r"\b(told|beside|behind|stands?|lies|whoever|nobody|whatever|in words|of its own|so many|where (there|it) (is|are)|"
    r"meanwhile|for want of|goes on|went on)\b"
)
# Without `left`, half of a pair, and `done`, which progress callbacks take next to `total`.
PARTICIPLES = """
asked became begun brought chosen came cut drawn ended found given gone heard held kept known laid lost made
meant met moved named owed put said seen sent settled shown spoken stood taken told tried wanted went written
"""
# Names that are stored or that users' parts implement: columns, keys in JSON, inputs of recipes, plug-in attributes.
KEYS = {
    "corpus/pool.py": {"chosen"},
    "corpus/read/converters/http.py": {"chosen"},
    "corpus/read/page.py": {"chosen"},
    "infuser_core/config/optimizers.py": {"kept"},
    "infuser_core/cotrain/routes/direct.py": {"given"},
    "infuser_core/engines/training/optimizers/muon.py": {"kept"},
    "infuser_core/engines/training/optimizers/sgd.py": {"kept"},
    "infuser_core/evaluation/check.py": {"asked"},
    "infuser_core/schemas.py": {"chosen", "cut", "drawn"},
    "infuser_core/store/verify.py": {"lost"},
    "tasks/rehearsal/table.py": {"told"},
    "tasks/textbooks.py": {"chosen", "given"},
}

# Folders whose files are entries that are found by name: as many as there are, as short as they can be.
REGISTRIES = {
    "infuser_core/cotrain/rewards",
    "infuser_core/cotrain/studies/scores",
    "infuser_core/cotrain/routes",
    "infuser_core/evaluation/benchmarks",
    "infuser_core/verifiers",
    "infuser_core/results/trackers",
    "infuser_core/nano/worlds",
    "infuser_core/engines/training/optimizers",
    "corpus/find/catalogues",
    "corpus/read/converters",
    "corpus/read/formats",
}
# Floors from the top. Rooms of one floor may import each other, but not in a circle; all else is on the ground floor.
FLOORS = tuple(
    tuple(f"infuser_core.{room}" if depth > 2 else room for room in floor.split())
    for depth, floor in enumerate(
        (
            "flows",
            "tasks",
            "corpus",
            "planning results",
            "cotrain",
            "evaluation",
            "nano verifiers",
            "engines",
            "memory store",
            "algorithm config prompts protocols system",
        )
    )
)
# What the rules below do not allow and is there yet: this number only gets smaller.
STILL_BARE = 23


def imported(node: ast.AST) -> list[str]:
    """Top-level names that an import statement loads."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    assert isinstance(node, ast.ImportFrom)
    return [(node.module or "").split(".")[0]]


def test_import_contracts_hold():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_packages_are_those_of_the_checkout():
    for package in PACKAGES:
        found = Path(str(importlib.import_module(package).__file__)).parent
        assert found == ROOT / package, f"{package} comes from {found}: another distribution owns the name"
        installed = Path(sysconfig.get_paths()["purelib"]) / package
        assert not installed.exists(), f"{installed} hides the checkout's package"


@pytest.mark.parametrize("module", sorted(ROOMS))
def test_heavy_imports_have_their_room(module: str):
    found = [at(path, node) for path, node in nodes((ast.Import, ast.ImportFrom)) if module in imported(node)]
    assert [place for place in found if not place.startswith(ROOMS[module])] == []


def test_imports_are_absolute():
    assert [at(path, node) for path, node in nodes(ast.ImportFrom) if getattr(node, "level", 0)] == []


def test_imports_name_modules_that_exist():
    """The type checker passes over modules that are missing, and an import inside a function fails only when called."""
    missing = [
        f"{at(path, node)} {node.module}"
        for path, node in nodes(ast.ImportFrom)
        if str(node.module).split(".")[0] in PACKAGES and not exists(str(node.module))
    ]
    assert missing == []


def exists(module: str) -> bool:
    place = ROOT / module.replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_modules_stay_below_600_lines():
    sizes = {
        name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES if name(path) not in NOUNS
    }
    assert {path: lines for path, lines in sizes.items() if lines > 600} == {}


def folder_of(path: Path) -> str:
    return name(path.parent)


def test_folders_have_at_most_25_modules():
    sizes = Counter(folder_of(path) for path in FILES if path.name != "__init__.py")
    crowded = {folder: count for folder, count in sizes.items() if count > 25}
    assert {folder: count for folder, count in crowded.items() if folder not in REGISTRIES} == {}


def modules() -> list[Path]:
    """Every file with code."""
    return [path for path in FILES if path.name != "__init__.py"]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports() -> dict[str, set[str]]:
    """Which modules of the project each one imports, wherever in the file; imports for annotations alone left out."""
    known = {dotted(path) for path in modules()}
    found = {}
    for path in modules():
        tree = TREES[path]
        typing = [
            node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ]
        aside = {id(node) for block in typing for node in ast.walk(block)}
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in aside:
                names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        found[dotted(path)] = (names & known) - {dotted(path)}
    return found


def room_of(module: str) -> str:
    """A folder below infuser_core or corpus, or one of the packages; a module beside the folders is a room itself."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in ("infuser_core", "corpus") else parts[0]


def floor_of(module: str) -> int:
    """The higher the number, the further down."""
    return next(
        (at for at, rooms in enumerate(FLOORS) if any(f"{module}.".startswith(f"{room}.") for room in rooms)),
        len(FLOORS),
    )


def test_imports_go_downwards():
    upward = {
        f"{one} -> {other}" for one, others in imports().items() for other in others if floor_of(other) < floor_of(one)
    }
    assert upward == set()


def test_no_modules_and_no_rooms_import_each_other_in_a_circle():
    circles = []
    between: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    for one, others in imports().items():
        known[one] = others
        between.setdefault(room_of(one), set()).update({room_of(other) for other in others} - {room_of(one)})
    for graph in (known, between):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circles.append(error.args[1])
    assert circles == []


def strings_of(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings of modules, classes, functions and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def docstrings_of(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings of the module, its classes and functions; a field's may say why."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.value


def test_docstrings_name_things_and_do_not_ask():
    riddles = [
        f"{at(path, text)} {text.value[:60]}"
        for path in FILES
        for text, asked in [
            *((text, ["What", "Who"]) for text in strings_of(TREES[path])),
            *((text, ["Where", "How", "Why", "When", "Which", "Whose", "Whom"]) for text in docstrings_of(TREES[path])),
        ]
        if text.value.split()[:1] and text.value.split()[0] in asked
    ]
    assert riddles == [], "say what the thing is, in the words that somebody would search for"


def test_docstrings_have_no_riddles():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    firsts = [(path, node, (ast.get_docstring(node) or "").partition("\n")[0]) for path, node in nodes(kinds)]
    riddles = [f"{at(path, node)} {line}" for path, node, line in firsts if RIDDLES.search(line)]
    assert riddles == [], "say it in the words that a native engineer would search for"


def prose() -> Iterator[tuple[str, str]]:
    """Text that users read outside of docstrings: pages, comments of configurations, templates and help texts."""
    pages = [ROOT / f"{page}.md" for page in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
    for page in [*pages, *(ROOT / "docs").glob("*.md")]:
        yield name(page), re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path in (ROOT / "configs").rglob("*.yaml"):
        yield name(path), "\n".join(re.findall(r"(?:^|\s)#.*", path.read_text(encoding="utf-8")))
    for room in ("infuser_core/results", "corpus/show"):
        for path in (ROOT / room).rglob("templates/*.*"):
            text = path.read_text(encoding="utf-8")
            yield name(path), re.sub(r"<style.*?</style>|\{[{%#].*?[%#}]\}|<[^>]*>", "", text, flags=re.DOTALL)
    for path, node in nodes(ast.keyword, "flows/cli/"):
        if node.arg == "help" and isinstance(node.value, ast.Constant):
            yield at(path, node), str(node.value.value)


def test_prose_has_no_riddles():
    riddles = [
        f"{place}: {line.strip()}"
        for place, text in prose()
        for line in text.splitlines()
        if RIDDLES.search(line.lower())
    ]
    assert riddles == [], "say it in the words that a native engineer would search for"


def test_no_participle_is_a_name():
    found = []
    for path, node in nodes((ast.Name, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef)):
        if isinstance(node, ast.Name):
            named = node.id if isinstance(node.ctx, ast.Store) else ""
        else:
            named = node.arg if isinstance(node, ast.arg) else node.name.strip("_")
        if named in {*PARTICIPLES.split()} - KEYS.get(name(path), set()):
            found.append(f"{at(path, node)} {named}")
    assert found == [], "call a value by a noun and a function by a verb"


def test_public_names_with_several_importers_are_documented():
    importers: dict[tuple[str, str], set[str]] = {}
    for path, node in nodes(ast.ImportFrom):
        for alias in node.names:
            importers.setdefault((str(node.module), alias.name), set()).add(name(path))
    bare = [
        f"{module}.{public}"
        for (module, public), who in sorted(importers.items())
        if len(who) > 1 and not is_documented(module, public)
    ]
    assert len(bare) <= STILL_BARE, "\n".join(bare)


def is_documented(module: str, public: str) -> bool:
    """A docstring, a string below a constant, or a comment above or beside it. Foreign modules are others' business."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    if path not in TREES:
        return True
    body = TREES[path].body
    lines = path.read_text(encoding="utf-8").splitlines()
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == public:
            return ast.get_docstring(node) is not None
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == public for target in targets):
                beside = "#" in lines[node.lineno - 1] or lines[max(node.lineno - 2, 0)].startswith("#")
                return is_docstring(after) or beside
    return True
