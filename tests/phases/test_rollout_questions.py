"""The solver's answers, their rewards, and labels by majority or by document."""

from collections import Counter
from pathlib import Path

import pytest
from crash_points import begun
from hypothesis import given
from hypothesis import strategies as st
from launcher import Launcher, SmallRun
from places import CONFIGS
from solver_rows import answers, question

from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import dev_gradient as gradient_phase
from infuser_core.cotrain.phases.dev_gradient import dev_gradient
from infuser_core.cotrain.phases.rollout_dev import rollout_dev, settings_of
from infuser_core.cotrain.phases.rollout_questions import PseudoLabel, relabel
from infuser_core.cotrain.phases.training import by_group
from infuser_core.engines.fake import ScriptedSampler
from infuser_core.evaluation.answering import template_digest
from infuser_core.prompts.templates import load_template
from infuser_core.schemas import Question, Rollout, Verdict
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store

NANO = CONFIGS / "nano.yaml"
# The fake engine's tokens are bytes.
CONFIG = load([NANO], ["cotrain.prompt_tokens=80", "cotrain.solver_tokens=40", "cotrain.group_size=4"])


def choice_question(name: str, *, text: str = "What is 6 * 7?", answer: str = "B") -> Question:
    return Question(
        question_id=name,
        text=text,
        choices=["41", "42", "43", "44"],
        answer=answer,
        verifier="choice",
        domain="",
        subdomain="",
    )


def half_right(prompt: str, seed: int) -> str:
    return "\\boxed{B}" if seed % 2 else "\\boxed{C}"


def rollouts(questions: list[Question], reply=half_right, *, seed: int = 0, iteration: int = 0) -> list[Rollout]:
    return rollout_dev(
        questions,
        ScriptedSampler(reply=reply),
        settings_of(CONFIG),
        checkpoint_id="solver",
        seed=seed,
        iteration=iteration,
    )


def test_every_question_has_its_group_in_order():
    rows = rollouts([choice_question(name) for name in ("q1", "q2", "q3")])
    assert list(by_group(rows)) == ["q1", "q2", "q3"]
    assert [row.rollout_id for row in rows[:4]] == ["q1/0", "q1/1", "q1/2", "q1/3"]
    assert {row.checkpoint_id for row in rows} == {"solver"}
    assert all(len(row.token_ids) == len(row.sampler_logprobs) for row in rows)


@pytest.mark.parametrize(
    ("text", "verdict", "reward"),
    [
        ("so \\boxed{B}", Verdict.CORRECT, 1.0),
        ("so \\boxed{A}", Verdict.WRONG, 0.0),
        ("no idea", Verdict.NO_ANSWER, 0.0),
        ("", Verdict.NO_ANSWER, 0.0),
    ],
)
def test_the_verdict_gives_the_reward(text: str, verdict: Verdict, reward: float):
    rows = rollouts([choice_question("q")], lambda prompt, seed: text)
    assert {(row.verdict, row.reward, row.text) for row in rows} == {(verdict, reward, text)}


def test_a_question_that_does_not_fit_counts_as_unanswered():
    rows = rollouts(
        [choice_question("short"), choice_question("long", text="very " * 40 + "long?"), choice_question("last")]
    )
    assert [row.group_id for row in rows] == [name for name in ("short", "long", "last") for _ in range(4)]
    lost = by_group(rows)["long"]
    assert {(row.finish_reason, row.verdict, row.reward) for row in lost} == {
        ("prompt_too_long", Verdict.NO_ANSWER, 0.0)
    }
    assert all(row.token_ids == row.prompt_token_ids == row.sampler_logprobs == [] for row in lost)


def test_questions_that_do_not_fit_leave_no_trace_in_the_gradient(tmp_path: Path):
    from infuser_core.engines.fake import FakeTrainer, fake_anchor
    from infuser_core.schemas import Checkpoint

    fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "anchor"), step=0))
    rows = rollouts([choice_question("long", text="very " * 40 + "long?")])
    facts, _ = dev_gradient(rows, trainer, gradient_phase.settings_of(CONFIG), workspace=tmp_path)
    assert (facts.norm, facts.num_groups, facts.num_varied, facts.accuracy) == (0.0, 1, 0, 0.0)


def test_a_cut_response_says_so():
    rows = rollouts([choice_question("q")], lambda prompt, seed: "thinking " * 20)
    assert {(row.finish_reason, row.verdict, len(row.token_ids)) for row in rows} == {("length", "no_answer", 40)}


def test_draws_follow_seed_iteration_question_and_sample():
    def texts(name: str = "q", **where: int) -> list[str]:
        return [row.text for row in rollouts([choice_question(name)], lambda prompt, seed: str(seed), **where)]

    base = texts(seed=1, iteration=1)
    assert len(set(base)) == 4
    assert texts(seed=1, iteration=1) == base
    for other in (texts(seed=2, iteration=1), texts(seed=1, iteration=2), texts("other", seed=1, iteration=1)):
        assert set(other).isdisjoint(base)


def test_what_else_is_asked_does_not_change_an_answer():
    alone = rollouts([choice_question("q2")], lambda prompt, seed: str(seed))
    among = rollouts(
        [choice_question("q1"), choice_question("q2"), choice_question("q3")], lambda prompt, seed: str(seed)
    )
    assert by_group(among)["q2"] == alone


def test_an_edited_prompt_is_another_recipe():
    mcq, free = (load_template(name, profile="paper") for name in ("solve_mcq", "solve_free_form"))
    settings = settings_of(load([NANO], ["prompts=paper"]))
    assert settings.prompt_digest == template_digest(mcq, free), "both templates enter"
    assert template_digest(mcq, free) != template_digest(mcq)


def test_worked_examples_of_a_prompt_are_turns_and_enter_its_digest(tmp_path: Path) -> None:
    turns = ["Be brief.", "2 + 2", "4", "{question}"]
    for name, parts in (("with", turns), ("without", [turns[0], turns[3]]), ("line", ["", "a", "{question}"])):
        (tmp_path / f"{name}.txt").write_text("\n---\n".join(parts))
    shown, plain, line = (load_template(name, profile=str(tmp_path)) for name in ("with", "without", "line"))
    said = [(turn["role"], turn["content"]) for turn in shown.messages(question="3 + 3")]
    assert said == [("system", "Be brief."), ("user", "2 + 2"), ("assistant", "4"), ("user", "3 + 3")]
    assert template_digest(shown) != template_digest(plain)
    assert line.user == "a\n---\n{question}", "a line without a pair is text"


# Pseudo-labels: agreement with the majority of the group is rewarded, whatever the generator's key says


def judged(asked: Question, texts: list[str]) -> tuple[list[float], PseudoLabel]:
    rollouts, (label,) = relabel([asked], answers(asked.question_id, texts), preset="paper")
    return [row.reward for row in rollouts], label


def boxed(*values: object) -> list[str]:
    return [f"so \\boxed{{{value}}}" for value in values]


def test_the_majority_is_rewarded_and_not_the_key():
    rewards, label = judged(question("q", answer="7"), boxed(5, 7, 5, 5))
    assert rewards == [1.0, 0.0, 1.0, 1.0]
    assert (label.label, label.votes, label.answered, label.key, label.agrees) == ("5", 3, 4, "7", False)


def test_the_first_of_equals_wins():
    rewards, label = judged(question("q", answer="9"), boxed(3, 9, 9, 3))
    assert (rewards, label.label, label.agrees) == ([1.0, 0.0, 0.0, 1.0], "3", False)


def test_answers_are_equal_by_the_verifier():
    rewards, label = judged(question("q", answer="07"), boxed("7.0", 5, "07", 7))
    assert (rewards, label.votes, label.agrees) == ([1.0, 0.0, 1.0, 1.0], 3, True)


def test_no_answer_never_wins():
    rewards, label = judged(question("q"), ["no idea", "none", "nothing", *boxed(4)])
    assert (rewards, label.label, label.answered) == ([0.0, 0.0, 0.0, 1.0], "4", 1)


def test_nobody_is_rewarded_where_nothing_can_be_read():
    rewards, label = judged(question("q"), ["no idea", *boxed("a cat", "a cat")])
    assert (rewards, label.label, label.votes) == ([0.0, 0.0, 0.0], "", 0)


def test_letters_beyond_the_choices_are_no_candidates():
    rewards, label = judged(question("q", answer="A", verifier="choice"), boxed("F", "F", "B", "(b)"))
    assert (rewards, label.label) == ([0.0, 0.0, 1.0, 1.0], "B")


def test_a_key_rewards_nobody_even_where_there_is_no_majority():
    rows = answers("q", ["nothing to read"], correct=[True])
    (row,), _ = relabel([question("q")], rows, preset="paper")
    assert (row.reward, row.verdict) == (0.0, Verdict.UNVERIFIED)


def test_answers_by_people_stand():
    rows = answers("q", boxed(5, 5), correct=[False, True])
    assert relabel([question("q", generated=False)], rows, preset="paper") == (rows, [])


@given(st.lists(st.sampled_from(["1", "2", "3", ""]), min_size=1, max_size=9))
def test_the_reward_is_the_share_of_the_largest_block(given_answers: list[str]):
    texts = [f"\\boxed{{{answer}}}" if answer else "none" for answer in given_answers]
    rewards, label = judged(question("q"), texts)
    counts = Counter(answer for answer in given_answers if answer)
    largest = max(counts.values(), default=0)
    assert sum(rewards) == label.votes == largest
    assert label.answered == counts.total()
    assert not largest or label.label == next(answer for answer in given_answers if counts[answer] == largest)


# Labels of a teacher that reads the document: its majority rewards the solver, which sees the question alone


def test_the_teachers_majority_is_rewarded_and_not_the_solvers():
    rows = answers("q", [r"\boxed{5}", r"\boxed{5}", r"\boxed{7}"])
    taught = answers("q", [r"\boxed{7}", r"\boxed{7}", r"\boxed{5}"])
    rollouts, labels = relabel([question("q", answer="5")], rows, preset="paper", teacher_rollouts=taught)
    assert [row.reward for row in rollouts] == [0.0, 0.0, 1.0]
    assert (labels[0].label, labels[0].agrees) == ("7", False)


def test_a_question_without_a_taught_answer_rewards_nobody():
    rows = answers("q", [r"\boxed{5}"], correct=[True])
    rollouts, labels = relabel([question("q", answer="5")], rows, preset="paper", teacher_rollouts=[])
    assert ([row.reward for row in rollouts], labels[0].label) == ([0.0], "")


def test_a_run_asks_the_teacher_and_the_solver(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = begun(small_run, tmp_path / "store")
    small = [word for word in small_run.arguments if word not in ("--name", "small")]
    until = ["--set", "cotrain.aims=[]", "--until", "rollout_questions@0"]
    ended = launch(*small, "configs/baseline/darc.yaml", "--name", "taught", *until, store=store)
    assert ended.code == 0, ended.err
    artifacts = Store(store)
    keys = {entry.key for entry in Journal(store, "taught").latest()}
    (ref,) = [ref for ref in artifacts.refs() if ref.kind == "rollout_questions" and ref.key in keys]
    labels = artifacts.rows(ref, "pseudo_labels", PseudoLabel)
    assert labels and "pool" in artifacts.manifest(ref).recipe["inputs"]
    assert {label.samples for label in labels} == {4}
