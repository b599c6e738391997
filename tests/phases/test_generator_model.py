"""Another model in the generator's place: a server that is asked, or files of its own. It is never updated."""

import json

from places import CONFIGS
from test_endpoint_replies import said, server

from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import generate_questions as phase
from infuser_core.engines.endpoint import Address, ChatSampler, Endpoint, PackedText
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Document

CONFIG = load([CONFIGS / "nano.yaml"])
DOCUMENT = Document(
    document_id="d", source_id="s", header_path="", start=0, end=4, text="Water boils: 100 °C.", num_tokens=4,
    domain="Physics", prompt_type="mcq",
)  # fmt: skip
WRITTEN = {"question_text": "At which?", "choices": ["10", "50", "75", "100"], "ground_truth": "100"}


def test_text_comes_back_from_its_tokens():
    tokenizer = PackedText()
    turns = [{"role": "user", "content": 'Ünïcode {braces} \\n "quotes" \U0001f9ea'}]
    assert tokenizer.messages(tokenizer.render(turns)) == turns
    for text in ("", "a", "four", "fives", "ä\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("x" * 401)) == 101


def test_a_server_writes_the_questions_and_its_thoughts_are_no_question():
    thoughts = json.dumps({**WRITTEN, "ground_truth": "10"})
    with server(lambda body, number: said(f"<think>{thoughts}</think>{json.dumps(WRITTEN)}")) as (url, log):
        endpoint = Endpoint(Address(model="m", url=url), concurrency=2)
        made = phase.generate_questions(
            [DOCUMENT], ChatSampler(endpoint.replies), phase.settings_of(CONFIG), checkpoint_id="openai:m", seed=1,
            iteration=0,
        )  # fmt: skip
        endpoint.close()
    assert len(made.questions) == len(made.rollouts) == CONFIG.cotrain.group_size
    assert {question.choices["ABCD".index(question.answer)] for question in made.questions} == {"100"}
    assert {row.checkpoint_id for row in made.rollouts} == {"openai:m"}
    assert "100 °C" in log.bodies[0]["messages"][-1]["content"]
    assert len({body["seed"] for body in log.bodies}) == CONFIG.cotrain.group_size


def test_replies_in_any_order_find_their_place():
    tokenizer = PackedText()
    turns = [[{"role": "user", "content": str(number)}] for number in range(3)]
    groups = [
        PromptGroup(group_id=str(place), token_ids=tokenizer.render(each), seeds=[10 * place, 10 * place + 1])
        for place, each in enumerate(turns)
    ]
    kept: list[tuple[int, int]] = []
    with server(lambda body, number: said(f"{body['messages'][0]['content']}/{body['seed']}")) as (url, _):
        endpoint = Endpoint(Address(model="m", url=url), concurrency=3)
        drawn = ChatSampler(endpoint.replies).sample(
            groups, SamplingParams(temperature=0.7, max_tokens=9), keep=lambda place, row, _: kept.append((place, row))
        )
        endpoint.close()
    texts = [[tokenizer.decode(each.token_ids) for each in group] for group in drawn]
    assert texts == [["0/0", "0/1"], ["1/10", "1/11"], ["2/20", "2/21"]]
    assert sorted(kept) == [(place, row) for place in range(3) for row in range(2)]
