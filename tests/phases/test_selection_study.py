"""The arms of a selection are equally large, best and worst by their rule, and ties fall by a draw of the seed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_tiny import make_checkpoint
from hypothesis import given
from hypothesis import strategies as st
from stock_engines import local_trainer
from test_influence_study import rollouts, settings

from infuser_core.cotrain.phases.training import by_group, train_group
from infuser_core.cotrain.studies.candidates import PAPER, NamedScore
from infuser_core.cotrain.studies.effects import exact_measure
from infuser_core.cotrain.studies.selection import (
    WORST,
    ArmPlan,
    Reached,
    SelectionArm,
    SelectionSettings,
    datamodelling,
    run_arms,
    select_questions,
    summary,
)
from infuser_core.protocols import Trainer

SETTINGS = SelectionSettings(step=None, share=0.25, steps=1, draws=3, samples=1, ranked=True)  # type: ignore[arg-type]


def scores(**values: list[float]) -> list[NamedScore]:
    return [
        NamedScore(question_id=f"q{place}", name=name, value=value, cell="")
        for name, own in values.items()
        for place, value in enumerate(own)
    ]


def by_name(made: list[ArmPlan]) -> dict[str, list[str]]:
    return {f"{each.arm}{each.draw or ''}": list(each.questions) for each in made}


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.integers(0, 5))
def test_arms_have_one_size_and_the_score_orders_them(cosines: list[float], seed: int) -> None:
    made = by_name(select_questions(scores(preconditioned_cosine=cosines), SETTINGS, seed=seed))
    assert len({len(names) for names in made.values()}) == 1
    known = {f"q{place}": value for place, value in enumerate(cosines)}
    rest = [known[name] for name in known if name not in made[PAPER]]
    assert min(known[name] for name in made[PAPER]) >= max(rest, default=-2)
    assert max(known[name] for name in made[WORST]) <= min(
        (known[name] for name in known if name not in made[WORST]), default=2
    )
    # Questions keep the order of the scores, so that a step adds up the same numbers in the same order.
    assert all(names == [name for name in known if name in names] for names in made.values())


def test_ties_depend_on_the_seed_alone() -> None:
    named = scores(preconditioned_cosine=[0.5] * 40)
    first, again, other = (by_name(select_questions(named, SETTINGS, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first["random"] != first["random1"] != first["random2"]
    # Equal scores are no reason to be both the best and the first in the list.
    assert first[PAPER] != [f"q{n}" for n in range(10)]


def test_every_score_has_an_arm_of_its_best() -> None:
    up, down = [n / 10 for n in range(8)], [-n / 10 for n in range(8)]
    made = by_name(select_questions(scores(preconditioned_cosine=up, raw_cosine=down), SETTINGS, seed=0))
    assert made[PAPER] == ["q6", "q7"] and made[WORST] == made["raw_cosine"] == ["q0", "q1"]


def arm(draw: int, accuracy: float, change: float, questions: list[str]) -> SelectionArm:
    return SelectionArm(
        arm="random", draw=draw, questions=questions, accuracy=accuracy, change=change, change_low=0, change_high=0
    )


def test_random_arms_are_one_line_with_their_lowest_and_highest() -> None:
    (line,) = summary([arm(0, 0.5, -0.1, ["q0"]), arm(1, 0.7, 0.1, ["q0"])])
    assert (line["arms"], line["accuracy"], line["low"], line["high"]) == (2, pytest.approx(0.6), -0.1, 0.1)
    assert np.isclose(line["change"], 0.0)  # type: ignore[arg-type]


def test_the_datamodelling_score_ranks_the_random_arms_alone() -> None:
    named = scores(preconditioned_cosine=[float(n) for n in range(8)], raw_cosine=[-float(n) for n in range(8)])
    rows = [arm(n, 0.1 * n, 0.0, [f"q{n}"]) for n in range(8)]
    alone = select_questions(named, replace(SETTINGS, ranked=False), seed=0)
    assert {each.arm for each in alone} == {"random"}
    odd = replace(rows[0], arm="short", accuracy=1.0)
    found = {row.predictor: row.spearman for row in datamodelling([*rows, odd], named)}
    assert found == {PAPER: 1.0, "raw_cosine": -1.0}


class InMemory(list[Reached]):
    """Rows that outlive a killed study."""

    def rows(self) -> list[Reached]:
        return [*self]

    def add(self, rows: Sequence[Reached]) -> None:
        self.extend(rows)


def test_a_killed_selection_trains_no_arm_twice(tmp_path: Path) -> None:
    checkpoint, answers = make_checkpoint(tmp_path), rollouts("q", seed=0)
    names = [*by_group(answers)]
    named = [NamedScore(question_id=each, name=PAPER, value=float(n), cell="") for n, each in enumerate(names)]
    step = replace(SETTINGS, step=settings(1e-3), share=1 / len(names), draws=1)
    trainer, asked = local_trainer(), exact_measure([train_group(answers[:1], [0.0])])
    measured: list[int] = []

    def study(kept: InMemory, *, most: int) -> list[SelectionArm]:
        def measure(solver: Trainer) -> np.ndarray:
            if len(measured) == most:
                raise KeyboardInterrupt
            measured.append(len(measured))
            return asked(solver)

        return run_arms(named, answers, trainer, checkpoint, measure, step, seed=1, saved_rows=kept)

    whole = study(InMemory(), most=9)
    count, kept = len(measured), InMemory()
    measured.clear()
    with pytest.raises(KeyboardInterrupt):
        study(kept, most=2)
    assert study(kept, most=9) == whole and len(measured) == count > 2
    assert whole[0].change == 0 != whole[1].change
