"""Phase 2b: the solver answers the generated questions; a majority vote may replace their keys (reference answers).

The voters are the solver's own answers, or a teacher's: the solver's answers with the document before the question.
"""

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

VERSION = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledAnswerSettings:
    """Settings for sampling answers to the generated questions and for the labels that judge them."""

    answers: AnswerSettings
    """Answer settings, equal to those of the dev set so that the two gradients are comparable."""
    labels: str
    """`reference`: the generator's key; `majority`: the most frequent of the solver's own answers; `document`: the most
    frequent of its answers when the document precedes the question."""
    share: float
    """Share of the samples that must agree on a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PseudoLabel:
    """The majority's answer to a generated question, which replaces its key."""

    question_id: str
    """Question labelled."""
    label: str
    """The majority's answer as the verifier read it; empty if no answer can be read or too few agree."""
    votes: int
    """Answers equal to it."""
    answered: int
    """Answers that can be read."""
    samples: int
    """Answers requested."""
    key: str
    """The generator's own answer, which is not used."""
    agrees: bool
    """Whether the majority's answer is right by the generator's key."""


def settings_of(config: RunConfig) -> LabelledAnswerSettings:
    """Settings of a run that this phase depends on."""
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
    **draw: Unpack[Draw],
) -> tuple[list[Rollout], list[PseudoLabel]]:
    """Sample n answers per question, in question order, with their rewards r(a, a_phi; q) (Algorithm 2, phase 2).

    Unless `settings.labels` is `reference`, a majority vote gives each generated question a label, which replaces its
    key a_phi. `documents` holds texts by document id.
    """
    rollouts = answer_questions(questions, solver, settings.answers, scope=f"rollout_questions/{iteration}", **draw)
    if settings.labels == "reference":
        return rollouts, []
    teacher_rollouts = None
    if settings.labels == "document":
        assert documents is not None, "a teacher reads the questions' documents"
        # Separate identifiers: the saved rows of both draws are in one folder.
        suffix = "/taught"
        with_documents = [
            replace(row, question_id=row.question_id + suffix, text=f"{documents[row.document_id]}\n\n{row.text}")
            for row in questions
            if row.rollout_id and row.document_id in documents
        ]
        answers = answer_questions(
            with_documents, solver, settings.answers, scope=f"teach_questions/{iteration}", **draw
        )
        teacher_rollouts = [replace(row, group_id=row.group_id.removesuffix(suffix)) for row in answers]
    return relabel(
        questions, rollouts, preset=settings.answers.box, teacher_rollouts=teacher_rollouts, share=settings.share
    )


def relabel(
    questions: Sequence[Question],
    rollouts: Sequence[Rollout],
    *,
    preset: str,
    teacher_rollouts: Sequence[Rollout] | None = None,
    share: float = 0.0,
) -> tuple[list[Rollout], list[PseudoLabel]]:
    """Judge the rollouts again by the majority's answer to each question; `teacher_rollouts`, if any, are the voters.

    The winner is the answer to which the question's verifier finds most answers equal, the first of ties; an
    unreadable answer equals no other. If no answer can be read, or less than `share` of all samples agree, no answer is
    rewarded. Questions that no generator wrote keep their key.
    """
    generated = {question.question_id: question for question in questions if question.rollout_id}
    groups = {name: rows for name, rows in by_group(rollouts).items() if name in generated}
    voters = groups
    if teacher_rollouts is not None:
        taught_groups = by_group(teacher_rollouts)
        voters = {name: taught_groups.get(name, []) for name in groups}
    labels = _elect_labels(generated, voters, preset, share)
    labelled = [row for name in groups if labels[name].label for row in groups[name] if row.finish_reason != TOO_LONG]
    jobs = [_job_of(row, generated[row.group_id], labels[row.group_id].label) for row in labelled]
    findings = check_all(jobs, preset=preset)
    verdicts = {row.rollout_id: finding.verdict for row, finding in zip(labelled, findings, strict=True)}
    judged = []
    for row in rollouts:
        if row.group_id in groups:
            # Without a label, a response that equals the key must not be rewarded either.
            unlabelled = Verdict.UNVERIFIED if row.verdict == Verdict.CORRECT else row.verdict
            verdict = verdicts.get(row.rollout_id, unlabelled)
            row = replace(row, verdict=verdict, reward=solver_reward(verdict))
        judged.append(row)
    return judged, [labels[name] for name in groups]


def _job_of(row: Rollout, question: Question, answer: str) -> Job:
    """Job that checks a response against `answer` in place of the question's key."""
    return Job(response=row.text, question=replace(question, answer=answer))


def _elect_labels(
    questions: Mapping[str, Question], voters: Mapping[str, Sequence[Rollout]], preset: str, share: float
) -> dict[str, PseudoLabel]:
    """The majority's answer to each question, by question id."""
    answered = [row for rows in voters.values() for row in rows if row.finish_reason != TOO_LONG]
    jobs = [Job(response=row.text, question=questions[row.group_id]) for row in answered]
    by_key = dict(zip((row.rollout_id for row in answered), check_all(jobs, preset=preset), strict=True))
    votes = _count_votes(
        answered, questions, {name: finding.extracted or "" for name, finding in by_key.items()}, preset
    )
    labels = {}
    for name, rows in voters.items():
        # `max` takes the first of ties, and answers are in the order of the rollouts.
        label, ids = max(votes.get(name, {}).items(), key=lambda item: len(item[1]), default=("", set[str]()))
        labels[name] = PseudoLabel(
            question_id=name,
            label=label if ids and len(ids) >= share * len(rows) else "",
            votes=len(ids),
            answered=len(set().union(*votes.get(name, {}).values())),
            samples=len(rows),
            key=questions[name].answer,
            agrees=any(by_key[rollout_id].verdict == Verdict.CORRECT for rollout_id in ids),
        )
    return labels


def _count_votes(
    answered: Sequence[Rollout], questions: Mapping[str, Question], extracted: Mapping[str, str], preset: str
) -> dict[str, dict[str, set[str]]]:
    """By question and distinct answer: ids of the rollouts whose answers equal it."""
    votes: dict[str, dict[str, set[str]]] = {}
    for row in answered:
        if extracted[row.rollout_id]:
            votes.setdefault(row.group_id, {}).setdefault(extracted[row.rollout_id], set())
    ballots = [(row, answer) for row in answered for answer in votes.get(row.group_id, ())]
    findings = check_all([_job_of(row, questions[row.group_id], answer) for row, answer in ballots], preset=preset)
    for (row, answer), finding in zip(ballots, findings, strict=True):
        if finding.verdict == Verdict.CORRECT:
            votes[row.group_id][answer].add(row.rollout_id)
    return votes
