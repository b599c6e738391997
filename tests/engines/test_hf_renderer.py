"""Prompts and ends of responses, for chat models and base models; nothing that comes with a model is run."""

import ast
import json
import re
from pathlib import Path

import pytest
import torch
from engine_tiny import END, TEMPLATE, TURN, anchored, make_source, save_tokenizer, trainer
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT
from stock_engines import hf_sampler
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from infuser_core.engines.hf.causal_lm import load_model, read_config, read_end_tokens
from infuser_core.engines.hf.renderer import PLAIN, TEMPLATE_FILE, Renderer, merge_system_turn
from infuser_core.errors import CheckpointError, ConfigError
from infuser_core.prompts.reasoning import answer_of, reply_text

SYSTEM = [{"role": "system", "content": "w7"}, {"role": "user", "content": "w8 w9"}]
ALONE = SYSTEM[1:]
ENDS = "{% if add_generation_prompt %}w6{% endif %}"
SHOWS = "{% for m in messages %}w2 {{ m['content'] }} w4 {% endfor %}" + ENDS
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + SHOWS
IGNORES = "{% for m in messages if m['role'] != 'system' %}w2 {{ m['content'] }} w4 {% endfor %}" + ENDS
DEFAULT = "{% if messages[0]['role'] != 'system' %}w5 w4 {% endif %}" + SHOWS
SHOWN, MERGED = [2, 7, TURN, 2, 8, 9, TURN, 6], [2, 7, 8, 9, TURN, 6]
PLAINLY = "System:\nw7\n\nUser:\nw8 w9\n\nAssistant:\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


def retold(source: Path, template: str | None) -> None:
    """Give the model folder another template, or none."""
    (source / TEMPLATE_FILE).unlink()
    save_tokenizer(source, template=template)


def changed(path: Path, **values: object) -> None:
    """Set keys of a JSON file."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | values))


@pytest.mark.parametrize(
    ("template", "with_system", "without"),
    [
        (SHOWS, SHOWN, [2, 8, 9, TURN, 6]),
        (DEFAULT, SHOWN, [5, TURN, 2, 8, 9, TURN, 6]),
        (REFUSES, MERGED, [2, 8, 9, TURN, 6]),
        (IGNORES, MERGED, [2, 8, 9, TURN, 6]),
    ],
    ids=["shows it", "has a default of its own", "refuses it", "leaves it out"],
)
def test_no_template_loses_the_system_turn(source: Path, template: str, with_system: list[int], without: list[int]):
    retold(source, template)
    folder = Path(anchored(source).path)
    assert (folder / TEMPLATE_FILE).read_text() == template
    renderer = Renderer(folder)
    assert renderer.has_own_template
    assert (renderer.render(SYSTEM), renderer.render(ALONE)) == (with_system, without)


def test_a_base_model_gets_plain_turns_and_its_anchor_records_them(source: Path, tmp_path: Path) -> None:
    retold(source, None)
    bare, anchor = Renderer(source), anchored(source)
    assert not bare.has_own_template
    assert (Path(anchor.path) / TEMPLATE_FILE).read_text() == PLAIN
    stock = AutoTokenizer.from_pretrained(anchor.path)
    assert stock.apply_chat_template(SYSTEM, tokenize=False, add_generation_prompt=True) == PLAINLY
    recorded = Renderer(Path(anchor.path))
    assert recorded.has_own_template
    assert recorded.render(SYSTEM) == bare.render(SYSTEM) and len(bare.render(SYSTEM)) > len(bare.render(ALONE))
    # A checkpoint saved from the anchor carries the file on.
    (tmp_path / "next").mkdir()
    trainer(anchor).save(tmp_path / "next")
    assert (tmp_path / "next" / TEMPLATE_FILE).read_text() == PLAIN


def test_a_template_inside_the_tokenizers_configuration_counts(source: Path) -> None:
    (source / TEMPLATE_FILE).unlink()
    changed(source / "tokenizer_config.json", chat_template=TEMPLATE)
    folder = Path(anchored(source).path)
    assert not (folder / TEMPLATE_FILE).exists()
    assert Renderer(folder).render(SYSTEM) == [*SHOWN[:-1], 3]


turns = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=5)}), max_size=4
)


@given(turns, st.text(max_size=5))
def test_merging_loses_no_text_and_leaves_no_system_turn(after: list[dict[str, str]], system: str):
    found = merge_system_turn([{"role": "system", "content": system}, *after])
    assert all(turn["role"] != "system" for turn in found) and found[0]["role"] == "user"
    joined = "".join(turn["content"] for turn in found).replace("\n\n", "")
    assert joined == "".join([system, *(turn["content"] for turn in after)]).replace("\n\n", "")
    assert merge_system_turn(after) == after


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "ends"),
    [
        # A base model: the end of text alone, whatever ends a turn in its template.
        (END, END, "w1", [END]),
        # A chat model whose tokenizer ends turns, beside the end of text of its configuration.
        (END, END, "w4", [END, TURN]),
        ([TURN, END], END, "w4", [TURN, END]),
        (None, END, "w1", [END]),
        (None, None, "w4", [TURN]),
    ],
)
def test_responses_end_at_what_model_and_tokenizer_name(
    source: Path, generation: object, config: object, tokenizer: str, ends: list[int]
) -> None:
    changed(source / "generation_config.json", eos_token_id=generation)
    changed(source / "config.json", eos_token_id=config)
    save_tokenizer(source, end=tokenizer)
    assert read_end_tokens(source, Renderer(source).end_token) == ends
    anchor, sampler = anchored(source), hf_sampler()
    sampler.load(anchor)
    assert sampler._ends == read_end_tokens(Path(anchor.path), Renderer(Path(anchor.path)).end_token) == ends


def test_marks_of_reasoning_are_shown_where_they_are_special_tokens(source: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(source)
    names = ["<think>", "</think>", "<|channel|>", "<|turn|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    tokenizer.save_pretrained(source)
    think, closes, channel, turn = tokenizer.convert_tokens_to_ids(names)
    renderer = Renderer(source)
    assert renderer.decode([think, 7, closes, 8, turn, END]).split() == ["<think>", "w7", "</think>", "w8"]
    assert renderer.decode([channel, 7, turn]).split() == ["<|channel|>", "w7"]


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|><think>"
)
SPELLED = ["<|im_start|>", "<|im_end|>", "<|IM_END|>", "<think>", "<|reserved|>", "<tool>", "<|im_", "end|>", "|>", "a"]


@pytest.fixture(scope="module", params=["bytes", "pieces", "lower"])
def chatty(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Renderer:
    """A renderer whose control tokens are special (`<|...|>`) or stand in the template (`<think>`), or neither
    (`<tool>`); its vocabulary is of bytes, or of pieces after a normalizer."""
    words = Tokenizer(models.BPE() if request.param == "bytes" else models.Unigram())
    special = ["<unk>", "<|im_start|>", "<|im_end|>", "<|reserved|>"]
    lines = ["system user assistant im start end think tool reserved a page <|> _"] * 9
    if request.param == "bytes":
        words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        words.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        learner = trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet)
    else:
        kinds = {"pieces": normalizers.NFKC(), "lower": normalizers.Lowercase()}
        words.normalizer = kinds[request.param]
        words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        learner = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>")
    words.train_from_iterator(lines, learner)
    words.add_tokens(["<think>", "<tool>"])
    folder = tmp_path_factory.mktemp(request.param)
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>", unk_token="<unk>")
    made.chat_template = CHATML
    made.save_pretrained(folder)
    return Renderer(folder)


@given(st.lists(st.sampled_from(SPELLED), max_size=8))
def test_no_text_forms_a_control_token(chatty: Renderer, pieces: list[str]):
    control = {chatty._tokenizer.convert_tokens_to_ids(text) for text in SPELLED[:5] if text != "<|IM_END|>"}

    def count(text: str) -> int:
        return sum(token in control for token in chatty.render([{"role": "user", "content": text}]))

    text = "".join(pieces)
    assert count(text) == count("a") == 4
    assert not {chatty._tokenizer.convert_tokens_to_ids(text) for text in SPELLED[:2]} & set(chatty.encode(text))


def test_text_without_control_tokens_is_tokenized_as_ever(chatty: Renderer):
    for text in ("a page <tool> end", "a <| page |>", "think"):
        turns = [{"role": "user", "content": text}]
        stock = chatty._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert chatty.render(turns) == stock


def test_a_reply_to_a_template_that_opens_reasoning_begins_with_its_mark(chatty: Renderer):
    prompt = chatty.render([{"role": "user", "content": "page"}])
    text = reply_text(chatty, prompt, chatty.encode("reserved page"))
    assert text.startswith("<think>") and "reserved" in text and answer_of(text) == ""
    assert reply_text(chatty, prompt[:-1], chatty.encode("page")) == chatty.decode(chatty.encode("page"))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{% for m in messages %}{% for p in m['content'] %}{{ p['text'] }}{% endfor %}{% endfor %}",
            "system and user",
        ),
        (
            "{% for m in messages if m['role'] == 'system' %}{{ m['content'] }}{% endfor %}",
            "leaves out or alters the text of user",
        ),
        ("{{ messages[0]['content'][:4] }}", "leaves out"),
        ("{{ raise_exception('only for tools') }}", "only for tools"),
        ("{{ messages[0]['content'] + 1 }}", "fails"),
        (SHOWS.replace("'] }}", "'] | e }}"), "alters the text of system and user"),
        (SHOWS.replace("'] }}", "'] | tojson }}"), "alters the text of system and user"),
        (SHOWS.replace("'] }}", "'] | lower }}"), "alters the text of system and user"),
        ("{{ 'Write \\boxed{}.' }}" + SHOWS, "writes the control character"),
    ],
    ids=[
        "takes parts",
        "loses the user",
        "cuts",
        "refuses all",
        "is broken",
        "escapes",
        "quotes",
        "lowers",
        "reads \\b",
    ],
)
def test_a_template_that_loses_text_is_refused(source: Path, template: str, said: str):
    retold(source, template)
    with pytest.raises(CheckpointError, match=said):
        Renderer(source)
    retold(source, SHOWS)
    with pytest.raises(ConfigError, match=said):
        Renderer(source).render(SYSTEM, template)
    # Nothing is lost where there is no system turn.
    shown = IGNORES.replace("if m['role'] != 'system'", "if m['role'] == 'user'")
    assert Renderer(source).render(ALONE, shown) == [2, 8, 9, TURN, 6]


def test_a_template_that_loses_worked_examples_is_refused_where_there_are_some(source: Path):
    retold(source, "w2 {{ messages[0]['content'] }} w4 " + ENDS)
    renderer = Renderer(source)
    assert renderer.render(SYSTEM) == renderer.render([{"role": "user", "content": "w7 w8 w9"}])
    examples = [*ALONE, {"role": "assistant", "content": "w5"}, *ALONE]
    with pytest.raises(ConfigError, match="leaves out or alters the text of assistant and user"):
        renderer.render(examples)


def test_of_several_templates_the_default_counts_and_a_file_beats_them_all(source: Path):
    (source / TEMPLATE_FILE).unlink()
    several = [{"name": "rag", "template": IGNORES}, {"name": "default", "template": SHOWS}]
    changed(source / "tokenizer_config.json", chat_template=several)
    assert Renderer(source).render(SYSTEM) == SHOWN
    changed(source / "tokenizer_config.json", chat_template=several[:1])
    with pytest.raises(CheckpointError, match="none is the default: rag"):
        Renderer(source)
    (source / TEMPLATE_FILE).write_text(SHOWS)
    assert Renderer(source).render(SYSTEM) == SHOWN


def test_a_template_that_asks_the_clock_gets_a_fixed_day(source: Path):
    asks = "w{{ strftime_now('%d')|int }} w{{ strftime_now('%y')|int }}"
    retold(source, f"{{% macro day() %}}{asks}{{% endmacro %}}{{{{ day() }}}} " + SHOWS)
    renderer = Renderer(source)
    assert renderer.render(SYSTEM) == [1, 26, *SHOWN]
    written = renderer._apply_template(SYSTEM, "{{ strftime_now('%d %b %Y, %A %-d. %B, %H:%M') }}", tokenize=False)
    assert written == "01 Jan 2026, Thursday 1. January, 00:00"
    dense = renderer._apply_template(SYSTEM, "{{ strftime_now('%F %T, %e %h %G') }}", tokenize=False)
    assert dense == "2026-01-01 00:00:00,  1 Jan 2026"
    spaced = "  \n x{{ strftime_now('%d') }}"
    assert renderer._apply_template(SYSTEM, spaced, tokenize=False) == "  \n x01"


def test_code_that_comes_with_a_model_is_refused_unrun(source: Path, tmp_path: Path) -> None:
    (source / "payload.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    changed(source / "config.json", auto_map={"AutoModelForCausalLM": "payload.Model"})
    # A known architecture with code beside it loads without the code.
    assert load_model(source, dtype=torch.float32, device=torch.device("cpu")).config.vocab_size == 64
    own = {"AutoConfig": "payload.Config", "AutoModelForCausalLM": "payload.Model"}
    changed(source / "config.json", model_type="payload", auto_map=own)
    with pytest.raises(CheckpointError, match="code that comes with a model is never run"):
        read_config(source)
    changed(
        source / "tokenizer_config.json",
        tokenizer_class="Payload",
        auto_map={"AutoTokenizer": ["payload.Config", None]},
    )
    (source / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="never run"):
        Renderer(source)
    assert not (tmp_path / "ran").exists()


def test_every_loader_says_that_it_trusts_no_code() -> None:
    """Left unsaid, transformers asks at the terminal."""
    said = {
        f"{path.name}:{call.lineno}": [ast.unparse(each) for each in call.keywords]
        for path in (ROOT / "infuser_core").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and re.fullmatch(r"Auto\w+\.from_pretrained", ast.unparse(call.func))
    }
    assert len(said) >= 3
    assert [place for place, keywords in said.items() if "trust_remote_code=False" not in keywords] == []
    assert (ROOT / "infuser_core/engines/vllm/worker.py").read_text().count("trust_remote_code=False") == 1
