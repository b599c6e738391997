"""Text to tokens and back through the tokenizer files of a checkpoint folder.

A tokenizer without a chat template, as some base models have, gets a plain one of ours. Anchors record it as a file
(`record_template`), so that a run's artifacts say how its prompts were put.
"""

import json
import re
import string
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from infuser_core.engines.hf.limits import reading
from infuser_core.errors import CheckpointError, ConfigError, EngineError
from infuser_core.prompts.reasoning import is_mark
from infuser_core.protocols import Messages, PromptGroup, SamplingParams

TEMPLATE_FILE = "chat_template.jinja"
"""Where transformers looks for a template beside the tokenizer."""

PLAIN = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:\n{{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
"""Turns as plain text under their role's name. No mark ends a turn: a base model ends at its end-of-text token."""

_AS_IS = "Probe: 1 < 2 & \"a\" > 'b'\n\\boxed{x_1}\t{{ y }} {% z %}"
"""Signs that questions have: a template may escape or read none of them."""
DATE = datetime(2026, 1, 1, tzinfo=UTC)
"""The day that a template sees when it asks the clock: a prompt must not depend on the day of the run."""
# transformers hands no functions to a template, so this one is a macro: it takes the place of the library's own.
_CLOCK = "{%- macro strftime_now(format) -%}{{ format FILTERS }}{%- endmacro %}\n".replace(
    "FILTERS",
    " ".join(
        f"| replace('{code}', '{DATE.strftime(code)}')"
        for code in [f"%{sign}{letter}" for letter in string.ascii_letters.replace("s", "") for sign in ("", "-")]
    ),
)


class Renderer:
    """protocols.Tokenizer over a folder's tokenizer; prompts go through its chat template."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _read(folder)
        self._hidden = _hidden(self._tokenizer)
        self._control = Control(self._tokenizer)
        self._own = _own_template(self._tokenizer, folder)
        self._plain = plain_template(self._tokenizer)
        turns = _probe("system", "user")
        fault = self._fault(self._own, turns) if self._own is not None else ""
        self._merges = fault != ""
        if self._own is not None and self._merges and self._fault(self._own, merged(turns)):
            raise CheckpointError(f"the chat template in {folder} {fault}", hint="mend the template: prompts need both")
        self._probed: set[tuple[str, ...]] = set()

    @property
    def end_token(self) -> int | None:
        """The tokenizer's own end-of-sequence token."""
        return self._tokenizer.eos_token_id

    def token(self, token_id: int) -> str:
        """A token as the vocabulary spells it."""
        return str(self._tokenizer.convert_ids_to_tokens(token_id))

    @property
    def own_template(self) -> bool:
        """Whether the folder brings a chat template; without one, prompts are put as plain text."""
        return self._own is not None

    def render(self, messages: Messages, chat: str = "own") -> list[int]:
        """Tokens of the chat turns with the assistant's header; `chat` is own, off or a template in Jinja.

        A system turn opens the first user turn where the folder's template has no place for one. Raises ConfigError for
        a template that leaves out or alters a turn.
        """
        template = {"own": self._plain if self._own is None else self._own, "off": self._plain}.get(chat, chat)
        turns = merged(messages) if self._merges and chat == "own" else messages
        self._require(template, *(turn["role"] for turn in turns))
        turns = [turn | {"content": self._control.as_text(turn["content"], template)} for turn in turns]
        return list(self._put(turns, template, tokenize=True))

    def _put(self, turns: Messages, template: str, *, tokenize: bool) -> Any:
        """The turns with the assistant's header: tokens, or text."""
        # return_dict: transformers 5 returns a mapping by default.
        return self._tokenizer.apply_chat_template(
            turns,
            chat_template=_CLOCK + template if "strftime_now" in template else template,
            add_generation_prompt=True,
            tokenize=tokenize,
            return_dict=False,
        )

    def _fault(self, template: str, turns: Messages) -> str:
        """The reason why a template cannot put the turns; empty where it shows them all as they are."""
        try:
            text = str(self._put(turns, template, tokenize=False))
        except (TemplateError, TypeError, ValueError) as error:
            return f"fails: {error}"
        if control := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text):
            return f"writes the control character {control[0]!r}: in its quotes a backslash is written twice"
        lost = [turn["role"] for turn in turns if turn["content"] not in text]
        return f"leaves out or alters the text of {' and '.join(dict.fromkeys(lost))}" if lost else ""

    def _require(self, template: str, *roles: str) -> None:
        """Raises ConfigError for a template that loses a turn of a chat of these roles."""
        if (template, *roles) in self._probed:
            return
        if fault := self._fault(template, _probe(*roles)):
            raise ConfigError(f"chat: the template {fault}", hint="write every turn's content as text")
        self._probed.add((template, *roles))

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(self._control.as_text(text), add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens but the marks of reasoning, spaces as the tokens spell them."""
        shown = [token for token in token_ids if token not in self._hidden]
        return str(self._tokenizer.decode(shown, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _probe(*roles: str) -> Messages:
    """Turns of these roles, each with another text."""
    return [{"role": role, "content": f"{place}. {role} {_AS_IS}"} for place, role in enumerate(roles)]


class Control:
    """The control tokens of a tokenizer, kept apart from text that spells them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        # A token of one character looks like text, and templates write blank ones as text.
        entries = ((token, entry) for token, entry in tokenizer.added_tokens_decoder.items())
        self._added = {token: entry for token, entry in entries if len(entry.content.strip()) > 1}
        self._patterns: dict[str, re.Pattern[str]] = {}

    def as_text(self, text: str, template: str = "") -> str:
        """The text, an invisible character inside of what it spells of a control token.

        Control tokens are the special ones and the added ones that the template writes: it opens turns with them.
        """
        if template not in self._patterns:
            self._patterns[template] = self._pattern(template)
        return self._patterns[template].sub(lambda found: found[0][0] + self._break + found[0][1:], text)

    @cached_property
    def _break(self) -> str:
        """The first of two characters that a tokenizer's normalizer lets be."""
        for character in ("\u2060", " "):
            spelled = {token: entry.content[0] + character + entry.content[1:] for token, entry in self._added.items()}
            if all(token not in self._tokenizer.encode(text) for token, text in spelled.items()):
                return character
        raise CheckpointError(
            f"the tokenizer in {self._tokenizer.name_or_path} makes control tokens of any text that resembles them",
            hint="give a model whose tokenizer normalizes no control tokens",
        )

    def _pattern(self, template: str) -> re.Pattern[str]:
        entries = self._added.values()
        names = {entry.content for entry in entries if entry.special or entry.content in template}
        # Without regard to case: a normalizer may lower it. The longest first: it may hold another.
        longest = sorted(names, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest)) or r"(?!)", re.IGNORECASE)


def _hidden(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Special tokens that no text shows. Some families make the marks of reasoning special: those are shown."""
    added = tokenizer.added_tokens_decoder
    special = {*tokenizer.all_special_ids, *(token for token, entry in added.items() if entry.special)}
    return frozenset(token for token in special if not is_mark(str(tokenizer.convert_ids_to_tokens(token))))


def merged(messages: Messages) -> Messages:
    """The turns without a system turn: what it says stands before the first user turn, a blank line between."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, *turns = messages
    if not turns or turns[0]["role"] != "user":
        return [{"role": "user", "content": system["content"]}, *turns]
    return [{"role": "user", "content": f"{system['content']}\n\n{turns[0]['content']}"}, *turns[1:]]


def _own_template(tokenizer: PreTrainedTokenizerBase, folder: Path) -> str | None:
    """The folder's chat template; None where it has none. Raises CheckpointError for several without a default."""
    found = tokenizer.chat_template
    if not isinstance(found, dict):
        return found
    if "default" not in found:
        raise CheckpointError(
            f"{folder} has several chat templates and none is the default: {', '.join(sorted(found))}",
            hint=f"write the one to use into {TEMPLATE_FILE} in that folder",
        )
    return str(found["default"])


def plain_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """PLAIN, after the beginning-of-text token where the tokenizer puts one before plain text."""
    start = tokenizer.bos_token_id
    begins = start is not None and tokenizer("a").input_ids[:1] == [start]
    return ("{{ bos_token }}" if begins else "") + PLAIN


def record_template(source: Path, target: Path) -> list[Path]:
    """Write the plain template into `target` where the tokenizer in `source` has none; returns what was written."""
    if any(source.glob("chat_template*")) or not any(source.glob("tokenizer*")) or _in_config(source):
        return []
    path = target / TEMPLATE_FILE
    path.write_text(plain_template(_read(source)), encoding="utf-8")
    return [path]


def _in_config(folder: Path) -> bool:
    """Older tokenizers keep their template inside of their configuration."""
    path = folder / "tokenizer_config.json"
    return path.is_file() and json.loads(path.read_text(encoding="utf-8")).get("chat_template") is not None


def _read(folder: Path) -> PreTrainedTokenizerBase:
    hint = "give a folder with config.json and tokenizer.json; code that comes with a tokenizer is never run"
    with reading(f"the tokenizer in {folder}", hint=hint):
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    # Without any of its files, transformers makes up one that knows no text.
    if len(found) <= len(found.added_tokens_decoder):
        raise CheckpointError(f"{folder} holds no tokenizer", hint="give a folder with tokenizer.json")
    return found


def require_room(groups: Sequence[PromptGroup], params: SamplingParams, limit: int | None, vocabulary: int) -> None:
    """Raises EngineError for a prompt without tokens, with one that the model does not know, or without room for its
    response."""
    for group in groups:
        length = len(group.token_ids)
        if length == 0:
            raise EngineError(f"the prompt of {group.group_id!r} is empty", hint="render at least one token")
        if (largest := max(group.token_ids)) >= vocabulary:
            raise EngineError(
                f"the prompt of {group.group_id!r} holds token {largest}, and the model's vocab_size is {vocabulary}",
                hint="the tokenizer belongs to another model: give the one that the model was trained with",
            )
        if limit is not None and length + group.limit(params) > limit:
            raise EngineError(
                f"prompt of {group.group_id!r}: {length} tokens and a response limit of {group.limit(params)} exceed "
                f"the {limit} positions of the model or engine",
                hint="lower max_tokens or shorten the prompt",
            )
