"""Render chat prompts as tokens, and decode tokens, with the tokenizer and chat template of a checkpoint folder.

A tokenizer without a chat template, as some base models have, gets this module's plain one. `record_template` writes it
into a run's first checkpoint, so that the run's artifacts show the format of its prompts.
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
"""File next to the tokenizer in which transformers looks for a template."""

PLAIN = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:\n{{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
"""Turns as plain text after their role's name. No token ends a turn: a base model ends at its end-of-text token."""

_SPECIAL_CHARACTERS = "Probe: 1 < 2 & \"a\" > 'b'\n\\boxed{x_1}\t{{ y }} {% z %}"
"""Characters that occur in questions and that a template must neither escape nor interpret."""
DATE = datetime(2026, 1, 1, tzinfo=UTC)
"""The date that templates see: a prompt must not depend on the day of the run."""
# transformers passes no functions of ours to a template, so this macro replaces the library's `strftime_now`.
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
        self._tokenizer = _read_tokenizer(folder)
        added = self._tokenizer.added_tokens_decoder
        special = {*self._tokenizer.all_special_ids, *(token for token, entry in added.items() if entry.special)}
        # Decoded text omits special tokens, but not the marks of reasoning, which are special in some families.
        self._hidden = {token for token in special if not is_mark(str(self._tokenizer.convert_ids_to_tokens(token)))}
        self._control = ControlTokens(self._tokenizer)
        self._own = _folder_template(self._tokenizer, folder)
        self._plain = plain_template(self._tokenizer)
        turns = _probe_turns("system", "user")
        fault = self._fault(self._own, turns) if self._own is not None else ""
        self._merges = fault != ""
        if self._own is not None and self._merges and self._fault(self._own, merge_system_turn(turns)):
            raise CheckpointError(f"the chat template in {folder} {fault}", hint="correct it: prompts need both turns")
        self._tested: set[tuple[str, tuple[str, ...]]] = set()

    @property
    def end_token(self) -> int | None:
        """The tokenizer's end-of-sequence token."""
        return self._tokenizer.eos_token_id

    def token(self, token_id: int) -> str:
        """Return a token as the vocabulary spells it."""
        return str(self._tokenizer.convert_ids_to_tokens(token_id))

    @property
    def has_own_template(self) -> bool:
        """Whether the folder has a chat template; without one, prompts are written as plain text."""
        return self._own is not None

    def render(self, messages: Messages, chat: str = "own") -> list[int]:
        """Convert chat turns and the assistant's header to tokens; `chat` is own, off or a template in Jinja.

        If the folder's template does not support a system turn, it is merged into the first user turn. Raises
        ConfigError for a template that leaves out or alters a turn.
        """
        template = {"own": self._plain if self._own is None else self._own, "off": self._plain}.get(chat, chat)
        turns = merge_system_turn(messages) if self._merges and chat == "own" else messages
        roles = tuple(turn["role"] for turn in turns)
        if (template, roles) not in self._tested:
            if fault := self._fault(template, _probe_turns(*roles)):
                raise ConfigError(f"chat: the template {fault}", hint="write every turn's content as text")
            self._tested.add((template, roles))
        turns = [turn | {"content": self._control.as_text(turn["content"], template)} for turn in turns]
        return list(self._apply_template(turns, template, tokenize=True))

    def _apply_template(self, turns: Messages, template: str, *, tokenize: bool) -> Any:
        """Render the turns with the assistant's header, as tokens or as text."""
        # return_dict: transformers 5 returns a mapping by default.
        return self._tokenizer.apply_chat_template(
            turns,
            chat_template=_CLOCK + template if "strftime_now" in template else template,
            add_generation_prompt=True,
            tokenize=tokenize,
            return_dict=False,
        )

    def _fault(self, template: str, turns: Messages) -> str:
        """Return the reason that a template cannot render the turns; empty if it renders all of them unchanged."""
        try:
            text = str(self._apply_template(turns, template, tokenize=False))
        except (TemplateError, TypeError, ValueError) as error:
            return f"fails: {error}"
        if control := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text):
            return f"writes the control character {control[0]!r}: write a backslash in its string literals twice"
        missing = [turn["role"] for turn in turns if turn["content"] not in text]
        return f"leaves out or alters the text of {' and '.join(dict.fromkeys(missing))}" if missing else ""

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(self._control.as_text(text), add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode to text without special tokens other than reasoning marks; spaces stay as the tokens spell them."""
        visible = [token for token in token_ids if token not in self._hidden]
        return str(self._tokenizer.decode(visible, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _probe_turns(*roles: str) -> Messages:
    """Build turns of these roles with distinct texts, to test a template."""
    return [{"role": role, "content": f"{place}. {role} {_SPECIAL_CHARACTERS}"} for place, role in enumerate(roles)]


class ControlTokens:
    """The control tokens of a tokenizer; `as_text` changes text that spells one, so that it stays plain text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        # Tokens of one character look like text, and templates write blank ones as text.
        added = tokenizer.added_tokens_decoder.items()
        self._added = {token: entry for token, entry in added if len(entry.content.strip()) > 1}
        self._patterns: dict[str, re.Pattern[str]] = {}

    def as_text(self, text: str, template: str = "") -> str:
        """Insert an invisible character into every spelling of a control token in a text.

        Control tokens are the special ones, and the added ones that the template writes to open turns.
        """
        if template not in self._patterns:
            entries = self._added.values()
            names = {entry.content for entry in entries if entry.special or entry.content in template}
            # Longest first, since a token may contain another. Case is ignored, since a normalizer may lower it.
            longest = sorted(names, key=len, reverse=True)
            self._patterns[template] = re.compile("|".join(map(re.escape, longest)) or r"(?!)", re.IGNORECASE)
        return self._patterns[template].sub(lambda match: match[0][0] + self._separator + match[0][1:], text)

    @cached_property
    def _separator(self) -> str:
        """The first of two characters, invisible and blank, that keeps text from becoming a control token."""
        for character in ("\u2060", " "):
            spelled = {token: entry.content[0] + character + entry.content[1:] for token, entry in self._added.items()}
            if all(token not in self._tokenizer.encode(text) for token, text in spelled.items()):
                return character
        raise CheckpointError(
            f"the tokenizer in {self._tokenizer.name_or_path} turns any text that resembles a control token into it",
            hint="give a model whose tokenizer does not normalize control tokens",
        )


def merge_system_turn(messages: Messages) -> Messages:
    """Merge a leading system turn into the first user turn, separated by a blank line."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, *turns = messages
    if not turns or turns[0]["role"] != "user":
        return [{"role": "user", "content": system["content"]}, *turns]
    return [{"role": "user", "content": f"{system['content']}\n\n{turns[0]['content']}"}, *turns[1:]]


def _folder_template(tokenizer: PreTrainedTokenizerBase, folder: Path) -> str | None:
    """Find the folder's chat template; None if it has none. Raises CheckpointError for several without a default."""
    templates = tokenizer.chat_template
    if not isinstance(templates, dict):
        return templates
    if "default" not in templates:
        raise CheckpointError(
            f"{folder} has several chat templates and none is the default: {', '.join(sorted(templates))}",
            hint=f"write the one to use into {TEMPLATE_FILE} in that folder",
        )
    return str(templates["default"])


def plain_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the template PLAIN, after a beginning-of-text token if the tokenizer writes one before plain text."""
    start = tokenizer.bos_token_id
    begins = start is not None and tokenizer("a").input_ids[:1] == [start]
    return ("{{ bos_token }}" if begins else "") + PLAIN


def record_template(source: Path, target: Path) -> list[Path]:
    """Write the plain template into `target` if the tokenizer in `source` has none; returns the written files."""
    if any(source.glob("chat_template*")) or not any(source.glob("tokenizer*")):
        return []
    # Older tokenizers keep their template in their configuration.
    config = source / "tokenizer_config.json"
    if config.is_file() and json.loads(config.read_text(encoding="utf-8")).get("chat_template") is not None:
        return []
    path = target / TEMPLATE_FILE
    path.write_text(plain_template(_read_tokenizer(source)), encoding="utf-8")
    return [path]


def _read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    hint = "give a folder with config.json and tokenizer.json; code that comes with a tokenizer is never run"
    with reading(f"the tokenizer in {folder}", hint=hint):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    # Without any of its files, transformers returns a tokenizer that knows no text.
    if len(tokenizer) <= len(tokenizer.added_tokens_decoder):
        raise CheckpointError(f"{folder} holds no tokenizer", hint="give a folder with tokenizer.json")
    return tokenizer


def require_room(groups: Sequence[PromptGroup], params: SamplingParams, limit: int | None, vocabulary: int) -> None:
    """Raise EngineError for a prompt that is empty, has an unknown token or leaves no room for its response."""
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
