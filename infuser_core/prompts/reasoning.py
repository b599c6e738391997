"""Reasoning parted from the answer, by the marks that model families write.

Text between an opening and a closing mark is reasoning, and so is everything after an opening mark that never closes:
the length limit cut it off. A closing mark alone ends reasoning that the prompt opened. Which family a mark belongs to
does not matter.

Texts from outside pass here for one more reason: JSON can hold half a surrogate pair as an escape, UTF-8 and tokenizers
cannot.
"""

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infuser_core.errors import DataWarning

if TYPE_CHECKING:
    from infuser_core.protocols import Tokenizer

_NAMES = r"(?:\w{1,16}[:_])?(?:think|thinking|thoughts?|reasoning)"
# Qwen, DeepSeek and most others; Seed; Mistral; Kimi; Cohere; Apertus; OpenThinker; gpt-oss and Gemma, whose channels
# hold the answer too.
_MARK = re.compile(
    rf"(?P<opens>(?i:<{_NAMES}>)|\[THINK\]|◁think▷|<\|(?:START_THINKING|inner_prefix|begin_of_thought)\|>"
    r"|<\|channel\|?>\s*+(?:analysis|commentary|thought)\b(?:<\|message\|>)?)"
    rf"|(?i:</{_NAMES}>)|\[/THINK\]|◁/think▷|<\|(?:END_THINKING|inner_suffix|end_of_thought)\|>"
    r"|<channel\|>|<\|channel\|>\s*+final\b(?:<\|message\|>)?"
)
_TAIL = 32
"""Tokens at a prompt's end that hold its last mark, even where a token is a byte."""
_CHANNEL = re.compile(r"<\|channel\|?>|<channel\|>")


def answer_of(response: str) -> str:
    """The response without its reasoning; empty where the reasoning never ends."""
    parts: list[str] = []
    start, reasons = 0, False
    for mark in _MARK.finditer(response):
        if mark["opens"] is None:
            if not reasons:
                parts.clear()
            start, reasons = mark.end(), False
        elif not reasons:
            parts.append(response[start : mark.start()])
            reasons = True
    if not reasons:
        parts.append(response[start:])
    return "\n".join(part for part in parts if part)


def with_reasoning(reasoning: str, answer: str) -> str:
    """One text of what a server sends as two; the answer alone where there is no reasoning."""
    return f"<think>\n{reasoning}\n</think>\n\n{answer}" if reasoning else answer


def reply_text(tokenizer: "Tokenizer", prompt: Sequence[int], reply: Sequence[int]) -> str:
    """Text of a reply's tokens, after the mark of reasoning that the prompt ends with, if it does.

    Where the length limit cuts such a reply off, no mark in it says that all of it is reasoning.
    """
    end = tokenizer.decode(prompt[-_TAIL:])
    marks = [mark for mark in _MARK.finditer(end) if not end[mark.end() :].strip()]
    return "".join(end[mark.start() :] for mark in marks if mark["opens"]) + tokenizer.decode(reply)


def is_mark(token: str) -> bool:
    """Whether a token of the vocabulary parts reasoning from the answer, or begins a mark that does."""
    return _MARK.fullmatch(token) is not None or _CHANNEL.fullmatch(token) is not None


def replace_halves(value: Any) -> tuple[Any, int]:
    """A value of JSON with every half of a surrogate pair replaced by U+FFFD, and the number of texts that held one."""
    if isinstance(value, str):
        whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return whole, int(whole != value)
    if isinstance(value, list):
        each = [replace_halves(item) for item in value]
        return [item for item, _ in each], sum(count for _, count in each)
    if isinstance(value, dict):
        items = {replace_halves(key)[0]: replace_halves(item) for key, item in value.items()}
        return {key: item for key, (item, _) in items.items()}, sum(count for _, count in items.values())
    return value, 0


def announce(where: object, texts: int) -> None:
    """Warn of the number of texts that were changed."""
    if texts:
        text = f"{where}: half a surrogate pair in {texts:,} texts, replaced by U+FFFD"
        warnings.warn(text, DataWarning, stacklevel=2)
