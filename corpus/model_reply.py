"""JSON replies of a language model: parsed, and requested again a bounded number of times."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from infuser_core.prompts.reasoning import answer_of
from infuser_core.protocols import ChatModel, Messages, Progress, no_progress

T = TypeVar("T")
ATTEMPTS = 3
"""Requests per prompt, at most."""
_NOTE = "An earlier reply to this could not be used: {}. Reply with the JSON object alone."
MAX_CHARS = 50_000
"""Largest part of one reply that is read, characters."""


class ReplyProblem(ValueError):
    """A reply cannot be used, with the reason; the next request includes the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One reply of a model, and whether it can be used."""

    task: str
    """assign, merge, phrase, rank, structure or judge."""
    item: str
    """Subject of the request: a pair, a question's id, a window of labels."""
    attempt: int
    """1 for the first request."""
    model: str
    reply: str
    """Empty if it could repeat a question."""
    problem: str
    """Why it cannot be used; empty if it can."""


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
    """One value per prompt, in order, None if no attempt gave a usable reply; and all replies in order of the attempts.

    A value is `parse(place, object)` of the first JSON object of a reply, after any thoughts, for which `parse` does
    not raise ReplyProblem. All prompts are sent at once; prompts without a usable reply are sent again, up to ATTEMPTS
    times, with a note of the problem or with the next of the `stricter` last lines: a greedy model repeats itself on
    an unchanged prompt.
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
    """The value of the first usable object. Raises the ReplyProblem of the first object if none is usable."""
    problem = ReplyProblem("the reply has no JSON object")
    for number, value in enumerate(json_objects(answer_of(reply))):
        try:
            return parse(place, value)
        except ReplyProblem as error:
            problem = problem if number else error
    raise problem


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects of a text, in order."""
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
