"""The shipped anchors do what their cards say, and a rebuild gives the same bytes."""

import hashlib
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.cotrain.phases.parsing import ParsedQuestion, parse
from infuser_core.errors import ConfigError
from infuser_core.nano import build, exact, language, programs, tokenizer, world
from infuser_core.nano.build import Subject, build_anchor
from infuser_core.nano.lab import anchor_path
from infuser_core.nano.pretrain import inherit, new_model, rescale
from infuser_core.nano.topics import FAMILIES, LIMIT
from infuser_core.nano.world import TARGET, world_of


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny matrices on two threads of a busy machine wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def subjects():
    return {}


@pytest.fixture
def subject_of(subjects):
    def of(name: str) -> Subject:
        if name not in subjects:
            folder = anchor_path(name)
            model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
            temperature = card_of(name)["temperature"]
            subjects[name] = Subject(
                model=model, tokenizer=words, world=world_of(name), temperature=temperature, seed=7
            )
        return subjects[name]

    return of


def card_of(name: str) -> dict:
    return json.loads((anchor_path(name) / "card.json").read_text())


def rates_of(name: str) -> dict:
    return card_of(name)["base_rates"]


# Three standard errors of a share of 144 samples are at most 0.125.
@pytest.mark.parametrize(
    ("name", "count", "reach", "keys", "topics"),
    [
        ("hard", 144, 0.125, (0.4, 0.55), 16),
        ("wide", 144, 0.125, (0.5, 0.7), 8),
    ],
)
def test_the_generator_writes_as_the_card_says(subject_of, name, count, reach, keys, topics):
    card, rates = rates_of(name)["generator"], build.writer_rates(subject_of(name), count)
    assert rates["valid"] == pytest.approx(card["valid"], abs=reach) and card["valid"] >= 0.8
    assert (
        rates["sound_keys"] == pytest.approx(card["sound_keys"], abs=reach) and keys[0] <= card["sound_keys"] <= keys[1]
    )
    assert len(card["topics"]) == topics and (name == "hard" or len(rates["topics"]) == topics)


@pytest.mark.parametrize(
    ("name", "count", "sound"),
    [("basic", 40, (0.35, 0.5)), ("strong", 20, (0.65, 1.0)), ("wide", 20, (0.35, 0.55))],
)
def test_the_solver_answers_as_the_card_says(subject_of, name, count, sound):
    card, subject = rates_of(name)["solver_target"], subject_of(name)
    rates = build.solver_rates(subject, world.draw_questions("test", TARGET, count, 7, subject.world))
    assert rates["sound"] == pytest.approx(card["sound"], abs=0.12) and sound[0] <= card["sound"] <= sound[1]
    if name != "strong":
        assert rates["sound"] + rates["tempting"] >= 0.8 and rates["mixed"] >= 0.7


@pytest.mark.parametrize("name", ["basic", "wide"])
def test_the_judge_tells_sections_from_other_matter(subject_of, name):
    rates = build.judge_rates(subject_of(name), 48)
    assert rates["keep_right"] >= 0.95 and rates["drop_right"] >= 0.95


def test_the_wide_anchor_plays_the_basic_roles_like_the_basic_one_and_the_strong_one_better():
    basic, strong, wide = map(rates_of, ("basic", "strong", "wide"))
    for role, rate in (("generator", "valid"), ("generator", "sound_keys"), ("solver_target", "sound")):
        assert wide[role][rate] == pytest.approx(basic[role][rate], abs=0.08), (role, rate)
    assert strong["generator"]["sound_keys"] >= basic["generator"]["sound_keys"] + 0.3
    assert strong["solver_target"]["sound"] >= basic["solver_target"]["sound"] + 0.3
    for rate in ("valid", "grounded_fact"):
        assert strong["generator"][rate] == pytest.approx(basic["generator"][rate], abs=0.05)
    assert 0.08 <= rates_of("hard")["generator"]["target_share"] <= 0.22


@pytest.mark.parametrize(
    ("role", "measured"),
    [
        ("solver_problems", lambda wide: build.solver_rates(wide, world.draw_problems("test", 24, 7))),
        *(
            (
                f"solver_{task}",
                lambda wide, task=task: build.program_rates(wide, programs.sample_exercises(task, "test", 24, 7)),
            )
            for task in programs.TASKS
        ),
    ],
)
def test_the_solver_wavers_on_free_form_questions(subject_of, role, measured):
    card, rates = rates_of("wide")[role], measured(subject_of("wide"))
    # The card asked 96 questions, this 24 of them.
    assert rates["sound"] == pytest.approx(card["sound"], abs=0.15) and 0.3 <= card["sound"] <= 0.55
    assert rates["sound"] + rates["tempting"] >= 0.75 and rates["mixed"] >= 0.75


def test_the_proposer_writes_functions_and_inputs(subject_of):
    card, rates = rates_of("wide")["proposer"], build.proposer_rates(subject_of("wide"), 32)
    for task in programs.TASKS:
        assert rates[task] == pytest.approx(card[task], abs=0.15) and card[task] >= 0.85, task


def test_the_projects_parser_reads_what_it_writes(subject_of):
    replies = subject_of("wide").reply([language.challenge_prompt()] * 32, 64)
    read = [parse(text, min_choices=4, max_choices=4) for text in replies]
    valid = [made for made in read if isinstance(made, ParsedQuestion)]
    assert len(valid) >= 24 and all(language.parse_question(made.text) for made in valid[:8])


def test_rescaling_changes_gradients_and_no_output(subject_of):
    model, words = subject_of("hard").model, subject_of("hard").tokenizer
    ids = words(tokenizer.chat("Write:"), return_tensors="pt", add_special_tokens=False)["input_ids"]
    rescaled = new_model(len(words), end=words.eos_token_id, pad=words.pad_token_id, seed=0)
    rescaled.load_state_dict(model.state_dict())
    rescaled.set_attn_implementation(model.config._attn_implementation)
    rescale(rescaled, 2, seed=1)
    with torch.no_grad():
        assert torch.equal(rescaled(ids).logits, model(ids).logits)
    assert not torch.equal(rescaled.model.layers[0].mlp.up_proj.weight, model.model.layers[0].mlp.up_proj.weight)


def test_a_model_inherits_the_basic_anchor_token_by_token(subject_of):
    words, parent = tokenizer.train_tokenizer(world_of("hard")), subject_of("basic")
    model = new_model(len(words), end=words.eos_token_id, pad=words.pad_token_id, seed=0)
    inherit(model, words, anchor_path())
    old, new = (m.get_input_embeddings().weight for m in (parent.model, model))
    for word in (" clock", "42", " \\boxed{", tokenizer.END):
        (place,), (before,) = (t(word, add_special_tokens=False)["input_ids"] for t in (words, parent.tokenizer))
        assert torch.equal(new[place], old[before])
    assert torch.equal(model.model.norm.weight, parent.model.model.norm.weight)


@pytest.fixture(scope="module")
def short_build(tmp_path_factory):
    """Builds a world's anchor in a few steps, once."""

    @cache
    def build_once(name: str) -> tuple[Path, dict]:
        folder = tmp_path_factory.mktemp(name)
        return folder, build_anchor(folder, steps_scale=0.001, seed=3, world=name)

    return build_once


def test_a_rebuild_with_the_same_seed_gives_the_same_bytes(short_build, tmp_path):
    folder, card = short_build("hard")
    build_anchor(tmp_path, steps_scale=0.001, seed=3, world="hard")
    assert card["seed"] == 3 and card["schedule"]["steps"] > 1
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        digests = {hashlib.sha256((place / file).read_bytes()).hexdigest() for place in (folder, tmp_path)}
        assert len(digests) == 1, file


@pytest.mark.parametrize("name", ["hard", "wide", "composed"])
def test_a_short_build_makes_the_worlds_own_anchor(short_build, name):
    (folder, made), shipped = short_build(name), card_of(name)
    # Cards of older anchors lack settings that came later.
    assert made["world"] == made["world"] | shipped["world"] == asdict(world_of(name))
    assert made["vocabulary"] == shipped["vocabulary"] and made["parameters"] == shipped["parameters"]
    assert len(made["base_rates"]) >= 4 and made["base_rates"].keys() <= shipped["base_rates"].keys()
    for role, rates in made["base_rates"].items():
        assert list(rates) == list(shipped["base_rates"][role]), role
    assert (folder / "tokenizer.json").read_bytes() == (anchor_path(name) / "tokenizer.json").read_bytes()


def test_an_unknown_world_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no world 'flat'"):
        build_anchor(tmp_path / "out", world="flat")
    assert not (tmp_path / "out").exists()


def test_the_strong_anchor_speaks_the_basic_ones_language():
    tokenizers = [(anchor_path(name) / "tokenizer.json").read_bytes() for name in ("basic", "strong")]
    assert tokenizers[0] == tokenizers[1]
    basic, strong = asdict(world_of("basic")), asdict(world_of("strong"))
    assert {name for name in basic if basic[name] != strong[name]} == {"key_soundness", "solver_soundness"}


def test_numbers_and_words_of_the_wide_world_are_single_tokens(subject_of):
    words = subject_of("wide").tokenizer
    for word in [*(str(number) for number in range(LIMIT)), *(f" {family.name}" for family in FAMILIES)]:
        assert len(words(word, add_special_tokens=False)["input_ids"]) == 1
    for text, length in (
        ('{"program": "def f(x): return 7 + x * 5", "arguments": "3"}', 10),
        ("17 - 12 = 5, 12 - 5 = 7 \\boxed{def f(x): return 7 + x * 5}", 19),
    ):
        ids = words(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == length and words.decode(ids, skip_special_tokens=True) == text


def test_the_composed_anchor_knows_single_steps_and_rarely_takes_two():
    rows = exact.masses_of_pairs(anchor_path("composed"), ["pump", "voltage"], world=world_of("composed"), wordings=1)
    composed, part = (exact.mean_accuracy(row for row in rows if row.topic == name) for name in ("pump", "voltage"))
    assert composed.accuracy < 0.15 < 0.25 < part.accuracy < 0.4
