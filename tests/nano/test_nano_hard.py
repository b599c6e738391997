"""The harder world: sixteen topics, its own anchor, perfect keys as a control; the basic world is what it was."""

import dataclasses
import hashlib
import json

import pytest
import torch
from places import CONFIGS
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.benchmarks import nano_target, nano_transfer
from infuser_core.benchmarks.parts.question_sets import load_questions
from infuser_core.config.overlays import load
from infuser_core.config.run import BenchmarkSettings
from infuser_core.engines.fake import ScriptedSampler
from infuser_core.nano import lab, language, measure, tokenizer
from infuser_core.nano.build import build_anchor
from infuser_core.nano.pretrain import inherit, new_model, rescale
from infuser_core.nano.textbooks import BOOKS, book_notes, book_pdf, build_shelf
from infuser_core.nano.world import HARD, TARGET, WORLD, pairs_of, questions
from infuser_core.phases.generate_questions import generate_questions, settings_of
from infuser_core.schemas import Document

ORACLE = "infuser_core.nano.lab:perfect_key"


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.fixture(scope="module")
def anchor():
    folder = lab.anchor_path("hard")
    threads = torch.get_num_threads()
    # Tiny matrices on two threads of a busy machine wait for each other.
    torch.set_num_threads(1)
    yield AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    torch.set_num_threads(threads)


def test_the_basic_world_keeps_its_bytes(tmp_path):
    build_shelf(tmp_path, 0)
    assert digest(b"".join(book_pdf(book, 0) for book in BOOKS)) == "352695dbf54e3655"
    assert digest((tmp_path / "catalogue.json").read_bytes()) == "87bdca55ba8338e3"
    rows = [
        {name: value for name, value in dataclasses.asdict(question).items() if name != "grading"}
        for split in ("dev", "validation", "test")
        for topics in (TARGET, WORLD.transfer)
        for question in questions(split, topics, 40, 0)
    ]
    assert digest(json.dumps(rows, sort_keys=True).encode()) == "9b6cf90faf283710"
    tokenizer.save_tokenizer(tokenizer.train_tokenizer(), tmp_path / "tokenizer")
    assert digest((tmp_path / "tokenizer" / "tokenizer.json").read_bytes()) == "bf540ce704daa64b"
    assert len(WORLD.topics) == 8 and WORLD.coordinate_spread == 0


def test_sixteen_topics_have_their_own_words_and_disjoint_splits():
    assert len(HARD.topics) == 16 and set(TARGET).isdisjoint(HARD.transfer) and len(HARD.transfer) == 14
    for words in ([topic.name for topic in HARD.topics], [topic.fact.split()[1] for topic in HARD.topics]):
        assert len(set(words)) == 16
    for topic in HARD.topics:
        pairs = [pair for split in ("train", "dev", "validation", "test") for pair in pairs_of(split, topic)]
        assert sorted(pairs) == sorted(topic.operands) and len(pairs) == len(set(pairs))


def test_the_textbooks_hold_every_topic_of_the_harder_world():
    notes = [note for book in BOOKS for chapter in book_notes(book, 0, HARD) for note in chapter]
    assert {fact.topic for note in notes for fact in note.facts} == set(HARD.topics)
    with_target = sum(any(fact.topic.name in TARGET for fact in note.facts) for note in notes) / len(notes)
    assert 0.3 <= with_target <= 0.6


def test_questions_are_answered_by_the_sound_method():
    asked = [
        q for module in (nano_target, nano_transfer) for q in module.load(BenchmarkSettings(name="x", world="hard"))
    ]
    assert len({q.text for q in asked}) == 800
    assert {q.subdomain for q in asked} == {topic.name for topic in HARD.topics}
    assert all(int(q.choices["ABCD".index(q.answer)]) == lab.sound_answer(q.text) for q in asked)
    assert all(str(lab.tempting_answer(q.text)) in q.choices for q in asked)


def test_the_configuration_names_the_harder_world_everywhere():
    config = load([CONFIGS / "nano-hard.yaml"])
    worlds = [config.anchor.world, config.corpus.catalogue.world, *(b.world for b in config.evaluate.benchmarks)]
    assert {*worlds, config.data.dev.world, config.data.validation.world} == {"hard"}
    assert len(load_questions(config.data.dev, seed=1)) == config.data.dev.size <= 16
    for overlay in ("perfect_keys", "group_std", "batch_std", "difficulty", "sgd_cosine", "fixed_generator"):
        assert load([CONFIGS / "nano-hard.yaml", CONFIGS / "ablation" / f"{overlay}.yaml"]).variant
    assert load([CONFIGS / "nano.yaml", CONFIGS / "ablation" / "perfect_keys.yaml"]).cotrain.question.oracle == ORACLE


def test_the_oracle_corrects_a_key_only_where_the_sound_result_is_a_choice():
    for question in questions("test", HARD.transfer, 28, 2, HARD):
        wrong = dataclasses.replace(question, answer="ABCD"["ABCD".index(question.answer) - 1])
        assert lab.perfect_key(wrong) == question == lab.perfect_key(question)
        lost = [c for c in question.choices if c != str(lab.sound_answer(question.text))]
        without = dataclasses.replace(question, choices=[*lost, "0"], answer="A")
        assert lab.perfect_key(without) == without
        other = dataclasses.replace(question, text="Why?")
        assert lab.perfect_key(other) == other


def test_rescaling_changes_gradients_and_no_output(anchor):
    model, words = anchor
    ids = words(tokenizer.chat("Write:"), return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        before = model(ids).logits
    rescaled = new_model(len(words), end=words.eos_token_id, pad=words.pad_token_id, seed=0)
    rescaled.load_state_dict(model.state_dict())
    rescaled.set_attn_implementation(model.config._attn_implementation)
    rescale(rescaled, 2, seed=1)
    with torch.no_grad():
        assert torch.equal(rescaled(ids).logits, before)
    assert not torch.equal(rescaled.model.layers[0].mlp.up_proj.weight, model.model.layers[0].mlp.up_proj.weight)


def test_a_model_inherits_the_basic_anchor_token_by_token():
    words = tokenizer.train_tokenizer(HARD)
    model = new_model(len(words), end=words.eos_token_id, pad=words.pad_token_id, seed=0)
    inherit(model, words, lab.anchor_path())
    parent, known = (kind.from_pretrained(lab.anchor_path()) for kind in (AutoModelForCausalLM, AutoTokenizer))
    old, new = (m.get_input_embeddings().weight for m in (parent, model))
    for word in (" clock", "42", " \\boxed{", tokenizer.END):
        (place,), (before,) = (t(word, add_special_tokens=False)["input_ids"] for t in (words, known))
        assert torch.equal(new[place], old[before])
    assert torch.equal(model.model.norm.weight, parent.model.norm.weight)


def test_the_anchor_does_what_its_card_says(anchor):
    card = lab.anchor_card("hard")
    written, solved = card["base_rates"]["generator"], card["base_rates"]["solver_target"]
    options = {"temperature": card["temperature"], "seed": 7, "world": HARD}
    rates = measure.writer_rates(*anchor, count=144, **options)
    # Three standard errors of a share of 144 samples are at most 0.125.
    assert rates.valid == pytest.approx(written["valid"], abs=0.125) and written["valid"] >= 0.8
    assert rates.sound_keys == pytest.approx(written["sound_keys"], abs=0.125) and 0.4 <= written["sound_keys"] <= 0.55
    assert 0.08 <= written["target_share"] <= 0.22 and len(written["topics"]) == 16
    answers = measure.solver_rates(*anchor, topics=TARGET, count=20, **options)
    assert answers.sound == pytest.approx(solved["sound"], abs=0.12) and 0.3 <= solved["sound"] <= 0.5
    assert answers.mixed >= 0.7
    judged = measure.judge_rates(*anchor, count=48, seed=7, world=HARD)
    assert judged.keep_right >= 0.95 and judged.drop_right >= 0.95


def test_the_shipped_tokenizer_is_the_one_the_world_gives(anchor):
    assert anchor[1].get_vocab() == tokenizer.train_tokenizer(HARD).get_vocab()
    for topic in HARD.topics:
        fact = next(
            f for book in BOOKS for c in book_notes(book, 0, HARD) for n in c for f in n.facts if f.topic == topic
        )
        assert language.parse_question(language.question_text(fact)) == fact
        assert len(anchor[1](f" {topic.name}", add_special_tokens=False)["input_ids"]) == 1


def test_the_stored_question_carries_the_oracles_key():
    fact = book_notes(BOOKS[0], 0, HARD)[0][0].facts[0]
    choices = sorted({fact.sound, fact.tempting, 98, 99})
    config = load([CONFIGS / "nano-hard.yaml"], ["cotrain.documents=1", "cotrain.generator_tokens=400"])
    document = Document(
        document_id="d",
        source_id="s",
        header_path="",
        start=0,
        end=1,
        text=language.fact_text(fact),
        num_tokens=1,
        domain="Physics",
        prompt_type="mcq",
    )
    sampler = ScriptedSampler(reply=lambda prompt, seed: language.generator_json(fact, fact.topic.tempting, choices))
    keys = {}
    for name in ("", ORACLE):
        question = config.cotrain.question.model_copy(update={"oracle": name})
        settings = dataclasses.replace(settings_of(config), question=question, prompt_tokens=4000)
        made = generate_questions([document], sampler, settings, checkpoint_id="c", seed=0, iteration=0)
        assert len(made.questions) == 4
        keys[name] = {q.choices["ABCD".index(q.answer)] for q in made.questions}
    assert keys == {"": {str(fact.tempting)}, ORACLE: {str(fact.sound)}}


def test_a_short_build_makes_the_worlds_own_anchor(tmp_path):
    card = build_anchor(tmp_path, steps_scale=0.001, seed=3, world="hard")
    assert card["world"]["num_topics"] == 16 and card["vocabulary"] == lab.anchor_card("hard")["vocabulary"]
    shipped = lab.anchor_path("hard") / "tokenizer.json"
    assert (tmp_path / "tokenizer.json").read_bytes() == shipped.read_bytes()
