"""Chat templates of instruction-finetuned anchors: turns are put by them, ends are theirs, system turns survive."""

import json
from pathlib import Path

import pytest
from engine_family import END, TURN, make_source, save_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from infuser_core.engines.hf.causal_lm import folder_ends
from infuser_core.engines.hf.renderer import PLAIN, Renderer, merged
from infuser_core.engines.local.hub import prepare_anchor

SYSTEM = [{"role": "system", "content": "w7"}, {"role": "user", "content": "w8 w9"}]
ALONE = SYSTEM[1:]
TURNS = "{% if m['role'] == 'assistant' %}w6{% else %}w2{% endif %} {{ m['content'] }} w4 {% endfor %}"
ENDS = "{% if add_generation_prompt %}w6{% endif %}"
SHOWS = "{% for m in messages %}" + TURNS + ENDS
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + SHOWS
IGNORES = "{% for m in messages if m['role'] != 'system' %}" + TURNS + ENDS
DEFAULT = "{% if messages[0]['role'] != 'system' %}w5 w4 {% endif %}" + SHOWS


def anchor(folder: Path, template: str | None, end: str = "w1") -> Path:
    """An anchor of a tiny model with this template."""
    source = make_source(folder / "source", "qwen3")
    (source / "chat_template.jinja").unlink()
    save_tokenizer(source, template=template, end=end)
    prepare_anchor(source, folder / "anchor")
    return folder / "anchor"


@pytest.mark.parametrize(
    ("template", "with_system", "without"),
    [
        (SHOWS, [2, 7, TURN, 2, 8, 9, TURN, 6], [2, 8, 9, TURN, 6]),
        (DEFAULT, [2, 7, TURN, 2, 8, 9, TURN, 6], [5, TURN, 2, 8, 9, TURN, 6]),
        (REFUSES, [2, 7, 8, 9, TURN, 6], [2, 8, 9, TURN, 6]),
        (IGNORES, [2, 7, 8, 9, TURN, 6], [2, 8, 9, TURN, 6]),
    ],
    ids=["shows it", "has a default of its own", "refuses it", "leaves it out"],
)
def test_no_template_loses_the_system_turn(tmp_path: Path, template: str, with_system: list[int], without: list[int]):
    renderer = Renderer(anchor(tmp_path, template))
    assert renderer.own_template
    assert renderer.render(SYSTEM) == with_system
    assert renderer.render(ALONE) == without


def test_a_base_model_keeps_a_system_turn_of_its_own(tmp_path: Path):
    folder = anchor(tmp_path, None)
    assert (folder / "chat_template.jinja").read_text() == PLAIN
    said = AutoTokenizer.from_pretrained(folder).apply_chat_template(SYSTEM, tokenize=False, add_generation_prompt=True)
    assert said == "System:\nw7\n\nUser:\nw8 w9\n\nAssistant:\n"
    assert len(Renderer(folder).render(SYSTEM)) > len(Renderer(folder).render(ALONE))


def test_an_instruction_anchor_ends_at_the_end_of_its_turn_and_of_text(tmp_path: Path):
    """The tokenizer of such an anchor ends turns, its configuration texts: both end a response, in all its copies."""
    folder = anchor(tmp_path, SHOWS, end=f"w{TURN}")
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == END
    assert set(folder_ends(folder, Renderer(folder).end_token)) == {END, TURN}


turns = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=5)}), max_size=4
)


@given(turns, st.text(max_size=5))
def test_merging_loses_no_text_and_leaves_no_system_turn(after: list[dict[str, str]], system: str):
    found = merged([{"role": "system", "content": system}, *after])
    assert all(turn["role"] != "system" for turn in found) and found[0]["role"] == "user"
    joined = "".join(turn["content"] for turn in found).replace("\n\n", "")
    assert joined == "".join([system, *(turn["content"] for turn in after)]).replace("\n\n", "")
    assert merged(after) == after
