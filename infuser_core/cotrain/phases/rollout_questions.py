"""Phase 2b: the solver answers the generated questions; its own or a teacher's majority may take the key's place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from infuser_core.algorithm.score import solver_reward
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases import rollout_dev
from infuser_core.cotrain.phases.training import by_group
from infuser_core.evaluation.answering import TOO_LONG, AnswerSettings, Draw, answer_questions
from infuser_core.protocols import Sampler
from infuser_core.schemas import Question, Rollout, Verdict
from infuser_core.verifiers.parts.batch import Job, check_all


@dataclass(frozen=True, slots=True, kw_only=True)
class PseudoLabel:
    """The majority's answer to a generated question, in place of its key."""

    question_id: str
    """Question labelled."""
    label: str
    """The majority's answer as the verifier read it; empty where no answer can be read."""
    votes: int
    """Answers equal to it."""
    answered: int
    """Answers that can be read."""
    samples: int
    """Answers asked for."""
    key: str
    """The generator's own answer, which is not used."""
    agrees: bool
    """Whether the majority's answer is right by the generator's key."""


def relabel(
    questions: Sequence[Question],
    rollouts: Sequence[Rollout],
    *,
    preset: str,
    taught: Sequence[Rollout] | None = None,
    share: float = 0.0,
) -> tuple[list[Rollout], list[PseudoLabel]]:
    """Rollouts by the majority's answers, with each question's own verifier, and these; `taught` votes if given.

    The answer with the most equals wins, of ties the first one; an answer that the verifier cannot read equals nothing.
    Where nothing can be read, or less than `share` of the answers agree, nobody is rewarded. Questions with a human's
    answer keep it.
    """
    written = {question.question_id: question for question in questions if question.rollout_id}
    groups = {name: rows for name, rows in by_group(rollouts).items() if name in written}
    voters = {name: by_group(taught).get(name, []) for name in groups} if taught is not None else groups
    elected = _elected(written, voters, preset, share)
    labelled = [row for name in groups if elected[name].label for row in groups[name] if _was_asked(row)]
    jobs = [_job(row, written[row.group_id], elected[row.group_id].label) for row in labelled]
    found = check_all(jobs, preset=preset)
    verdicts = {row.rollout_id: finding.verdict for row, finding in zip(labelled, found, strict=True)}
    judged = [_with(row, verdicts.get(row.rollout_id)) if row.group_id in groups else row for row in rollouts]
    return judged, [elected[name] for name in groups]


def _was_asked(row: Rollout) -> bool:
    return row.finish_reason != TOO_LONG


def _job(row: Rollout, question: Question, answer: str) -> Job:
    return Job(response=row.text, question=replace(question, answer=answer))


def _with(row: Rollout, verdict: str | None) -> Rollout:
    """The row with this verdict; without a label the key must not reward it either."""
    if verdict is None:
        verdict = Verdict.UNVERIFIED if row.verdict == Verdict.CORRECT else row.verdict
    return replace(row, verdict=verdict, reward=solver_reward(verdict))


def _elected(
    questions: Mapping[str, Question], groups: Mapping[str, Sequence[Rollout]], preset: str, share: float
) -> dict[str, PseudoLabel]:
    asked = [row for rows in groups.values() for row in rows if _was_asked(row)]
    jobs = [Job(response=row.text, question=questions[row.group_id]) for row in asked]
    by_key = dict(zip((row.rollout_id for row in asked), check_all(jobs, preset=preset), strict=True))
    votes = _votes(asked, questions, {name: finding.extracted or "" for name, finding in by_key.items()}, preset)
    elected = {}
    for name, rows in groups.items():
        # The first of equals: candidates stand in the order in which they were given.
        label, voters = max(votes.get(name, {}).items(), key=lambda item: len(item[1]), default=("", set[str]()))
        elected[name] = PseudoLabel(
            question_id=name,
            label=label if voters and len(voters) >= share * len(rows) else "",
            votes=len(voters),
            answered=len(set().union(*votes.get(name, {}).values())),
            samples=len(rows),
            key=questions[name].answer,
            agrees=any(by_key[voter].verdict == Verdict.CORRECT for voter in voters),
        )
    return elected


def _votes(
    asked: Sequence[Rollout], questions: Mapping[str, Question], extracted: Mapping[str, str], preset: str
) -> dict[str, dict[str, set[str]]]:
    """Question -> each answer given -> the rollouts whose answers are equal to it."""
    votes: dict[str, dict[str, set[str]]] = {}
    for row in asked:
        if extracted[row.rollout_id]:
            votes.setdefault(row.group_id, {}).setdefault(extracted[row.rollout_id], set())
    ballots = [(row, answer) for row in asked for answer in votes.get(row.group_id, ())]
    compared = check_all([_job(row, questions[row.group_id], answer) for row, answer in ballots], preset=preset)
    for (row, answer), finding in zip(ballots, compared, strict=True):
        if finding.verdict == Verdict.CORRECT:
            votes[row.group_id][answer].add(row.rollout_id)
    return votes


VERSION = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledAnswerSettings:
    """Settings for putting generated questions to the solver, and the labels of its answers."""

    answers: AnswerSettings
    """The same as for the dev set, so that the two gradients are comparable."""
    labels: str
    """`reference` for the generator's answer, `majority` for that of most of the solver's own answers, `document` for
    that of most of its answers with the document before the question."""
    share: float
    """Share of the samples that must agree on a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Answers to an iteration's questions."""

    rollouts: list[Rollout]
    """n per question, in question order."""
    labels: list[PseudoLabel]
    """One row per question where a majority takes the place of the key."""


def settings_of(config: RunConfig) -> LabelledAnswerSettings:
    """The sub-configuration that the phase is a function of."""
    cotrain = config.cotrain
    return LabelledAnswerSettings(
        answers=rollout_dev.settings_of(config), labels=cotrain.labels, share=cotrain.label_share
    )


def rollout_questions(
    questions: Sequence[Question],
    solver: Sampler,
    settings: LabelledAnswerSettings,
    *,
    iteration: int,
    documents: Mapping[str, str] | None = None,
    **how: Unpack[Draw],
) -> Answered:
    """n answers per question with their rewards r(a, a_phi; q); `documents` are texts by id."""
    rollouts = answer_questions(questions, solver, settings.answers, scope=f"rollout_questions/{iteration}", **how)
    if settings.labels == "reference":
        return Answered(rollouts=rollouts, labels=[])
    taught = None
    if settings.labels == "document":
        assert documents is not None, "a teacher reads the questions' documents"
        asked = _with_documents(questions, documents)
        told = answer_questions(asked, solver, settings.answers, scope=f"teach_questions/{iteration}", **how)
        taught = [replace(row, group_id=row.group_id.removesuffix(_TAUGHT)) for row in told]
    rollouts, labels = relabel(questions, rollouts, preset=settings.answers.box, taught=taught, share=settings.share)
    return Answered(rollouts=rollouts, labels=labels)


_TAUGHT = "/taught"


def _with_documents(questions: Sequence[Question], documents: Mapping[str, str]) -> list[Question]:
    """The generated questions as the teacher is asked them, under names of their own: pieces of both draws are kept."""
    return [
        replace(q, question_id=q.question_id + _TAUGHT, text=f"{documents[q.document_id]}\n\n{q.text}")
        for q in questions
        if q.rollout_id and q.document_id in documents
    ]
