"""The documentation names what exists, and everything that exists is named."""

import re
from pathlib import Path

import pytest
import typer.main
from places import ROOT

from flows.cli.main import app
from infuser_core import plugins

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.yaml"))
FIXED = [
    "paper-tables",
    "doctor",
    "repair",
    "gc",
    "fork",
    "export",
    "plan",
    "sweep",
    "why",
    "lineage",
    "undo",
    "diff",
    "run",
    "resume",
    "runs",
    "status",
    "result",
    "digest",
    "show",
    "sql",
    "report",
    "compare",
    "serve",
    "quickstart",
]


def commands(group=None, prefix: str = "") -> dict[str, object]:
    """Every command by the words that call it."""
    found: dict[str, object] = {}
    for name, command in (group or typer.main.get_command(app)).commands.items():
        inner = getattr(command, "commands", None)
        found |= commands(command, f"{prefix}{name} ") if inner else {f"{prefix}{name}": command}
    return found


COMMANDS = commands()
# What stands in backticks, or in a block of code; quoted words may span neither.
CODE = re.findall(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", README, re.DOTALL)
QUOTED = [block or inline for block, inline in CODE]


def test_the_fixed_commands_exist():
    assert {*FIXED, "nano build"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_parameter_has_help(name: str):
    command = COMMANDS[name]
    assert command.help and command.help.strip().endswith((".", "?")), f"{name}: no sentence of help"
    assert [parameter.name for parameter in command.params if not parameter.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_in_the_readme(name: str):
    assert any(re.search(rf"\binfuser {name}\b", quoted) for quoted in QUOTED), (
        f"README.md does not name infuser {name}"
    )


def test_every_command_in_the_readme_exists():
    named = {
        match
        for quoted in QUOTED
        for match in re.findall(r"^\s*\$? ?infuser ((?:(?:nano|corpus) )?[a-z][a-z-]*)", quoted, re.M)
    }
    assert named <= set(COMMANDS) | {"nano", "corpus"}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_stands_in_the_readme(name: str):
    known = any(name in quoted or Path(name).name in quoted or Path(name).stem in quoted for quoted in QUOTED)
    assert known, f"README.md does not name {name}"


def test_every_configuration_in_the_readme_exists():
    named = {match for quoted in QUOTED for match in re.findall(r"configs/[\w/.-]+\.yaml", quoted)}
    assert sorted(named - set(CONFIGS)) == []


@pytest.mark.parametrize("name", [*plugins.REWARDS.names(), *plugins.BENCHMARKS.names()])
def test_every_reward_and_benchmark_stands_in_the_readme(name: str):
    assert any(re.search(rf"\b{name}\b", quoted) for quoted in QUOTED), f"README.md does not name {name}"


def test_every_file_and_folder_in_the_readme_exists():
    rooms = "flows|tasks|corpus|infuser_core|configs|tests|docker"
    paths = {match for quoted in QUOTED for match in re.findall(rf"\b(?:{rooms})/[\w/.-]*", quoted)}
    missing = sorted(path for path in paths if not (ROOT / path).exists())
    assert missing == []
