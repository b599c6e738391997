"""The strong anchor is the basic model taught better: it reads the same prompts, and its keys are mostly right."""

import json
from dataclasses import asdict

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.nano import lab, measure
from infuser_core.nano.build import build_anchor
from infuser_core.nano.world import STRONG, TARGET, WORLD


def test_its_keys_and_answers_are_better_than_the_basic_anchors():
    basic, strong = (lab.anchor_card(world)["base_rates"] for world in ("basic", "strong"))
    assert strong["generator"]["sound_keys"] >= basic["generator"]["sound_keys"] + 0.3
    assert strong["solver_target"]["sound"] >= basic["solver_target"]["sound"] + 0.3
    for rate in ("valid", "grounded_fact"):
        assert strong["generator"][rate] == pytest.approx(basic["generator"][rate], abs=0.05)


def test_it_does_what_its_card_says():
    folder, card = lab.anchor_path("strong"), lab.anchor_card("strong")["base_rates"]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    written = measure.writer_rates(model, tokenizer, count=96, temperature=1.0, seed=7, world=STRONG)
    assert written.sound_keys == pytest.approx(card["generator"]["sound_keys"], abs=0.1)
    answers = measure.solver_rates(model, tokenizer, topics=TARGET, count=20, temperature=1.0, seed=7, world=STRONG)
    assert answers.sound == pytest.approx(card["solver_target"]["sound"], abs=0.12)


def test_it_speaks_the_basic_anchors_language(tmp_path):
    tokenizers = [(lab.anchor_path(world) / "tokenizer.json").read_bytes() for world in ("basic", "strong")]
    assert tokenizers[0] == tokenizers[1]
    same = {name: value for name, value in asdict(WORLD).items() if not name.endswith("_soundness")}
    assert {name: asdict(STRONG)[name] for name in same} == same
    made = build_anchor(tmp_path, steps_scale=0.002, seed=3, world="strong")
    assert made["world"] == lab.anchor_card("strong")["world"] == json.loads(json.dumps(asdict(STRONG)))
    assert made["parameters"] == lab.anchor_card()["parameters"]
