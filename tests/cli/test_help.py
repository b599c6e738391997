"""The help of every command: one plain line in its group's list, an example that parses, and a hint that shows both."""

import shlex
from collections.abc import Iterator

import pytest
import typer
from launcher import Launcher
from typer.main import get_command

from flows.cli.main import app

WIDTH = 62
"""Columns of a summary in a window of 80."""


def commands(group, path: str = "infuser") -> Iterator[tuple[str, typer.core.TyperCommand]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(commands(get_command(app)))


def test_every_summary_is_one_line_in_a_window_of_80_columns():
    texts = {name: command.help.split("\n\n")[0] for name, command in ALL.items()}
    texts |= {name: group.help.split("\n\n")[0] for name, group in get_command(app).commands.items()}
    assert {name: text for name, text in texts.items() if len(text) > WIDTH or text[-1] not in ".?"} == {}


@pytest.mark.parametrize("name", ALL)
def test_the_example_of_a_command_parses(name: str):
    example = ALL[name].epilog.removeprefix("Example: ").partition(" < ")[0]
    words = shlex.split(example)[1:]
    command = get_command(app)
    context = command.make_context("infuser", words, resilient_parsing=False)
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, words, parent=context)
    assert command.epilog.endswith(example) or " < " in command.epilog


def test_a_missing_option_or_argument_shows_the_help_and_an_example_of_its_command(launch: Launcher, tmp_path):
    for arguments, missing, hint in (
        (["plan", "nano"], "Missing option '--gpus'.", "e.g. `infuser plan nano --gpus cpu`; `infuser plan --help`"),
        (["show"], "Missing argument 'artifact'.", "e.g. `infuser show pool`; `infuser show --help`"),
        (["corpus", "merge", "a"], "Missing option '--out'.", "e.g. `infuser corpus merge pool-a pool-b --out pool`"),
    ):
        ended = launch(*arguments, store=tmp_path)
        assert (ended.code, ended.err.splitlines()[0]) == (2, f"infuser: {missing}")
        assert ended.err.splitlines()[1].startswith(f"  hint: {hint}")


def test_no_line_of_a_help_wraps_in_80_columns(launch: Launcher, tmp_path):
    ended = launch("verify", "--help", store=tmp_path, COLUMNS="80")
    lines = [line.strip() for line in ended.out.splitlines()]
    assert "and also  preset (paper, official, strict-last, phrase), choices (a number" in lines
    assert max(map(len, ended.out.splitlines())) <= 80
