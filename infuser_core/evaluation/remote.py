"""Evaluate a model at an HTTP address: the server renders prompts and samples; answers are saved as they arrive."""

import time
from collections.abc import Collection, Iterator, Sequence

from infuser_core.engines.endpoint import ChatReply, ChatRequest, Endpoint
from infuser_core.errors import EngineError
from infuser_core.evaluation.answering import render_messages
from infuser_core.evaluation.evaluate import TOO_LONG, Ask, Key, RespondSettings, response_row, seeds_of, too_long_rows
from infuser_core.protocols import Progress, SamplingParams, no_progress
from infuser_core.schemas import BenchmarkResponse

SAVE_RESPONSES = 64
"""Responses that are saved together, unless SAVE_SECONDS pass first."""
SAVE_SECONDS = 15.0
"""Seconds after which finished questions are saved."""


def respond(
    asks: Sequence[Ask],
    finished: Collection[Key],
    endpoint: Endpoint,
    settings: RespondSettings,
    *,
    progress: Progress = no_progress,
) -> Iterator[list[BenchmarkResponse]]:
    """Ask the server; yields batches of completely answered questions, in order of arrival.

    A prompt that is too long for the server counts as too long for the evaluation.
    """
    open_asks = [ask for ask in asks if ask.key not in finished]
    places = [(ask, index) for ask in open_asks for index in range(ask.samples)]
    requests = []
    for ask in open_asks:
        messages = render_messages(ask.question, prompts=settings.prompts, phrasing=settings.phrasing)
        params = SamplingParams(max_tokens=ask.max_tokens, **settings.sampling.model_dump())
        requests += [ChatRequest(messages=messages, params=params, seed=seed) for seed in seeds_of(ask, settings.seed)]
    replies = endpoint.replies(requests)
    collected: dict[Key, dict[int, ChatReply]] = {}
    ready: list[BenchmarkResponse] = []
    saved, tokens = time.monotonic(), 0
    try:
        for count, (place, reply) in enumerate(replies, start=1):
            ask, index = places[place]
            own = collected.setdefault(ask.key, {})
            own[index] = reply
            tokens += reply.response_tokens
            if len(own) == ask.samples:
                ready += _rows(ask, collected.pop(ask.key), settings)
            progress(count, len(places), tokens)
            if ready and (len(ready) >= SAVE_RESPONSES or time.monotonic() - saved >= SAVE_SECONDS):
                yield ready
                ready, saved = [], time.monotonic()
    except (EngineError, KeyboardInterrupt):
        if ready:
            yield ready
        raise
    if ready:
        yield ready


def _rows(ask: Ask, replies: dict[int, ChatReply], settings: RespondSettings) -> list[BenchmarkResponse]:
    prompt_tokens = max(reply.prompt_tokens for reply in replies.values())
    if prompt_tokens > settings.prompt_tokens or any(reply.finish_reason == TOO_LONG for reply in replies.values()):
        return too_long_rows(ask, prompt_tokens=prompt_tokens)
    return [
        response_row(ask, index, reply.text, reply.finish_reason, (reply.prompt_tokens, reply.response_tokens))
        for index, reply in sorted(replies.items())
    ]
