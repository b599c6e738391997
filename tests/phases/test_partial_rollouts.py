"""Answers that an iteration does not wait for go on in the next one: nothing is lost, asked twice, or too long."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from solver_rows import answers, question

from infuser_core.config.overlays import load
from infuser_core.engines.fake import ByteTokenizer, ScriptedSampler
from infuser_core.phases.answering import UNFINISHED
from infuser_core.phases.parts.owed import Written, settle
from infuser_core.phases.parts.partial_rollouts import Segment, Waiting, budget
from infuser_core.phases.rollout_questions import Answered, rollout_questions, settings_of
from infuser_core.phases.training import by_group
from infuser_core.schemas import InfluenceScore, Question

LIMIT, SAMPLES, ITERATIONS = 40, 3, 6
SMALL = [f"cotrain.solver_tokens={LIMIT}", f"cotrain.group_size={SAMPLES}", "cotrain.prompt_tokens=400"]
PLAIN = settings_of(load(["configs/nano.yaml"], SMALL))


def answered(names: list[str], before: Waiting | None, *, iteration: int, share: float, longest: int = 60) -> Answered:
    """Answers of lengths that their seeds choose."""
    config = load(["configs/nano.yaml"], [*SMALL, f"cotrain.rollout_share={share}"])
    return rollout_questions(
        [question(name, verifier="choice", answer="A") for name in names],
        ScriptedSampler(reply=lambda prompt, seed: "x" * (seed % longest)),
        settings_of(config),
        checkpoint_id=f"solver{iteration}",
        seed=1,
        iteration=iteration,
        before=before,
    )


def test_waiting_for_all_answers_gives_the_rows_of_a_run_that_knows_nothing_else():
    plain = answered(["a", "b"], None, iteration=3, share=1.0)
    drained = answered(["a", "b"], Waiting(), iteration=3, share=1.0)
    assert (drained.rollouts, drained.questions) == (plain.rollouts, plain.questions)
    assert drained.waiting is not None and not drained.waiting.rollouts
    assert settings_of(load(["configs/nano.yaml"], SMALL)) == PLAIN


def told(words: list[int]) -> list[Segment]:
    return [Segment(rollout_id=str(n), checkpoint_id="c", start=0, tokens=length) for n, length in enumerate(words)]


@given(lengths=st.lists(st.integers(1, LIMIT), min_size=1, max_size=30), share=st.floats(0.5, 0.999))
def test_the_budget_is_the_shortest_that_lets_the_share_end(lengths: list[int], share: float):
    most = budget(told(lengths), share, LIMIT)
    assert sum(length <= most for length in lengths) >= share * len(lengths)
    assert sum(length < most for length in lengths) < share * len(lengths)


def test_nothing_is_cut_where_nothing_is_known_or_all_is_waited_for():
    assert [budget([], 0.5, LIMIT), budget(told([1, 2]), 1.0, LIMIT)] == [LIMIT, LIMIT]


@settings(max_examples=40)
@given(share=st.floats(0.5, 0.95), counts=st.lists(st.integers(0, 4), min_size=ITERATIONS, max_size=ITERATIONS))
def test_every_answer_is_drawn_once_from_end_to_end_and_learnt_from_once(share: float, counts: list[int]):
    before, ended, segments = Waiting(), [], []
    asked = [[f"{number}/{n}" for n in range(count)] for number, count in enumerate(counts)]
    for number, names in enumerate(asked):
        found = answered(names, before, iteration=number, share=share)
        assert found.waiting is not None
        before = found.waiting
        ended += found.rollouts
        segments += before.segments
        assert [row.question_id for row in found.questions] == list(by_group(found.rollouts))
        assert {row.finish_reason for row in found.rollouts} <= {"stop", "length"}
    every = [*ended, *before.rollouts]
    names = [f"{name}/{index}" for own in asked for name in own for index in range(SAMPLES)]
    assert Counter(row.rollout_id for row in every) == Counter(names)
    assert {name for own in asked for name in own} == {row.group_id for row in every}
    for row in every:
        own = [part for part in segments if part.rollout_id == row.rollout_id]
        assert [part.start for part in own] == [sum(p.tokens for p in own[:n]) for n in range(len(own))]
        assert sum(part.tokens for part in own) == len(row.token_ids) == len(row.sampler_logprobs) <= LIMIT
        assert (row.finish_reason == "length") <= (len(row.token_ids) == LIMIT)
    drained = answered([], before, iteration=ITERATIONS, share=1.0)
    assert drained.waiting is not None and not drained.waiting.rollouts
    assert Counter(row.rollout_id for row in (*ended, *drained.rollouts)) == Counter(names)
    waiting = {row.group_id for row in before.rollouts}
    assert waiting == {row.group_id for row in before.rollouts if row.finish_reason == UNFINISHED}


def test_a_continued_answer_reads_what_it_said_and_is_judged_as_a_whole():
    right = ByteTokenizer().encode("\\boxed{")
    begun = [replace(row, token_ids=right, sampler_logprobs=[-9.0] * 7, text="\\boxed{") for row in answers("q", [""])]
    rows = [replace(row, finish_reason=UNFINISHED) for row in begun]
    asked = [question("q", verifier="choice", answer="A")]
    heard: list[str] = []

    def reply(prompt: str, seed: int) -> str:
        heard.append(prompt)
        return "A}"

    done = rollout_questions(
        [], ScriptedSampler(reply=reply), PLAIN, checkpoint_id="new", seed=1, iteration=2,
        before=Waiting(questions=asked, rollouts=rows),
    )  # fmt: skip
    (row,) = done.rollouts
    assert heard == [ByteTokenizer().decode([*rows[0].prompt_token_ids, *right])]
    assert (row.text, row.reward, row.finish_reason, row.checkpoint_id) == ("\\boxed{A}", 1.0, "stop", "new")
    # Every token keeps the log-probability of the policy that drew it.
    assert list(row.sampler_logprobs) == [-9.0] * 7 + [-0.5] * 3


def score(name: str) -> InfluenceScore:
    numbers = dict.fromkeys(("score", "cosine", "dot", "raw_cosine", "direction_norm", "gradient_norm"), 0.0)
    return InfluenceScore(
        question_id=name, status="scored", reference_norm=1.0, solver_accuracy=0.5, **numbers
    )  # fmt: skip


def written(iteration: int, document: str, texts: int) -> tuple[list, list[Question]]:
    """Texts of a document, all of them questions but the last."""
    rows = [
        replace(row, rollout_id=f"{iteration}/{row.rollout_id}")
        for row in answers(document, [str(n) for n in range(texts)])
    ]
    return rows, [replace(question(f"q-{row.rollout_id}"), rollout_id=row.rollout_id) for row in rows[:-1]]


def test_new_texts_with_all_scores_are_due_as_they_are():
    rows, asked = written(0, "d", 3)
    new = Written(
        rollouts=rows,
        questions=[*asked, question("given", generated=False)],
        scores=[score(q.question_id) for q in asked],
    )
    due = settle(Written(), new)
    assert (due.now, due.later) == (new, Written(rollouts=[], questions=[], scores=[]))
    assert due.documents == {row.rollout_id: "d" for row in rows}


@given(data=st.data())
def test_every_document_is_rewarded_once_when_its_last_score_is_there(data: st.DataObject):
    owed, open_questions, rewarded = Written(), [], []
    everything: list[str] = []
    for iteration in range(5):
        # The same document is read again and again.
        rows, asked = written(iteration, "d", data.draw(st.integers(1, 4)))
        everything += [row.rollout_id for row in rows]
        open_questions += [row.question_id for row in asked]
        answered_now = data.draw(st.lists(st.sampled_from(open_questions), unique=True)) if open_questions else []
        open_questions = [name for name in open_questions if name not in answered_now]
        due = settle(owed, Written(rollouts=rows, questions=asked, scores=[score(name) for name in answered_now]))
        assert {row.question_id for row in due.now.scores} == {q.question_id for q in due.now.questions}
        groups = by_group(due.now.rollouts)
        assert all(len({row.rollout_id.rpartition("/")[0] for row in own}) == 1 for own in groups.values())
        assert {q.question_id for q in due.later.questions} >= {q for q in open_questions}
        rewarded += [row.rollout_id for row in due.now.rollouts]
        owed = due.later
    assert Counter([*rewarded, *(row.rollout_id for row in owed.rollouts)]) == Counter(everything)
    assert {row.group_id for row in owed.rollouts} <= {"d"}
