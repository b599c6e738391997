"""Search queries for a topic, which is a (domain, subdomain) pair, and the words used to compare titles with queries.

The librarian is the optional language model that phrases queries; without it a fixed rule does.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from corpus.model_reply import ModelCall, ReplyProblem, ask_model
from infuser_core.prompts.templates import Template, load_or_shipped
from infuser_core.protocols import ChatModel, Messages
from infuser_core.schemas import Topic

ARTICLES = ("a", "an", "the")
LINKS = ("and", "at", "by", "for", "from", "in", "into", "of", "on", "or", "to", "with")
STOP = frozenset([*ARTICLES, *LINKS, "introduction", "introductory"])
MAX_QUERY_CHARS = 80
MAX_QUERY_WORDS = 8
MAX_TOKENS = 512
BY_RULE = "rule"
PROMPTS = ("assign_topic", "merge_topics", "phrase_query", "rank_books")
T = TypeVar("T")


def words(text: str) -> list[str]:
    """The content words of a text, in order: lower case, without accents, singular, without stop words."""
    folded = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return [singular(word) for word in re.findall(r"\w+", folded) if word not in STOP]


def singular(word: str) -> str:
    """Singular of a regular English plural; words such as physics and analysis are unchanged."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "ics", "ous")):
        return word[:-1]
    return word


def mentions(text: str, query: str) -> bool:
    """Whether the text contains every content word of the query; false if the query has none."""
    terms = set(words(query))
    return bool(terms) and terms <= set(words(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search query for one (domain, subdomain) pair."""

    domain: str
    subdomain: str
    text: str
    phrased_by: str
    """`rule`, or the name of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Librarian:
    """The language model that labels questions, phrases queries and ranks offers. It cannot add a book."""

    model: ChatModel
    prompts: Mapping[str, Template]
    """Prompt templates by name; the names are PROMPTS."""

    def ask(
        self, task: str, topic: Topic, prompt: Messages, parse: Callable[[dict[str, Any]], T]
    ) -> tuple[T | None, list[ModelCall]]:
        """Ask the model about a topic; returns the parsed answer (None if no reply was usable) and all replies."""
        values, calls = ask_model(
            self.model,
            [prompt],
            lambda place, reply: parse(reply),
            task=task,
            items=[f"{topic.domain} / {topic.subdomain}"],
            max_tokens=MAX_TOKENS,
        )
        return values[0], calls


def librarian_of(model: ChatModel, profile: str) -> Librarian:
    """Make a librarian of a model and the prompts of a profile."""
    return Librarian(model=model, prompts={name: load_or_shipped(name, profile=profile) for name in PROMPTS})


def queries_by_rule(topic: Topic, count: int) -> list[str]:
    """At most `count` queries by rule: the subdomain, its parts if it lists several, then subdomain and domain."""
    parts = [part.strip() for part in re.split(r"\s+and\s+|\s*[,/&;]\s*", topic.subdomain)]
    # A single word ("Heat and Mass Transfer") is too broad for a separate query.
    parts = [part for part in parts if len(parts) > 1 and len(words(part)) > 1]
    within = set(words(topic.domain)) <= set(words(topic.subdomain))
    wider = topic.subdomain if within else f"{topic.subdomain} {topic.domain}"
    return list(dict.fromkeys(filter(None, [topic.subdomain.strip(), *parts, wider])))[:count]


def phrase_queries(topic: Topic, count: int, librarian: Librarian | None = None) -> tuple[list[Query], list[ModelCall]]:
    """Phrase at most `count` queries for a topic, the most specific first; also returns the model's replies.

    The rule phrases them if there is no librarian or its replies are unusable.
    """
    texts, phrased_by, calls = queries_by_rule(topic, count), BY_RULE, list[ModelCall]()
    if librarian is not None:
        prompt = librarian.prompts["phrase_query"].messages(
            domain=topic.domain, subdomain=topic.subdomain, count=str(count)
        )
        answer, calls = librarian.ask("phrase", topic, prompt, lambda reply: _parse_queries(reply, count))
        if answer is not None:
            texts, phrased_by = answer, librarian.model.name
    pair = {"domain": topic.domain, "subdomain": topic.subdomain}
    return [Query(**pair, text=text, phrased_by=phrased_by) for text in texts], calls


def _parse_queries(reply: dict[str, Any], count: int) -> list[str]:
    queries = reply.get("queries")
    if not isinstance(queries, list) or not all(isinstance(text, str) for text in queries):
        raise ReplyProblem('"queries" is no list of strings')
    texts = list(dict.fromkeys(" ".join(text.split()) for text in queries if text.strip()))
    if not texts:
        raise ReplyProblem('"queries" is empty')
    long = next((text for text in texts if len(text) > MAX_QUERY_CHARS or len(text.split()) > MAX_QUERY_WORDS), "")
    if long:
        raise ReplyProblem(f"the query {long[:MAX_QUERY_CHARS]!r} has more than {MAX_QUERY_WORDS} words")
    return texts[:count]
