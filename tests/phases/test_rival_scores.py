"""Published scores that studies compare with the paper's: each against a plain form of its formula."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
from engine_tiny import make_checkpoint, objective_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from stock_engines import local_trainer
from test_studies import question, rollouts

from infuser_core.algorithm.advantage import centre
from infuser_core.cotrain.phases.training import by_group, train_group
from infuser_core.cotrain.studies.candidates import SCORES, Candidate, named_scores, values_by_score
from infuser_core.cotrain.studies.question_gradients import load_flat
from infuser_core.cotrain.studies.rivals import RivalData
from infuser_core.cotrain.studies.scores import bm25, cropi
from infuser_core.engines.hf.causal_lm import embed_texts
from infuser_core.schemas import InfluenceScore, Question

OBJECTIVE = objective_settings(tis_cap=None, max_tokens=1)
WORDS = ["w5", "w9", "w12", "w20", "w33", "w41", "w60"]


def texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(count)]


def stored(name: str, accuracy: float, cosine: float = 0.3, norm: float = 1.0) -> InfluenceScore:
    parts = {"score": 0.1, "cosine": 0.1, "dot": 0.1, "direction_norm": 1.0, "reference_norm": 1.0}
    return InfluenceScore(
        question_id=name, status="scored", solver_accuracy=accuracy, raw_cosine=cosine, gradient_norm=norm, **parts
    )


def candidate(
    gradient_N: np.ndarray, dev_N: np.ndarray, *, rival: RivalData | None = None, name: str = "q", accuracy: float = 0.5
) -> Candidate:
    return Candidate(
        stored=stored(name, accuracy), tokens=1.0, on_target=None, right_key=None, gradient_N=gradient_N, dev_N=dev_N,
        root_N=np.ones_like(dev_N), question=question(name), questions=[question(name)], dev=[], rival=rival,
    )  # fmt: skip


def rate(name: str, row: Candidate) -> float | None:
    return SCORES.find(name, "score")[1](row)


def test_bm25_is_its_textbook_formula() -> None:
    collection, queries = texts(12, seed=1), texts(3, seed=2)
    mean_length = sum(len(text.split()) for text in collection) / 12
    for text in collection:
        total = 0.0
        for query in queries:
            for word in set(query.split()):
                matches = sum(word in other.split() for other in collection)
                inverse = math.log(1 + (12 - matches + 0.5) / (matches + 0.5))
                count = text.split().count(word)
                bound = 1.2 * (1 - 0.75 + 0.75 * len(text.split()) / mean_length)
                total += inverse * count * 2.2 / (count + bound)
        assert bm25.bm25(text, queries, collection) == pytest.approx(total / 3)


@settings(max_examples=10)
@given(seed=st.integers(0, 50))
def test_a_projection_keeps_the_order_of_clear_cosines_and_is_linear(seed: int) -> None:
    draw = np.random.default_rng(seed)
    dev_N, noise_N = draw.normal(size=(2, 60_000))
    near, far = rate("cropi", candidate(dev_N + noise_N, dev_N)), rate("cropi", candidate(noise_N - dev_N, dev_N))
    assert near == pytest.approx(0.5**0.5, abs=0.1) and far == pytest.approx(-(0.5**0.5), abs=0.1)
    both = cropi.project(2 * dev_N - noise_N)
    assert both == pytest.approx(2 * cropi.project(dev_N) - cropi.project(noise_N))
    assert np.count_nonzero(cropi.project(dev_N)) > 2000


def test_random_depends_on_the_name_alone_and_fills_the_unit_interval() -> None:
    one_N = np.ones(2)
    draws = [rate("random_order", candidate(one_N, one_N, name=str(n), accuracy=n / 400)) for n in range(400)]
    assert draws[:2] == [rate("random_order", candidate(-one_N, one_N, name=str(n))) for n in range(2)]
    assert all(value is not None and 0 <= value < 1 for value in draws)
    assert np.mean(draws) == pytest.approx(0.5, abs=0.06)  # type: ignore[arg-type]


def test_costly_scores_are_those_of_their_plain_formulas(tmp_path: Path) -> None:
    checkpoint, trainer = make_checkpoint(tmp_path), local_trainer()
    trainer.load(checkpoint)

    def gradient(groups: list) -> np.ndarray:  # type: ignore[type-arg]
        trainer.zero_grad()
        trainer.forward_backward(groups, OBJECTIVE.constants([]), denominator=1)
        trainer.keep_gradient(tmp_path / "one.safetensors")
        return load_flat(tmp_path / "one.safetensors")

    answers = [row for n, name in enumerate("ab") for row in rollouts(name, seed=n)]
    old = [row for n, name in enumerate("ab") for row in rollouts(name, seed=7 + n)]
    groups, old_groups = by_group(answers), by_group(old)
    dev_N = gradient(
        [train_group(rows, centre([row.reward for row in rows])) for rows in by_group(rollouts("d", seed=3)).values()]
    )
    (tmp_path / "one.safetensors").rename(tmp_path / "dev.safetensors")
    unit, plain = {}, {}
    for name, rows in groups.items():
        plain[name] = gradient([train_group(rows, centre([row.reward for row in rows]))])
        unit[name] = plain[name] / np.linalg.norm(plain[name])
    accuracy = {name: np.mean([row.reward for row in rows]) for name, rows in groups.items()}
    learnability = {name: p * (1 - p) for name, p in accuracy.items()}
    words = dict(zip(groups, texts(len(groups), seed=5), strict=True))
    dev = [Question(question_id="d", text=words[next(iter(groups))], choices=[], answer="", verifier="choice")]
    questions = [
        Question(question_id=name, text=text, choices=[], answer="", verifier="choice") for name, text in words.items()
    ]
    own = [stored(name, float(accuracy[name]), norm=float(np.linalg.norm(plain[name]))) for name in groups]
    arguments = (questions, own, answers, dev, [], trainer, checkpoint, OBJECTIVE)
    places = {"reference": tmp_path / "dev.safetensors", "workspace": tmp_path}
    values = values_by_score(named_scores(*arguments, **places, old_rollouts=old))
    for name in groups:
        others = [learnability[name] * learnability[o] * float(unit[name] @ unit[o]) for o in groups if o != name]
        assert values["learnalign"][name] == pytest.approx(np.mean(others), rel=1e-3, abs=1e-6)
        old_N = gradient([train_group(old_groups[name], centre([row.reward for row in old_groups[name]]))])
        expected = rate("cropi", candidate(old_N, dev_N))
        assert values["cropi_old"][name] == pytest.approx(expected, abs=1e-5)
    name, rows = next(iter(groups.items()))
    dots = []
    for row, advantage in zip(rows, centre([row.reward for row in rows]), strict=True):
        # The objective is a mean over the answers.
        dots.append(float(gradient([train_group([row], [advantage])]) @ dev_N) / len(rows))
    assert sum(dots) == pytest.approx(float(plain[name] @ dev_N), rel=1e-3)
    assert values["ippo"][name] == pytest.approx(sum(dot for dot in dots if dot > 0), rel=1e-3)
    # The first question is the dev question.
    assert values["embedding"][next(iter(groups))] == pytest.approx(1.0)
    assert max(values["embedding"].values()) <= 1.0 + 1e-9
    # Without the anchor's answers, scores that need more than one pass are left out, and the others are the same.
    cheap = values_by_score(named_scores(*arguments, **places))
    assert {*values} - {*cheap} == {"learnalign", "ippo", "cropi_old", "embedding"}
    assert cheap == {name: values[name] for name in cheap}


def test_embeddings_have_length_one_and_texts_of_other_words_differ(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    units_QD = np.array(embed_texts(tmp_path / "anchor", ["w5", "w9 w12", "w5"]))
    assert np.linalg.norm(units_QD, axis=1) == pytest.approx(np.ones(3))
    assert units_QD[0] == pytest.approx(units_QD[2]) and abs(units_QD[0] @ units_QD[1]) < 0.999
