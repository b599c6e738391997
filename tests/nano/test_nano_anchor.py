"""The shipped anchor does what its card says, and a rebuild gives the same bytes."""

import hashlib

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.nano import lab, measure
from infuser_core.nano.build import build_anchor
from infuser_core.nano.world import TARGET


@pytest.fixture(scope="module")
def anchor():
    folder = lab.anchor_path()
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_the_generator_writes_as_the_card_says(anchor):
    card = lab.anchor_card()["base_rates"]["generator"]
    rates = measure.writer_rates(*anchor, count=256, temperature=lab.anchor_card()["temperature"], seed=7)
    # Three standard errors of a share of 256 samples are at most 0.094.
    assert rates.valid == pytest.approx(card["valid"], abs=0.095) and card["valid"] >= 0.85
    assert rates.sound_keys == pytest.approx(card["sound_keys"], abs=0.1) and 0.5 <= card["sound_keys"] <= 0.7
    assert len(rates.topics) == 8


def test_the_solver_wavers_between_method_and_misconception(anchor):
    card = lab.anchor_card()["base_rates"]["solver_target"]
    rates = measure.solver_rates(*anchor, topics=TARGET, count=48, temperature=lab.anchor_card()["temperature"], seed=7)
    assert rates.sound == pytest.approx(card["sound"], abs=0.1) and 0.35 <= card["sound"] <= 0.5
    assert rates.sound + rates.tempting >= 0.85
    assert rates.mixed >= 0.8


def test_the_judge_tells_sections_from_other_matter(anchor):
    rates = measure.judge_rates(*anchor, count=120, seed=7)
    assert rates.keep_right >= 0.97 and rates.drop_right >= 0.97


def test_a_rebuild_with_the_same_seed_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        card = build_anchor(tmp_path / name, steps_scale=0.002, seed=3)
    assert card["seed"] == 3 and card["schedule"]["steps"] > 1
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        digests = {hashlib.sha256((tmp_path / name / file).read_bytes()).hexdigest() for name in ("one", "two")}
        assert len(digests) == 1, file
