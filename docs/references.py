"""MkDocs hook that writes the site's home page, its references of commands, settings, tables and functions, and its
formulas."""

import ast
import html
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import messages
import notebooks
import pypandoc
import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import infuser_core
from flows.cli.main import app
from infuser_core.config import shipped
from infuser_core.config.run import RunConfig
from infuser_core.schemas import columns
from infuser_core.store.views import TABLES

ROOT = Path(__file__).parent.parent
API = [
    "infuser_core.plugins",
    "infuser_core.cotrain.reward",
    "infuser_core.cotrain.route",
    "infuser_core.verifiers.parts.batch",
    "infuser_core.evaluation.benchmarks.parts.loader",
    "infuser_core.config.overlays",
    "infuser_core.store.store",
    "infuser_core.store.views",
]
"""Modules that programs outside the project import."""
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff")
"""Files next to the README that the site also shows."""
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
"""A formula as pymdownx.arithmatex leaves it: inline in round brackets, displayed in square ones."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of docs/."""
    pages = {"index": home, "reference/commands": commands, "reference/settings": settings}
    pages |= {
        "reference/messages": messages.page,
        "reference/configurations": configurations,
        "reference/tables": tables,
        "reference/python": api,
    }
    for name, page in pages.items():
        files.append(File.generated(config, f"{name}.md", content=page()))
    for path, content in notebooks.pages():
        files.append(File.generated(config, path, content=content))
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=root_page(name)))
    return files


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the formulas of a page by MathML, which browsers show without a script."""
    formulas = [(bracket, html.unescape(latex).strip()) for _, bracket, latex in FORMULA.findall(content)]
    if not formulas:
        return content
    source = "\n\n".join(f"$${latex}$$" if bracket == "[" else f"${latex}$" for bracket, latex in formulas)
    page_of_formulas = pypandoc.convert_text(source, "html", format="markdown", extra_args=["--mathml"])
    rendered = iter(re.findall(r"<math.*?</math>", page_of_formulas, re.DOTALL))
    shown = FORMULA.sub(lambda match: _frame(match[2], next(rendered)), content)
    if next(rendered, None) is not None:
        raise ValueError(f"{page.file.src_path}: a formula was rendered as several")
    return shown


def _frame(bracket: str, formula: str) -> str:
    """A displayed formula in a box that scrolls if it is wider than the page; an inline one as it is."""
    return f'<div class="formula">{formula}</div>' if bracket == "[" else formula


def home() -> str:
    """The README."""
    return root_page("README.md")


def root_page(name: str) -> str:
    """A file of the project's root, its links as they are from docs/."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"\]\(examples/notebooks/(\w+)\.ipynb\)", r"](notebooks/\1.md)", text)


def commands() -> str:
    """Every command with its parameters, from the command line itself."""
    lines = ["# Command line"]
    for name, command in _commands(typer.main.get_command(app), "infuser"):
        lines += [f"\n## {name}\n", str(command.help), "\n| Parameter | Default | Meaning |\n|---|---|---|"]
        for parameter in command.params:
            shown = ", ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.name.upper()
            default = "" if parameter.default is None or callable(parameter.default) else f"`{parameter.default}`"
            lines.append(_row(f"`{shown}`", default, parameter.help or ""))
    return "\n".join(lines)


def configurations() -> str:
    """Every shipped configuration with its first line, as `infuser configs` lists them."""
    lines = ["# Shipped configurations", "", "| Name | Kind | What it is |", "|---|---|---|"]
    return "\n".join([*lines, *(_row(f"`{one.name}`", one.kind, one.text) for one in shipped.configurations())])


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if getattr(command, "commands", None):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def settings() -> str:
    """Every configuration key with type, default and meaning, from the settings' field docstrings."""
    lines = ["# Configuration keys", "", "Keys of `type` choose among the parts below them."]
    head = "\n| Key | Type | Default | Meaning |\n|---|---|---|---|"
    for prefix, model in _models(RunConfig, ""):
        meanings = docstrings(model)
        lines += [f"\n## {prefix or 'The whole run'}\n", f"`{model.__name__}`: {inspect.getdoc(model)}", head]
        for name, field in model.model_fields.items():
            key = f"`{prefix.split(' ')[0]}.{name}`" if prefix else f"`{name}`"
            meaning = meanings.get(name) or _meaning_of_part(name, model, field)
            lines.append(_row(key, f"`{_type(field)}`", _default(field), meaning))
    return "\n".join(lines)


def _meaning_of_part(name: str, model: type[BaseModel], field: FieldInfo) -> str:
    """The first sentence of a section's class: for the field that holds the section, or for its `type`."""
    (part,) = [model] if name == "type" else _inner(field.annotation)
    return (inspect.getdoc(part) or "").split("\n\n")[0]


def _models(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    yield prefix, model
    for name, field in model.model_fields.items():
        inner = _inner(field.annotation)
        for part in inner:
            at = f"{prefix.split(' ')[0]}.{name}".lstrip(".")
            choice = part.model_fields.get("type")
            kind = f" (type: {', '.join(map(str, get_args(choice.annotation)))})" if choice and len(inner) > 1 else ""
            yield from _models(part, f"{at}{kind}")


def _inner(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _inner(argument)]


def _type(field: FieldInfo) -> str:
    annotation = field.annotation
    text = annotation.__name__ if inspect.isclass(annotation) and not get_args(annotation) else str(annotation)
    for noise in ("typing.", "Annotated", "infuser_core.config."):
        text = text.replace(noise, "")
    return text if len(text) < 90 and not _inner(annotation) else " or ".join(m.__name__ for m in _inner(annotation))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, BaseModel):
        return "as below"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, list) and any(isinstance(entry, BaseModel) for entry in value):
        return f"{len(value)} entries"
    if value is None or value == "":
        return "null" if value is None else "empty"
    return f"`{value}`"


def tables() -> str:
    """Every table of SQL, column by column, from the field docstrings of its rows."""
    lines = ["# Tables", "", "Each has `run`, `iteration`, `phase` and `artifact_key` in front."]
    for name, row in TABLES.items():
        assert is_dataclass(row)
        meanings = docstrings(row)
        lines += [f"\n## {name}\n", str(inspect.getdoc(row))]
        lines += ["\n| Column | Type | Unit | Names a row of | Meaning |\n|---|---|---|---|---|"]
        for field in fields(row):
            column = columns(row)[field.name]
            kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
            names = f"`{column.refers_to}`" if column.refers_to else ""
            lines.append(_row(f"`{field.name}`", f"`{kind}`", column.unit, names, meanings.get(field.name, "")))
    return "\n".join(lines)


def api() -> str:
    """The public surface, and the modules for parts of other packages, by mkdocstrings."""
    surface = [f"::: {getattr(infuser_core, name).__module__}.{name}" for name in infuser_core.__all__]
    return "\n\n".join(
        [
            "# Python",
            "Scripts use `import infuser_core as infuser` and the names of the first part, which stay: see",
            "[From Python](../library.md). Parts of other packages implement what the second part describes.",
            "## import infuser_core as infuser",
            *surface,
            "## Modules for own parts",
            *(f"::: {module}" for module in API),
        ]
    )


def docstrings(kind: type) -> dict[str, str]:
    """The string below each field, by the field's name, those of base classes included."""
    meanings: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if base.__module__.startswith("infuser_core")]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    meanings[name] = inspect.cleandoc(text)
    return meanings


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"
