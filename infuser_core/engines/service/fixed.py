"""Fixed prompts, by whose responses a change of weights is proved.

Nothing but the standard library is needed: an engine's process may run in another environment.
"""

TOKENS = 12
"""Tokens of a prompt, and the most of a response."""
PROMPTS = 4
TEMPERATURE = 0.7
FORCED = "forced"
"""Parameter of requests that want the log-probabilities of given responses: these, by the key of the request."""


def prompt(place: int, vocabulary: int) -> list[int]:
    """Tokens spread over the vocabulary."""
    return [(7 + 1009 * place + 7919 * token) % vocabulary for token in range(TOKENS)]


def seeds(place: int) -> list[int]:
    """Of the responses to a prompt."""
    return [2 * place, 2 * place + 1]
