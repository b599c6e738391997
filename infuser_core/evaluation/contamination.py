"""Has a model seen a benchmark? It completes the beginnings of questions, and of a control that it cannot have seen.

The prompt is the first 40, 60 or 80% of a question's tokens, without a chat template or an instruction. The model
continues it greedily for as many tokens as the rest has. Of a rest of R tokens, let the first M be equal in the
continuation:

    match = M / R                                    completed = 1 if M = R, else 0
    contamination = mean over questions of completed(question) - completed(its control)

Text is easy to complete if it follows a pattern, so only the difference counts; its 95% interval is a bootstrap over
questions. The idea, completion of partial prompts, is that of arXiv 2507.10532.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from infuser_core.config.phase_table import Phase
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import UsageError
from infuser_core.evaluation.benchmarks.parts.loader import find_draw
from infuser_core.evaluation.benchmarks.parts.question_sets import read_questions
from infuser_core.evaluation.models import digests_of
from infuser_core.evaluation.statistics.bootstrap import paired_difference
from infuser_core.prompts.templates import render_question
from infuser_core.protocols import Progress, PromptGroup, Sampler, SamplingParams, no_progress
from infuser_core.schemas import Continuation, Question
from infuser_core.seeding import seed_of
from infuser_core.store.catalogue import Catalogue

VERSION = 1
SHARES = (0.4, 0.6, 0.8)
"""Shares of a question's tokens that the model reads."""
PLAIN = "{{ bos_token }}{{ messages[0]['content'] }}"
"""Chat template that writes the text alone, after the token that begins a text in this model."""
DRAWS = 16
"""Most draws of a generated benchmark in search of questions that are not in it."""
DIGITS = "123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Text of a benchmark question, with its choices, and of its control."""

    question_id: str
    text: str
    control: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTexts:
    """Texts of a probe of one benchmark."""

    control: str
    """Description of the controls, after `completes 1.0% of`."""
    pairs: Sequence[Pair]
    """Questions that have a control."""


def text_of(question: Question) -> str:
    """The question as a benchmark prints it: its text, then one lettered line per choice."""
    return render_question(question.text, question.choices)


def probe_texts(
    questions: Sequence[Question], benchmark: BenchmarkSettings, *, file: Path | None, seed: int
) -> ProbeTexts:
    """Pair the questions with the rows of `file` in their order, with fresh draws, or with variants of themselves.

    Raises UsageError if no question has a control.
    """
    draw = find_draw(benchmark)
    ids = [each.question_id for each in questions]
    if file is not None:
        control = f"those in {file.name}"
        texts = dict(zip(ids, map(text_of, read_questions(file, "control", {})), strict=False))
    elif draw is not None:
        control, texts = "fresh draws", fresh_questions(draw, seed=seed)
    else:
        control = "variants with other digits and order of choices"
        texts = {each.question_id: vary(each, seed=seed) for each in questions}
    pairs = [
        Pair(question_id=each.question_id, text=text_of(each), control=texts[each.question_id])
        for each in questions
        if texts.get(each.question_id, text_of(each)) != text_of(each)
    ]
    if not pairs:
        raise UsageError(
            f"{benchmark.label or benchmark.name}: none of {len(questions):,} questions has a control",
            hint="--control FILE with questions that the model cannot have seen",
        )
    return ProbeTexts(control=control, pairs=pairs)


def fresh_questions(draw: Callable[[int], Sequence[Question]], *, seed: int) -> dict[str, str]:
    """Controls of a generated benchmark: for each question the first other one that takes its place in a new draw.

    `draw(0)` are the benchmark's questions; questions in the same place have the same id and topic.
    """
    own = {question.text for question in draw(0)}
    controls: dict[str, str] = {}
    for number in range(DRAWS):
        for question in draw(seed_of(seed, "control", number)):
            if question.text not in own:
                controls.setdefault(question.question_id, text_of(question))
    return controls


def vary(question: Question, *, seed: int) -> str:
    """The question with other numbers and another order of its choices; equal to its text if it has neither.

    One cyclic permutation of the digits 1 to 9 per question: equal numbers stay equal, and a round one stays round.
    """
    rng = Random(seed_of(seed, "control", question.question_id))
    cycle = "".join(rng.sample(DIGITS, len(DIGITS)))
    digits = str.maketrans(cycle, cycle[1:] + cycle[0])
    turn = rng.randrange(1, max(2, len(question.choices)))
    choices = [*question.choices[turn:], *question.choices[:turn]]
    return render_question(question.text, choices).translate(digits)


def continue_texts(
    pairs: Sequence[Pair], sampler: Sampler, *, prompt_tokens: int, progress: Progress = no_progress
) -> list[Continuation]:
    """Let the model continue both texts of each pair from every share; returns a row for each.

    A pair is left out if one of its texts has more than `prompt_tokens` tokens, or a single one. Raises UsageError if
    no pair is left.
    """
    tokenizer, cases = sampler.tokenizer, []
    for pair in pairs:
        texts = {False: pair.text, True: pair.control}
        token_ids = {side: tokenizer.render([{"role": "user", "content": text}], PLAIN) for side, text in texts.items()}
        if all(2 <= len(tokens) <= prompt_tokens for tokens in token_ids.values()):
            cases += [
                (pair.question_id, is_control, share, tokens[:place], tokens[place:])
                for is_control, tokens in token_ids.items()
                for share in SHARES
                for place in [min(len(tokens) - 1, max(1, round(share * len(tokens))))]
            ]
    if not cases:
        raise UsageError(
            f"none of {len(pairs):,} pairs of a question and its control has 2 to {prompt_tokens:,} tokens",
            hint="raise prompt_tokens in --config, or name another benchmark",
        )
    groups = [
        PromptGroup(group_id=f"{name} {is_control} {share}", token_ids=beginning, seeds=[0], max_tokens=len(rest))
        for name, is_control, share, beginning, rest in cases
    ]
    params = SamplingParams(temperature=0.0, max_tokens=max(len(rest) for *_, rest in cases))
    rows = []
    completions = sampler.sample(groups, params, progress=progress)
    for (name, is_control, share, beginning, rest), (completion,) in zip(cases, completions, strict=True):
        matched = count_matching(rest, completion.token_ids)
        rows.append(
            Continuation(
                question_id=name,
                is_control=is_control,
                share=share,
                completed=matched == len(rest),
                matched=matched,
                rest_tokens=len(rest),
                beginning=tokenizer.decode(beginning),
                rest=tokenizer.decode(rest),
                continuation=tokenizer.decode(completion.token_ids),
            )
        )
    return rows


def count_matching(rest: Sequence[int], continuation: Sequence[int]) -> int:
    """Number of tokens before the first that differs, at most `len(rest)`."""
    pairs = enumerate(zip(rest, continuation, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(rest), len(continuation)))


def summarise(rows: Sequence[Continuation]) -> list[dict[str, Any]]:
    """Per share of the tokens: completed questions and controls, mean matches, and the paired difference.

    All are shares from 0 to 1; `low` and `high` are the ends of the difference's 95% interval.
    """
    summaries = []
    for share in SHARES:
        sides = [[row for row in rows if row.share == share and row.is_control is side] for side in (False, True)]
        completed, control = (np.array([row.completed for row in side], dtype=np.float64) for side in sides)
        match, control_match = (float(np.mean([row.matched / row.rest_tokens for row in side])) for side in sides)
        difference = paired_difference(control, completed)
        summaries.append(
            {
                "share": share,
                "questions": difference.questions,
                "completed": float(completed.mean()),
                "control": float(control.mean()),
                "difference": difference.value,
                "low": difference.low,
                "high": difference.high,
                "match": match,
                "control_match": control_match,
            }
        )
    return summaries


def sentence_of(label: str, model: str, control: str, shares: Sequence[Mapping[str, Any]]) -> str:
    """The result in one sentence, at the share whose difference has the highest lower end."""
    row = max(shares, key=lambda share: share["low"])
    verdict = "it has seen questions of this benchmark" if row["low"] > 0 else "no sign that it has seen the benchmark"
    return (
        f"{label}: from the first {row['share']:.0%}, {model} completes {row['completed']:.1%} of "
        f"{row['questions']:,} questions and {row['control']:.1%} of {control}, a difference of "
        f"{100 * row['difference']:+.1f} points [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]: {verdict}"
    )


def stored_sentences(catalogue: Catalogue, digest: str, label: str) -> list[str]:
    """Results of the newest probes of a benchmark in the store: of the model with this digest, and of its anchors."""
    models = digests_of(catalogue, digest)
    probes = sorted(catalogue.records_of_phase(Phase.CONTAMINATION), key=lambda record: (record.created, record.key))
    newest = {record.config["model"]: record for record in probes if record.label == label}
    return [str(record.summary["said"]) for model, record in newest.items() if model in models]
