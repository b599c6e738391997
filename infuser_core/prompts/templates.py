"""Prompt templates: text files loaded by name, from a shipped profile or a user's folder."""

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
    """A prompt template: a system turn (may be empty), worked examples, and a user turn with `{slots}`."""

    name: str
    """`<profile>/<file name>`."""
    system: str
    user: str
    examples: tuple[tuple[str, str], ...] = ()
    """Pairs of a user turn and the assistant's reply, before the user turn."""

    def messages(self, **slots: str) -> "Messages":
        """Chat turns with the slots filled; other braces are not changed."""
        user = self.user
        for slot, value in slots.items():
            assert "{" + slot + "}" in self.user, f"prompt {self.name} has no slot {{{slot}}}"
            user = user.replace("{" + slot + "}", value)
        turns = [("system", self.system)] if self.system else []
        for question, reply in self.examples:
            turns += [("user", question), ("assistant", reply)]
        return [{"role": role, "content": text} for role, text in [*turns, ("user", user)]]


def load_template(name: str, *, profile: str) -> Template:
    """Load the template `<profile>/<name>.txt`; `profile` is a shipped folder's name or a path.

    A file has an optional system turn and the user turn, separated by a line `---`; worked examples may come between
    them, each a user turn and its reply, also separated by `---`. Raises ConfigError if there is no such file.
    """
    folder = HERE / profile if (HERE / profile).is_dir() else Path(profile)
    path = folder / f"{name}.txt"
    if not path.is_file():
        shipped = ", ".join(sorted(p.name for p in HERE.iterdir() if p.is_dir() and not p.name.startswith("_")))
        raise ConfigError(f"prompts: no file {path}", hint=f"shipped profiles: {shipped}; or a folder of your own")
    status = path.stat()
    return _read_template(path, f"{profile}/{name}", (status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache
def _read_template(path: Path, name: str, _identity: tuple[int, ...]) -> Template:
    """Parse a template; cached by the file's identity, because every question loads it."""
    head, *turns = path.read_text(encoding="utf-8").split("\n---\n")
    if not turns:
        head, turns = "", [head]
    elif len(turns) % 2 == 0:
        # Examples come in pairs: without one more turn, the lines belong to the user turn.
        turns = ["\n---\n".join(turns)]
    *examples, user = [turn.strip() for turn in turns]
    pairs = tuple(zip(examples[::2], examples[1::2], strict=True))
    return Template(name=name, system=head.strip(), user=user, examples=pairs)


def load_or_shipped(name: str, *, profile: str) -> Template:
    """Load the profile's template, or the paper's if the profile has none of that name."""
    try:
        return load_template(name, profile=profile)
    except ConfigError:
        return load_template(name, profile="paper")


def render_question(text: str, choices: list[str]) -> str:
    """Render a question as the solver sees it: the text, then one lettered line per choice."""
    lines = [f"{letter}) {choice}" for letter, choice in zip(LETTERS[: len(choices)], choices, strict=True)]
    return "\n".join([text, *lines])
