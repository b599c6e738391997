"""Ask a language model for JSON, parse its replies, and repeat requests whose replies are unusable."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from infuser_core.prompts.reasoning import answer_of
from infuser_core.protocols import ChatModel, Messages, Progress, no_progress

T = TypeVar("T")
ATTEMPTS = 3
"""Largest number of requests per prompt."""
_NOTE = "An earlier reply to this could not be used: {}. Reply with the JSON object alone."
MAX_CHARS = 50_000
"""Largest part of one reply that is read, characters."""


class ReplyProblem(ValueError):
    """A reply cannot be used; the message gives the reason and is included in the next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A reply of a model, the subject of its request, and whether it can be used."""

    task: str
    """assign, merge, phrase, rank, structure or judge."""
    item: str
    """Subject of the request: a (domain, subdomain) pair, a question's or document's id, labels or headings."""
    attempt: int
    """1 for the first request."""
    model: str
    reply: str
    """Text of the reply; empty if it could repeat a question."""
    problem: str
    """Why the reply cannot be used; empty if it can."""


def ask_model(
    model: ChatModel,
    prompts: Sequence[Messages],
    parse: Callable[[int, dict[str, Any]], T],
    *,
    task: str,
    items: Sequence[str],
    max_tokens: int,
    keep_replies: bool = True,
    stricter: Sequence[str] = (),
    progress: Progress = no_progress,
) -> tuple[list[T | None], list[ModelCall]]:
    """Ask the model all prompts and parse the replies; repeat prompts without a usable reply, up to ATTEMPTS requests.

    Returns one value per prompt, in order, None if no reply was usable; and all replies, in the order of the requests.
    A value is `parse(place, object)` of the first JSON object in a reply, after any reasoning, for which `parse` does
    not raise ReplyProblem; `place` is the number of the prompt. A repeated prompt ends in a note of the problem or in
    the next of the `stricter` last lines: a model that decodes greedily repeats itself on an unchanged prompt.
    """
    values: list[T | None] = [None] * len(prompts)
    calls: list[ModelCall] = []
    ahead = {place: list(prompt) for place, prompt in enumerate(prompts)}
    for attempt in range(1, ATTEMPTS + 1):
        if not ahead:
            break
        replies = model.complete(list(ahead.values()), max_tokens=max_tokens, progress=progress)
        for place, reply in zip(list(ahead), replies, strict=True):
            problem = ""
            try:
                values[place] = _first_usable(reply, place, parse)
                del ahead[place]
            except ReplyProblem as error:
                problem = str(error)
                note = stricter[min(attempt, len(stricter)) - 1] if stricter else _NOTE.format(problem)
                last = prompts[place][-1]
                ahead[place] = [*prompts[place][:-1], {**last, "content": f"{last['content']}\n\n{note}"}]
            calls.append(
                ModelCall(
                    task=task,
                    item=items[place],
                    attempt=attempt,
                    model=model.name,
                    reply=reply if keep_replies else "",
                    problem=problem,
                )
            )
    return values, calls


def _first_usable(reply: str, place: int, parse: Callable[[int, dict[str, Any]], T]) -> T:
    """Parse the first usable JSON object of a reply. Raises the first object's ReplyProblem if none is usable."""
    problem = ReplyProblem("the reply has no JSON object")
    for number, value in enumerate(json_objects(answer_of(reply))):
        try:
            return parse(place, value)
        except ReplyProblem as error:
            problem = problem if number else error
    raise problem


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Find the outermost JSON objects in a text, in order."""
    text = text[:MAX_CHARS]
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            yield value
        place = text.find("{", end)
