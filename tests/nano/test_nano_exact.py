"""Exact accuracy is the probability of sound replies: what sampling estimates, clustered by operand pair."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.errors import ConfigError, UsageError
from infuser_core.nano import exact
from infuser_core.nano.exact import PairMass
from infuser_core.nano.lab import anchor_path
from infuser_core.nano.topics import TOPICS
from infuser_core.nano.world import TARGET, pairs_of


@pytest.fixture(scope="module")
def rows() -> list[PairMass]:
    torch.set_num_threads(1)
    return exact.masses_of_pairs(anchor_path(), TARGET, wordings=2)


def test_every_test_pair_is_asked_once_and_the_two_replies_hold_nearly_all_mass(rows: list[PairMass]):
    asked = {(row.topic, row.a, row.b) for row in rows}
    assert asked == {(t.name, *pair) for t in TOPICS if t.name in TARGET for pair in pairs_of("test", t)}
    assert len(asked) == len(rows)
    assert 0.97 < exact.mean_accuracy(rows).accuracy + exact.mean_accuracy(rows).tempting <= 1


def test_it_is_what_the_card_measured_by_sampling(rows: list[PairMass]):
    """The card's 768 samples have a standard error of 0.018."""
    sampled = json.loads((anchor_path() / "card.json").read_text())["base_rates"]["solver_target"]
    assert abs(exact.mean_accuracy(rows).accuracy - sampled["sound"]) < 0.06


def test_batches_and_padding_change_nothing(rows: list[PairMass]):
    """The plain reference: one reply at a time, token by token."""
    model = AutoModelForCausalLM.from_pretrained(anchor_path(), dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(anchor_path())
    topic = next(topic for topic in TOPICS if topic.name == rows[0].topic)
    prompt, reply = next(iter(exact._canonical_replies(topic, (rows[0].a, rows[0].b), 1)))
    ids = tokenizer(prompt + reply, add_special_tokens=False)["input_ids"]
    start = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        probabilities = model(input_ids=torch.tensor([ids])).logits[0].softmax(-1)
    product = 1.0
    for place in range(start, len(ids)):
        product *= probabilities[place - 1, ids[place]].item()
    longer = ("x" + prompt, reply * 2)
    assert exact._reply_probabilities(model, tokenizer, [longer, (prompt, reply)])[1] == pytest.approx(
        product, rel=1e-4
    )


def test_a_pair_of_another_topics_textbooks_under_the_same_law_is_not_fresh(rows: list[PairMass]):
    cart = next(topic for topic in TOPICS if topic.name == "cart")
    used = {tuple(sorted(pair)) for pair in pairs_of("train", cart)}
    voltage = [row for row in rows if row.topic == "voltage"]
    assert [row.fresh for row in voltage] == [(min(row.a, row.b), max(row.a, row.b)) not in used for row in voltage]
    assert all(row.fresh for row in rows if row.topic == "clock")


def test_wordings_of_one_pair_do_not_narrow_the_interval():
    few = [PairMass(topic="t", a=n, b=1, fresh=True, sound=n / 10, tempting=0) for n in range(10)]
    found = exact.mean_accuracy(few)
    assert found.accuracy == pytest.approx(0.45)
    # 1.96 * sqrt(var / 10), var the sample variance of 0, 0.1 ... 0.9.
    assert found.high - found.accuracy == pytest.approx(1.96 * (0.0916666667 / 10) ** 0.5)
    assert found.other == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("folder", "world", "split", "said"),
    [(None, "basic", "test", "weights"), (".", "", "test", "world"), (".", "basic", "exam", "split")],
)
def test_no_weights_or_an_unknown_world_or_split_is_refused(folder: str | None, world: str, split: str, said: str):
    with pytest.raises((UsageError, ConfigError), match=said):
        exact.exact_accuracies(Path(folder) if folder else None, world, split)
