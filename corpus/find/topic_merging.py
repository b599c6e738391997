"""Merging of topic labels: equal spellings by rule, synonyms by a language model; every merge is recorded."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from corpus.find.queries import words
from corpus.model_reply import ModelCall, ReplyProblem, ask
from infuser_core.engines.protocols import ChatModel
from infuser_core.prompts.load import Template

WINDOW = 80
"""Labels shown to the model at one time."""
MAX_TOKENS = 2048
BY_RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """One label that became another."""

    level: str
    """domain or subdomain."""
    within: str
    """Domain of a subdomain; empty for domains."""
    label: str
    """Label that was given up."""
    into: str
    """Label that replaced it."""
    num_questions: int
    """Questions that carried the label."""
    decided_by: str
    """`rule`, or the name of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Where every label went."""

    names: Mapping[str, str]
    """Label to the label that stands for it; itself where it was kept."""
    merges: list[Merge]
    """One row per label given up, in order."""
    calls: list[ModelCall]
    """Replies of the model."""


def merge(
    counts: Mapping[str, int],
    *,
    level: str,
    within: str = "",
    fixed: Set[str] = frozenset(),
    model: ChatModel | None = None,
    template: Template | None = None,
    attempts: int = 3,
) -> Merged:
    """Merge labels that occur `counts` times. `fixed` labels come from the data and are never given up.

    The same counts and replies give the same result: labels are always taken in alphabetical order.
    """
    names = {label: label for label in sorted(counts)}
    log: list[Merge] = []
    calls: list[ModelCall] = []
    for group in _spelled_alike(counts):
        _fold(names, group, _kept_by_rule(group, counts, fixed), fixed, log, (level, within, BY_RULE), counts)
    if model is not None and template is not None:
        standing = sorted(set(names.values()))
        groups, calls = _synonyms(standing, (level, within), fixed, model, template, attempts)
        for keep, group in groups:
            _fold(names, group, keep, fixed, log, (level, within, model.name), counts)
    return Merged(names=names, merges=log, calls=calls)


def _spelled_alike(counts: Mapping[str, int]) -> list[list[str]]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for label in sorted(counts):
        groups.setdefault(tuple(words(label)) or (label,), []).append(label)
    return [group for group in groups.values() if len(group) > 1]


def _kept_by_rule(group: list[str], counts: Mapping[str, int], fixed: Set[str]) -> str:
    """The label from the data, else the most frequent one, the first in the alphabet among equals."""
    return min(group, key=lambda label: (label not in fixed, -counts[label], label))


def _fold(
    names: dict[str, str],
    group: Sequence[str],
    keep: str,
    fixed: Set[str],
    log: list[Merge],
    origin: tuple[str, str, str],
    counts: Mapping[str, int],
) -> None:
    """Let what stands for the group's labels become what stands for `keep`."""
    level, within, decided_by = origin
    keep = names[keep]
    for label in dict.fromkeys(names[label] for label in group):
        if label == keep or label in fixed:
            continue
        carried = sum(counts[name] for name, now in names.items() if now == label)
        for name, now in names.items():
            if now == label:
                names[name] = keep
        log.append(
            Merge(level=level, within=within, label=label, into=keep, num_questions=carried, decided_by=decided_by)
        )


def _synonyms(
    standing: list[str],
    place: tuple[str, str],
    fixed: Set[str],
    model: ChatModel,
    template: Template,
    attempts: int,
) -> tuple[list[tuple[str, list[str]]], list[ModelCall]]:
    """Groups that the model names, each as (kept label, labels that become it)."""
    windows = _windows(standing)
    level, within = place
    kind = f'The entries are specialisations within "{within}".' if within else "The entries are broad areas of study."
    prompts = [template.messages(kind=kind, labels="\n".join(f"- {label}" for label in w)) for w in windows]
    asked = ask(
        model,
        prompts,
        lambda place, reply: _groups(reply, windows[place], fixed),
        task="merge",
        items=[f"{level} {within}: {window[0]} ... {window[-1]}" for window in windows],
        max_tokens=MAX_TOKENS,
        attempts=attempts,
    )
    return [group for groups in asked.values for group in groups or []], asked.calls


def _windows(standing: list[str]) -> list[list[str]]:
    """Lists of at most WINDOW labels, such that any two labels meet in one of them: all pairs of half lists."""
    if len(standing) < 2:
        return []
    if len(standing) <= WINDOW:
        return [standing]
    half = WINDOW // 2
    blocks = [standing[start : start + half] for start in range(0, len(standing), half)]
    return [[*first, *second] for first, second in itertools.combinations(blocks, 2)]


def _groups(reply: dict[str, Any], window: list[str], fixed: Set[str]) -> list[tuple[str, list[str]]]:
    rows = reply.get("groups")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ReplyProblem('"groups" is no list of objects')
    groups = [_group(row) for row in rows]
    named = Counter(label for keep, merged in groups for label in [keep, *merged])
    strange = next((label for label in named if label not in window), None)
    if strange is not None:
        raise ReplyProblem(f"{strange[:60]!r} is not in the list")
    twice = next((label for label, times in named.items() if times > 1), None)
    if twice is not None:
        raise ReplyProblem(f"{twice!r} is used more than once")
    for keep, merged in groups:
        bound = [label for label in merged if label in fixed]
        if bound:
            raise ReplyProblem(f"{bound[0]!r} must be kept, so it cannot become {keep!r}")
    return [(keep, merged) for keep, merged in groups if merged]


def _group(row: dict[str, Any]) -> tuple[str, list[str]]:
    keep, merged = row.get("keep"), row.get("merge")
    if not isinstance(keep, str) or not isinstance(merged, list) or not all(isinstance(m, str) for m in merged):
        raise ReplyProblem('a group needs "keep", an entry, and "merge", a list of entries')
    return keep, merged
