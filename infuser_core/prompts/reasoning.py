"""Separate reasoning from the answer by the marks that model families write.

Text between an opening and a closing mark is reasoning, and so is everything after an opening mark that never closes:
the length limit cut it off. A closing mark alone ends reasoning that the prompt opened. Which family a mark belongs to
does not matter.

Also repairs imported texts: JSON can escape half a surrogate pair, which UTF-8 and tokenizers cannot represent.
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
"""Tokens at a prompt's end that contain its last mark, even if a token is a byte."""
_CHANNEL = re.compile(r"<\|channel\|?>|<channel\|>")


def answer_of(response: str) -> str:
    """The response without its reasoning; empty if the reasoning never ends."""
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
    """Join reasoning and answer, which a server sends separately, into one text."""
    return f"<think>\n{reasoning}\n</think>\n\n{answer}" if reasoning else answer


def reply_text(tokenizer: "Tokenizer", prompt: Sequence[int], reply: Sequence[int]) -> str:
    """Text of a reply's tokens, preceded by an opening mark of reasoning that the prompt ends with, if any.

    Without the mark, a reply cut off by the length limit would not be recognised as reasoning.
    """
    end = tokenizer.decode(prompt[-_TAIL:])
    marks = [mark for mark in _MARK.finditer(end) if not end[mark.end() :].strip()]
    return "".join(end[mark.start() :] for mark in marks if mark["opens"]) + tokenizer.decode(reply)


def is_mark(token: str) -> bool:
    """Whether a token of the vocabulary is a mark of reasoning, or begins one."""
    return _MARK.fullmatch(token) is not None or _CHANNEL.fullmatch(token) is not None


def replace_halves(value: Any) -> tuple[Any, int]:
    """Replace halves of surrogate pairs in a JSON value by U+FFFD; also return the number of texts changed."""
    if isinstance(value, str):
        whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return whole, int(whole != value)
    if isinstance(value, list):
        results = [replace_halves(item) for item in value]
        return [item for item, _ in results], sum(count for _, count in results)
    if isinstance(value, dict):
        items = {replace_halves(key)[0]: replace_halves(item) for key, item in value.items()}
        return {key: item for key, (item, _) in items.items()}, sum(count for _, count in items.values())
    return value, 0


def announce(where: object, texts: int) -> None:
    """Warn that halves of surrogate pairs were replaced in `texts` texts of `where`; silent if `texts` is 0."""
    if texts:
        text = f"{where}: half a surrogate pair in {texts:,} texts, replaced by U+FFFD"
        warnings.warn(text, DataWarning, stacklevel=2)
