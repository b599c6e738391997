"""Prompt templates are text files, loaded by name, replaceable by a user's own folder."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from infuser_core.errors import ConfigError

if TYPE_CHECKING:
    from infuser_core.protocols import Messages

HERE = Path(__file__).parent
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A system turn (may be empty), worked examples, and a user turn with `{slots}`."""

    name: str
    """`<profile>/<file name>`."""
    system: str
    """System turn, or empty."""
    user: str
    """User turn with `{slots}`."""
    examples: tuple[tuple[str, str], ...] = ()
    """Turns of user and assistant before it."""

    def messages(self, **slots: str) -> "Messages":
        """Chat turns with the slots filled; braces that are no slot stay as they are."""
        user = self.user
        for slot, value in slots.items():
            assert "{" + slot + "}" in self.user, f"prompt {self.name} has no slot {{{slot}}}"
            user = user.replace("{" + slot + "}", value)
        turns = [("system", self.system)] if self.system else []
        for asked, reply in self.examples:
            turns += [("user", asked), ("assistant", reply)]
        return [{"role": role, "content": text} for role, text in [*turns, ("user", user)]]


def load(name: str, *, profile: str) -> Template:
    """The template `<profile>/<name>.txt`; `profile` is a shipped folder's name or a path.

    Raises ConfigError when there is no such file. A file holds an optional system turn and the user turn, separated by
    a line `---`; between them worked examples may stand, a turn of the user and the reply each, separated likewise.
    """
    folder = HERE / profile if (HERE / profile).is_dir() else Path(profile)
    path = folder / f"{name}.txt"
    if not path.is_file():
        shipped = ", ".join(sorted(p.name for p in HERE.iterdir() if p.is_dir() and not p.name.startswith("_")))
        raise ConfigError(f"prompts: no file {path}", hint=f"shipped profiles: {shipped}; or a folder of your own")
    found = path.stat()
    return _read(path, f"{profile}/{name}", (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache
def _read(path: Path, name: str, _identity: tuple[int, ...]) -> Template:
    """A template, read once per process and identity of its file: every question of a draw asks for it."""
    head, *turns = path.read_text(encoding="utf-8").split("\n---\n")
    if not turns:
        head, turns = "", [head]
    elif len(turns) % 2 == 0:
        # No pairs: in the user turn the line is no separator.
        turns = ["\n---\n".join(turns)]
    *examples, user = [turn.strip() for turn in turns]
    pairs = tuple(zip(examples[::2], examples[1::2], strict=True))
    return Template(name=name, system=head.strip(), user=user, examples=pairs)


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
