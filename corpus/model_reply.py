"""JSON replies of a language model: checked, and asked for again a bounded number of times."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from infuser_core.engines.protocols import ChatModel, Messages, Progress, no_progress
from infuser_core.reasoning import answer_of

T = TypeVar("T")
ATTEMPTS = 3
"""Times that a prompt is asked."""
_NOTE = "An earlier reply to this could not be used: {}. Reply with the JSON object alone."
MAX_CHARS = 50_000
"""Largest part of one reply that is read, characters."""


class ReplyProblem(ValueError):
    """Reason for which a reply cannot be used; told to the model when it is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One reply of a model, and whether it could be used."""

    task: str
    """assign, merge, phrase or rank."""
    item: str
    """Subject of the request: a pair, a question's id, a window of labels."""
    attempt: int
    """1 for the first time."""
    model: str
    """Name of the model."""
    reply: str
    """The reply; empty where it could repeat a question."""
    problem: str
    """Why it cannot be used; empty when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[T]):
    """Usable replies, and everything that was said."""

    values: list[T | None]
    """One per prompt, in order; None where no attempt gave a usable reply."""
    calls: list[ModelCall]
    """Every reply, in the order of the attempts."""


def ask(
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
) -> Asked[T]:
    """One checked value per prompt: the first JSON object of a reply, after any thoughts, for which `parse(place,
    object)` raises no ReplyProblem.

    All prompts go to the model at once, then those without a usable reply, ATTEMPTS times in all, with the problem
    named, or with the next of the `stricter` last lines: a greedy model repeats itself on an unchanged prompt.
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
                values[place] = _parsed(reply, partial(parse, place))
                del ahead[place]
            except ReplyProblem as error:
                problem = str(error)
                note = stricter[min(attempt, len(stricter)) - 1] if stricter else _NOTE.format(problem)
                last = prompts[place][-1]
                ahead[place] = [*prompts[place][:-1], {**last, "content": f"{last['content']}\n\n{note}"}]
            shown = reply if keep_replies else ""
            calls.append(
                ModelCall(task=task, item=items[place], attempt=attempt, model=model.name, reply=shown, problem=problem)
            )
    return Asked(values=values, calls=calls)


def _parsed(reply: str, parse: Callable[[dict[str, Any]], T]) -> T:
    """The value of the first object that will do. Raises ReplyProblem, that of the first object, when there is none."""
    problem = ReplyProblem("the reply has no JSON object")
    for number, found in enumerate(objects(answer_of(reply))):
        try:
            return parse(found)
        except ReplyProblem as error:
            problem = problem if number else error
    raise problem


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text, outermost ones, in order."""
    text = text[:MAX_CHARS]
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            found, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            yield found
        place = text.find("{", end)
