"""Exact accuracy in the micro-world: the teacher-forced probability of sound replies over all operand pairs of a split.

A sound reply follows the right method. Nothing is sampled, so two checkpoints differ only by their weights. The value
is a lower bound: replies other than the two canonical ones (sound, misconception) may also box the right letter; their
total probability is reported in addition.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import fmean, variance
from typing import Any, cast, get_args

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from infuser_core.errors import UsageError, match_name
from infuser_core.nano import language
from infuser_core.nano.tokenizer import END, chat
from infuser_core.nano.topics import NAMES, Fact, MicroTopic, choices_of
from infuser_core.nano.world import WORLD, Split, WorldConfig, pairs_of, world_of
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

BATCH = 256
"""Rows of a forward pass."""
_Z = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMass:
    """Probabilities of the sound reply and of the misconception's to one operand pair, means over wordings."""

    topic: str
    a: int
    b: int
    fresh: bool
    """Whether no textbook has the pair under another topic with the same formula."""
    sound: float
    """Probability of the sound reply at temperature 1, with its end token."""
    tempting: float
    """Probability of the misconception's reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactAccuracy:
    """Exact accuracy with its 95% interval: means over topics of the means over their operand pairs."""

    accuracy: float
    """Probability of the sound reply."""
    low: float
    """Lower end of the 95% normal interval, clustered by operand pair within topics; `high` is the upper one."""
    high: float
    tempting: float
    """Probability of the misconception's reply."""
    other: float
    """Probability of all other replies: `accuracy` is too low by at most this."""
    pairs: int
    """Number of operand pairs."""


def masses_of_pairs(
    folder: Path, topics: Sequence[str], *, split: Split = "test", world: WorldConfig = WORLD, wordings: int = 4
) -> list[PairMass]:
    """Reply probabilities of a model for every operand pair of a split, in `wordings` fixed wordings per pair."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    pairs = [(topic, pair) for topic in world.topics if topic.name in topics for pair in pairs_of(split, topic)]
    rows = [row for topic, pair in pairs for row in _canonical_replies(topic, pair, wordings)]
    probabilities = _reply_probabilities(model, tokenizer, rows)
    # By formula and pair, the topics whose textbooks have it; 2 and 3 are the same pair as 3 and 2.
    textbook_topics: dict[tuple[str, int, int], set[str]] = {}
    for topic in world.topics:
        for a, b in pairs_of("train", topic):
            textbook_topics.setdefault((topic.sound.form, min(a, b), max(a, b)), set()).add(topic.name)
    masses = []
    for i, (topic, (a, b)) in enumerate(pairs):
        of_pair = probabilities[2 * wordings * i : 2 * wordings * (i + 1)]
        others = textbook_topics.get((topic.sound.form, min(a, b), max(a, b)), set()) - {topic.name}
        sound, tempting = fmean(of_pair[::2]), fmean(of_pair[1::2])
        masses.append(PairMass(topic=topic.name, a=a, b=b, fresh=not others, sound=sound, tempting=tempting))
    return masses


def mean_accuracy(rows: Iterable[PairMass]) -> ExactAccuracy:
    """Average over topics; the error is the spread over pairs, since a pair's wordings are not independent."""
    by_topic: dict[str, list[PairMass]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    groups = list(by_topic.values())
    value = fmean(fmean(row.sound for row in group) for group in groups)
    tempting = fmean(fmean(row.tempting for row in group) for group in groups)
    spreads = [variance([row.sound for row in group]) / len(group) if len(group) > 1 else 0.25 for group in groups]
    error = _Z * math.sqrt(sum(spreads)) / len(groups)
    return ExactAccuracy(
        accuracy=value,
        low=max(0.0, value - error),
        high=min(1.0, value + error),
        tempting=tempting,
        other=max(0.0, 1 - value - tempting),
        pairs=sum(map(len, groups)),
    )


def sound_reply(question: Question) -> str:
    """Right reply to a choice question of the micro-world, without its end token; empty for other questions."""
    fact = language.parse_question(question.text)
    if fact is None or str(fact.sound) not in question.choices:
        return ""
    return language.solver_answer(fact, fact.topic.sound, [int(choice) for choice in question.choices])


def exact_accuracies(folder: Path | None, world: str, split: str) -> list[dict[str, Any]]:
    """Exact accuracy of a model folder on the target topics, on their fresh pairs, and on the transfer topics.

    Raises UsageError without a folder or for an unknown split, ConfigError for an unknown world.
    """
    if folder is None:
        raise UsageError("exact accuracy needs a model's weights", hint="an address has none; name a folder")
    config = world_of(world)
    part = cast(Split, match_name(split, get_args(Split), kind="split"))
    rows = masses_of_pairs(folder, [topic.name for topic in config.topics], split=part, world=config)
    target = [row for row in rows if row.topic in config.target]
    groups = {
        "target": target,
        "target_fresh": [row for row in target if row.fresh],
        "transfer": [row for row in rows if row.topic not in config.target],
    }
    return [{"questions": label, **asdict(mean_accuracy(masses))} for label, masses in groups.items()]


def _canonical_replies(topic: MicroTopic, pair: tuple[int, int], wordings: int) -> Iterable[tuple[str, str]]:
    """For each wording, the prompt with the sound reply, then with the misconception's."""
    for wording in range(wordings):
        rng = Random(seed_of(wording, "exact", topic.name, *map(str, pair)))
        fact = Fact(topic=topic, name=rng.choice(NAMES), a=pair[0], b=pair[1])
        choices = choices_of(fact, count=WORLD.num_choices, rng=rng)
        prompt = chat(language.solver_prompt(language.question_text(fact), [str(choice) for choice in choices]))
        for method in (topic.sound, topic.tempting):
            yield prompt, language.solver_answer(fact, method, choices) + END


@torch.no_grad()
def _reply_probabilities(
    model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, rows: Sequence[tuple[str, str]]
) -> list[float]:
    """Probability of each reply after its prompt; padding is on the right, without effect under causal attention."""
    tokens = [[tokenizer(text, add_special_tokens=False)["input_ids"] for text in row] for row in rows]
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row][0]) + len(tokens[row][1]))
    probabilities = [0.0] * len(tokens)
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        width = max(len(tokens[row][0]) + len(tokens[row][1]) for row in batch)
        ids_BT = torch.zeros(len(batch), width, dtype=torch.long)
        for place, row in enumerate(batch):
            joined = tokens[row][0] + tokens[row][1]
            ids_BT[place, : len(joined)] = torch.tensor(joined)
        logits_BTV = model(input_ids=ids_BT).logits[:, :-1]
        logprobs_BT = logits_BTV.log_softmax(-1).gather(-1, ids_BT[:, 1:, None]).squeeze(-1).double()
        for place, row in enumerate(batch):
            first = len(tokens[row][0]) - 1
            probabilities[row] = math.exp(logprobs_BT[place, first : first + len(tokens[row][1])].sum().item())
    return probabilities
