"""The documentation names what exists, and everything that exists is named."""

import re

import pytest
import typer.main
from places import ROOT

from flows.cli.main import app
from infuser_core.plugins import BENCHMARKS, REWARDS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCS = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONFIGS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.yaml"))
# Growing this list is a decision.
VISIBLE = {
    *("run", "resume", "status", "result", "show", "sql", "why", "diff", "plan", "sweep", "report", "eval", "study"),
    *("rehearse", "score", "view", "runs"),
    *("verify", "export", "doctor", "gc", "serve", "quickstart", "corpus", "nano", "init", "configs", "anchor"),
}


def commands(group=None, prefix: str = "") -> dict[str, object]:
    """Every command by the words that call it."""
    found: dict[str, object] = {}
    for name, command in (group or typer.main.get_command(app)).commands.items():
        inner = getattr(command, "commands", None)
        found |= commands(command, f"{prefix}{name} ") if inner else {f"{prefix}{name}": command}
    return found


COMMANDS = commands()
# A group's first command need not be named.
UNNAMED = {"report page": "report", "eval model": "eval"}
# What stands in backticks, or in a block of code; quoted words may span neither.
CODE = re.findall(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", DOCS, re.DOTALL)
QUOTED = [block or inline for block, inline in CODE]


def test_the_visible_commands_are_these():
    listed = typer.main.get_command(app).commands
    assert {name for name, command in listed.items() if not command.hidden} == VISIBLE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_parameter_has_help(name: str):
    command = COMMANDS[name]
    assert command.help and command.help.strip().endswith((".", "?")), f"{name}: no sentence of help"
    assert [parameter.name for parameter in command.params if not parameter.help] == []


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not command.hidden])
def test_every_command_stands_in_the_docs(name: str):
    words = UNNAMED.get(name, name)
    assert any(re.search(rf"\binfuser {words}\b", quoted) for quoted in QUOTED), (
        f"neither README.md nor docs/ names {words}"
    )


def test_every_command_in_the_docs_exists():
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    calls = [
        match
        for quoted in QUOTED
        for match in re.findall(r"^\s*\$? ?infuser ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", quoted, re.M)
    ]
    unknown = {
        (first, second)
        for first, second in calls
        if (first not in groups and first not in COMMANDS) or (first in groups and f"{first} {second}" not in COMMANDS)
    }
    assert calls and {(first, second) for first, second in unknown if first not in UNNAMED.values()} == set()


def test_the_picture_of_the_tree_is_the_real_one():
    """Every folder with modules stands in it, below its parent, and nothing else."""
    picture = ARCHITECTURE.split("## The tree")[1].split("```")[1]
    drawn: set[str] = set()
    parents: list[tuple[int, str]] = []
    for line in filter(None, picture.splitlines()):
        depth = len(line) - len(line.lstrip())
        parents = [(at, folder) for at, folder in parents if at < depth]
        names = re.findall(r"\b(\w+)/(?=\s|$)", line)
        above = parents[-1][1] if parents else ""
        drawn |= {f"{above}{name}/" for name in names}
        parents.append((depth, f"{above}{names[-1]}/"))
    real = {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for package in ("flows", "tasks", "corpus", "infuser_core")
        for path in (ROOT / package).rglob("*.py")
    }
    # The parts of an entry that is found by name.
    assert drawn | {path for path in real if path.endswith("/parts/")} == real | {"infuser_core/prompts/"}


def test_every_configuration_in_the_docs_exists():
    named = {match for quoted in QUOTED for match in re.findall(r"configs/[\w/.-]+\.yaml", quoted)}
    assert named and sorted(named - set(CONFIGS)) == []


@pytest.mark.parametrize("name", [*REWARDS.names(), *BENCHMARKS.names()])
def test_every_reward_and_benchmark_stands_in_the_docs(name: str):
    assert any(re.search(rf"\b{name}\b", quoted) for quoted in QUOTED), f"neither README.md nor docs/ names {name}"


def test_every_file_and_folder_in_the_docs_exists():
    rooms = "flows|tasks|corpus|infuser_core|configs|tests|docker|docs|examples"
    paths = {match for quoted in QUOTED for match in re.findall(rf"\b(?:{rooms})/[\w/.-]*", quoted)}
    missing = sorted(path for path in paths if not (ROOT / path).exists())
    assert paths and missing == []
