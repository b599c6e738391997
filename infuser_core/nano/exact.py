"""Exact accuracy in the micro-world: the teacher-forced probability of sound replies over all operand pairs of a split.

Nothing is sampled, so two checkpoints differ only by their weights. The value is a lower bound: replies other than
the two canonical ones (sound, misconception) may also box the right letter, and their mass is reported beside it.
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
    """Probabilities of both replies to one operand pair, means over wordings."""

    topic: str
    """Topic of the question."""
    a: int
    """First number."""
    b: int
    """Second number."""
    fresh: bool
    """Whether no textbook uses the pair under another topic of the same law."""
    sound: float
    """Probability of the sound reply at temperature 1, its end included."""
    tempting: float
    """Probability of the misconception's reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactAccuracy:
    """Mean over topics of the mean over their pairs."""

    accuracy: float
    """Probability of the sound reply."""
    low: float
    """Lower end of the 95% normal interval, clustered by operand pair within topics."""
    high: float
    """Upper end."""
    tempting: float
    """Probability of the misconception's reply."""
    other: float
    """Probability of every other reply: the most by which the accuracy is too low."""
    pairs: int
    """Operand pairs."""


def by_pair(
    folder: Path, topics: Sequence[str], *, split: Split = "test", world: WorldConfig = WORLD, wordings: int = 4
) -> list[PairMass]:
    """Asks the model every operand pair of the split, with `wordings` names and choices that all models get."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    asked = [(topic, pair) for topic in world.topics if topic.name in topics for pair in pairs_of(split, topic)]
    rows = [row for topic, pair in asked for row in _replies(topic, pair, wordings)]
    masses = _probabilities(model, tokenizer, rows)
    used = _used(world)
    found = []
    for at, (topic, (a, b)) in enumerate(asked):
        mine = masses[2 * wordings * at : 2 * wordings * (at + 1)]
        others = used.get((topic.sound.form, min(a, b), max(a, b)), set()) - {topic.name}
        row = PairMass(topic=topic.name, a=a, b=b, fresh=not others, sound=fmean(mine[::2]), tempting=fmean(mine[1::2]))
        found.append(row)
    return found


def accuracy(rows: Iterable[PairMass]) -> ExactAccuracy:
    """The topics' mean; its error is the spread over pairs, since wordings of one pair are no independent questions."""
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
    """An anchor's right reply to a choice question of the micro-world, without its end; empty for other questions."""
    fact = language.parse_question(question.text)
    if fact is None or str(fact.sound) not in question.choices:
        return ""
    return language.solver_answer(fact, fact.topic.sound, [int(choice) for choice in question.choices])


def measured(folder: Path | None, world: str, split: str) -> list[dict[str, Any]]:
    """Exact accuracy on target topics, on their pairs that no textbook holds otherwise, and on transfer topics.

    Raises UsageError without weights and for an unknown split, ConfigError for an unknown world.
    """
    if folder is None:
        raise UsageError("exact accuracy needs a model's weights", hint="an address gives none; name a folder")
    chosen = world_of(world)
    part = cast(Split, match_name(split, get_args(Split), kind="split"))
    rows = by_pair(folder, [topic.name for topic in chosen.topics], split=part, world=chosen)
    target = [row for row in rows if row.topic in chosen.target]
    asked = {
        "target": target,
        "target_fresh": [row for row in target if row.fresh],
        "transfer": [row for row in rows if row.topic not in chosen.target],
    }
    return [{"questions": label, **asdict(accuracy(own))} for label, own in asked.items()]


def _used(world: WorldConfig) -> dict[tuple[str, int, int], set[str]]:
    """Topics whose textbooks hold a pair, by law and pair; the order of the numbers does not make it another pair."""
    used: dict[tuple[str, int, int], set[str]] = {}
    for topic in world.topics:
        for a, b in pairs_of("train", topic):
            used.setdefault((topic.sound.form, min(a, b), max(a, b)), set()).add(topic.name)
    return used


def _replies(topic: MicroTopic, pair: tuple[int, int], wordings: int) -> Iterable[tuple[str, str]]:
    """Prompt and reply: the sound one, then the misconception's, for each wording."""
    for wording in range(wordings):
        rng = Random(seed_of(wording, "exact", topic.name, *map(str, pair)))
        fact = Fact(topic=topic, name=rng.choice(NAMES), a=pair[0], b=pair[1])
        choices = choices_of(fact, count=WORLD.num_choices, rng=rng)
        prompt = chat(language.solver_prompt(language.question_text(fact), [str(choice) for choice in choices]))
        for method in (topic.sound, topic.tempting):
            yield prompt, language.solver_answer(fact, method, choices) + END


@torch.no_grad()
def _probabilities(
    model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, rows: Sequence[tuple[str, str]]
) -> list[float]:
    """Probability of every reply. Rows are padded on the right, where causal attention cannot see it."""
    cut = [[tokenizer(text, add_special_tokens=False)["input_ids"] for text in row] for row in rows]
    order = sorted(range(len(cut)), key=lambda row: len(cut[row][0]) + len(cut[row][1]))
    found = [0.0] * len(cut)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        width = max(len(cut[row][0]) + len(cut[row][1]) for row in chosen)
        ids_BT = torch.zeros(len(chosen), width, dtype=torch.long)
        for place, row in enumerate(chosen):
            joined = cut[row][0] + cut[row][1]
            ids_BT[place, : len(joined)] = torch.tensor(joined)
        logits_BTV = model(input_ids=ids_BT).logits[:, :-1]
        logprobs_BT = logits_BTV.log_softmax(-1).gather(-1, ids_BT[:, 1:, None]).squeeze(-1).double()
        for place, row in enumerate(chosen):
            first = len(cut[row][0]) - 1
            found[row] = math.exp(logprobs_BT[place, first : first + len(cut[row][1])].sum().item())
    return found
