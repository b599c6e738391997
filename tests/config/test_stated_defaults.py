"""Values of settings that are stated elsewhere, in the file of `init`, on a page or by an option, are the settings'."""

import re
from typing import Any

import pytest
import typer
import yaml
from places import CONFIGS, ROOT

from flows.cli.main import app
from infuser_core.config.corpus import OverlapSettings
from infuser_core.config.overlays import load
from infuser_core.config.roles import AdapterSettings
from infuser_core.config.run import KeepSettings, RunConfig
from infuser_core.config.sources import NanoAnchor

STATED = re.compile(r"^( *)(\w+): ([^#\n]*?) *#.*the paper's(?: for 8B)?: ([^;\n]+)", re.M)
"""Indent, name and value of a setting, and the paper's values of it or of its first parts."""


def test_the_first_file_states_the_papers_values():
    text, paper = (CONFIGS / "start.yaml").read_text(), load([CONFIGS / "qwen3-8b.yaml"])
    found = list(STATED.finditer(text))
    assert len(found) == text.count("the paper's") > 10
    for match in found:
        indent, name, value, stated = match.groups()
        part: Any = paper
        if indent:
            section = re.findall(r"^(\w+):", text[: match.start()], re.M)[-1]
            part = getattr(part, section)
        part, own = getattr(part, name), yaml.safe_load(value)
        wanted = [getattr(part, key) for key in own] if isinstance(own, dict) else [part]
        words = stated.strip().split(", ")
        assert [type(each)(word) for each, word in zip(wanted, words, strict=False)] == wanted[: len(words)], match[0]


def test_the_first_file_states_the_retention_of_gc():
    (stated,) = re.findall(r"keep: null +# (\{.*\})", (CONFIGS / "start.yaml").read_text())
    assert yaml.safe_load(stated) == KeepSettings().model_dump()


def test_the_page_of_configurations_states_the_defaults_of_adapters():
    (stated,) = re.findall(r"`cotrain\.adapter: (\{.*?\})`", (ROOT / "docs" / "configurations.md").read_text())
    assert yaml.safe_load(stated) == AdapterSettings().model_dump()


OPTIONS = {
    "corpus audit --mode": OverlapSettings().mode,
    "nano build --world": NanoAnchor().world,
    "quickstart --seed": RunConfig.model_fields["seed"].default,
    "score --seed": RunConfig.model_fields["seed"].default,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_has_the_default_of_its_setting(option: str):
    command: Any = typer.main.get_command(app)
    *names, flag = option.split()
    for name in names:
        command = command.commands[name]
    (found,) = [each for each in command.params if flag in each.opts]
    assert found.default == OPTIONS[option]
