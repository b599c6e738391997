"""Find shipped configuration files by name, and read YAML within limits.

A wheel has the shipped files in `infuser_core/shipped`, in the same folders as the checkout.

YAML is limited to plain values, in size, depth and aliases, and no mapping may repeat a key. Numbers are decimal: YAML
1.1 would read `010` as 8, `1:30` as 90 and `3e-4` as text; here the first two are text, which is refused for a number.
Mappings are merged by overlays, not by `<<`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infuser_core.errors import ConfigError, closest_names, did_you_mean
from infuser_core.system.hub import fetch_address

PACKED = Path(__file__).parents[1] / "shipped"
ROOT = PACKED if PACKED.is_dir() else PACKED.parents[1]
"""Folder that contains `configs/` and `docs/`."""
FOLDER = ROOT / "configs"
START = "start"
"""Name of the configuration with which a new project starts."""
# Settings of Prefect, not of a run.
_OTHERS = {"prefect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFile:
    """A configuration file that is shipped with the project."""

    name: str
    """Path below `configs/` without suffix: `nano`, `engine/one-gpu`."""
    kind: str
    """`run`: a complete configuration; `overlay`: changes to a complete one; `sweep`: input of `infuser sweep`."""
    text: str
    """The comment in its first line."""
    path: Path
    """Path of the file."""


def configurations() -> Iterator[ShippedFile]:
    """List all shipped configurations: complete ones first, then those in folders."""
    for name in names():
        path = path_of(name)
        folder = name.partition("/")[0] if "/" in name else ""
        kind = {"": "run", "sweep": "sweep"}.get(folder, "overlay")
        with path.open(encoding="utf-8") as file:
            yield ShippedFile(name=name, kind=kind, text=file.readline().lstrip("#").strip(), path=path)


@cache
def names() -> tuple[str, ...]:
    """Names of the shipped configurations, those in folders last."""
    every = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml")}
    return tuple(sorted(every - _OTHERS, key=lambda name: ("/" in name, name)))


def path_of(name: str) -> Path:
    """The file of a shipped configuration."""
    return FOLDER / f"{name}.yaml"


def find_file(file: Path | str, folder: Path = Path()) -> Path:
    """Find a configuration file: the one at this path, relative to `folder`, else the shipped one of this name.

    `configs/nano.yaml`, as the documentation writes it, means `nano` if there is no such file.
    """
    path = folder / file
    name = _plain(file) if str(file).startswith("configs/") else str(file)
    if name not in names() or (path.exists() and not path.is_dir()):
        return path
    return path_of(name)


def find_data_file(name: str) -> Path:
    """Find a data file of a configuration: the one at this path or address, else the shipped one in `configs/`.

    Raises ConfigError for an address of the hub that cannot be fetched.
    """
    path = fetch_address(name)
    packed = FOLDER.parent / path
    return packed if path.parts[:1] == ("configs",) and not path.exists() and packed.is_file() else path


def read_settings_file(file: Path | str) -> Any:
    """Read a configuration file. Raises ConfigError, with similar names, if it cannot be read."""
    suggestion = did_you_mean(closest_names(_plain(file), names()))
    return read_yaml(find_file(file), hint=f"{suggestion}`infuser configs` lists the shipped configurations")


def _plain(file: Path | str) -> str:
    return str(file)[:200].removeprefix("configs/").removesuffix(".yaml")


BYTES = 1 << 20
"""Largest YAML text, bytes."""
DEPTH = 32
"""Most levels of nesting."""
VALUES = 20_000
"""Most values in total, counted again for each alias that repeats them."""
_REASON_CHARS = 300
_UNCLOSED = "a bracket or brace has no end, or a comma is missing"
_PROBLEMS = {
    r"found character '\t'": "there is a tab: indent with spaces",
    "expected ',' or": _UNCLOSED,
    "unexpected end of stream": "a quote has no end",
    "mapping values are not allowed": "a second `: ` in one line: start a new line, or quote the value",
    "could not find expected ':'": "a key without `:`",
    "found another document": "a second document begins with `---`: one file has one configuration",
    "expected <block end>": "the indentation does not fit the lines above",
}
"""Parts of the YAML parser's messages, and plain words for them."""


class _Loader(yaml.SafeLoader):
    """YAML loader that checks the limits while it builds nodes, because its parser recurses once per level."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self._name = name
        self._depth = 0
        self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem=f"the tag {event.tag} is not supported", problem_mark=event.start_mark)
        self._depth += 1
        self._values += 1
        _refuse_beyond(self._name, self._depth, self._values)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no word", problem_mark=key.start_mark)
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} is here twice", problem_mark=key.start_mark)
            names.add(key.value)
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":bool", ":null"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9_]{0,40})$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path, *, hint: str) -> Any:
    """Read a YAML file. Raises ConfigError with the hint if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES + 1)
        # A text that is cut within a character exceeds the size limit anyway.
        text = content.decode("utf-8", errors="strict" if len(content) <= BYTES else "replace")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "not UTF-8"
        problem = (
            f"{path} is not valid YAML: it is {encoding}, byte {content[error.start]:#04x} at offset {error.start}"
        )
        raise ConfigError(problem, hint="save the file as UTF-8") from error
    except ValueError as error:
        # A path with a null byte.
        raise ConfigError(f"cannot read {path}: {error}", hint=hint) from error
    return parse_yaml(text, name=str(path), hint="correct that line; a value with special characters needs quotes")


def parse_yaml(text: str, *, name: str, hint: str) -> Any:
    """Parse a YAML text, called `name` in messages. Raises ConfigError."""
    if len(text) > BYTES:
        raise ConfigError(f"{name} is longer than {BYTES >> 20} MB, the limit for settings", hint=hint)
    try:
        value = _Loader(text, name).get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is not valid YAML: {_explain(error)}", hint=hint) from error
    refuse_vast(value, name=name)
    return value


def _explain(error: yaml.YAMLError) -> str:
    """Say in which line of a YAML text an error is, and what is wrong there."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem is None:
        return " ".join(str(error).split())[:_REASON_CHARS]
    problem = next((text for part, text in _PROBLEMS.items() if part in error.problem), error.problem)
    # An unclosed bracket or quote is named where it begins.
    is_unclosed = problem == _UNCLOSED or "end of stream" in problem
    mark = (error.context_mark if is_unclosed else None) or error.problem_mark
    return f"line {mark.line + 1}: {problem}" if mark else problem


def refuse_vast(values: Any, *, name: str) -> None:
    """Raise ConfigError for too many values or too deep nesting; an alias counts all values that it repeats."""
    count = 0
    open_values = [(values, 1)]
    while open_values:
        value, depth = open_values.pop()
        count += 1
        _refuse_beyond(name, depth, count)
        if isinstance(value, Mapping):
            open_values += [(each, depth + 1) for each in (*value, *value.values())]
        elif isinstance(value, list):
            open_values += [(each, depth + 1) for each in value]


def _refuse_beyond(name: str, depth: int, values: int) -> None:
    hint = "a run's settings are some hundred values; long lists belong into files that settings name"
    if depth > DEPTH:
        raise ConfigError(f"{name} has more than {DEPTH} levels of nesting, the limit for settings", hint=hint)
    if values > VALUES:
        raise ConfigError(
            f"{name} has more than {VALUES} values, the limit for settings (an alias counts what it repeats)", hint=hint
        )
