"""Questions by people stand in the generator's prompt, before the document, drawn anew for every document."""

from dataclasses import replace

from places import CONFIGS
from solver_rows import question

from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import generate_questions as phase
from infuser_core.cotrain.phases.parts.few_shot import ExamplePool, render_examples
from infuser_core.engines.fake import ByteTokenizer, ScriptedSampler
from infuser_core.schemas import Document

CONFIG = load([CONFIGS / "nano.yaml"], ["prompts=paper", "cotrain.prompt_tokens=9999"])
PEOPLES = [replace(question(f"h{n}", answer="A", verifier="choice"), text=f"Human question {n}") for n in range(6)]
DOCUMENTS = [
    Document(
        document_id=f"d{n}", source_id="s", header_path="", start=0, end=1, text=f"Text {n}.", num_tokens=2, domain="",
        prompt_type=route,
    )
    for n, route in enumerate(["mcq", "mcq", "free_form"])
]  # fmt: skip


def prompts(examples: ExamplePool | None, iteration: int = 0) -> dict[str, str]:
    made = phase.generate_questions(
        DOCUMENTS, ScriptedSampler(), phase.settings_of(CONFIG), checkpoint_id="c", seed=1, iteration=iteration,
        examples=examples,
    )  # fmt: skip
    return {row.group_id: ByteTokenizer().decode(row.prompt_token_ids) for row in made.rollouts}


def test_examples_stand_before_the_document_with_their_answers():
    prompt = prompts(ExamplePool(questions=PEOPLES, count=2))["d0"]
    assert prompt.count("Human question") == prompt.count("Answer: A") == 2
    assert prompt.index("Human question") < prompt.index("Text 0.")


def test_other_routes_have_examples_too_and_runs_without_any_are_as_they_were():
    plain, with_examples = prompts(None), prompts(ExamplePool(questions=PEOPLES, count=2))
    assert "Human question" not in plain["d0"] + plain["d2"]
    assert with_examples["d2"].count("Human question") == 2


def test_every_document_and_iteration_draws_its_own():
    three = ExamplePool(questions=PEOPLES, count=3)
    drawn = [
        render_examples(three, name, seed=1, iteration=t, template="show_questions") for name in "aba" for t in (0, 1)
    ]
    assert len({*drawn}) == 4
    assert drawn[:2] == drawn[4:]


def test_no_question_stands_twice_in_a_prompt():
    text = render_examples(
        ExamplePool(questions=PEOPLES, count=99), "d", seed=1, iteration=0, template="show_questions"
    )
    assert sorted(line for line in text.splitlines() if line.startswith("Human")) == [q.text for q in PEOPLES]
