"""Prompt templates are text files, loaded by name, replaceable by a user's own folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infuser_core.errors import ConfigError

if TYPE_CHECKING:
    from infuser_core.engines.protocols import Messages

HERE = Path(__file__).parent
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A system turn (may be empty) and a user turn with `{slots}`."""

    name: str
    """`<profile>/<file name>`."""
    system: str
    """System turn, or empty."""
    user: str
    """User turn with `{slots}`."""

    def messages(self, **slots: str) -> "Messages":
        """Chat turns with the slots filled; braces that are no slot stay as they are."""
        user = self.user
        for slot, value in slots.items():
            assert "{" + slot + "}" in self.user, f"prompt {self.name} has no slot {{{slot}}}"
            user = user.replace("{" + slot + "}", value)
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": user}]


def load(name: str, *, profile: str) -> Template:
    """The template `<profile>/<name>.txt`; `profile` is a shipped folder's name or a path.

    Raises ConfigError when there is no such file. A file holds an optional system turn and the user turn,
    separated by a line `---`.
    """
    folder = HERE / profile if (HERE / profile).is_dir() else Path(profile)
    path = folder / f"{name}.txt"
    if not path.is_file():
        shipped = ", ".join(sorted(p.name for p in HERE.iterdir() if p.is_dir() and not p.name.startswith("_")))
        raise ConfigError(f"prompts: no file {path}", hint=f"shipped profiles: {shipped}; or a folder of your own")
    head, mark, tail = path.read_text(encoding="utf-8").partition("\n---\n")
    system, user = (head.strip(), tail) if mark else ("", head)
    return Template(name=f"{profile}/{name}", system=system, user=user.strip())


def load_or_shipped(name: str, *, profile: str) -> Template:
    """The profile's template, or the paper's where the profile has none of that name."""
    try:
        return load(name, profile=profile)
    except ConfigError:
        return load(name, profile="paper")


def render_question(text: str, choices: list[str]) -> str:
    """The question as a solver sees it: the text, then one lettered line per choice."""
    lines = [f"{letter}) {choice}" for letter, choice in zip(LETTERS[: len(choices)], choices, strict=True)]
    return "\n".join([text, *lines])
