"""Right keys are estimated every iteration, by the labeller or by the solver's majority, and too few are said aloud."""

from dataclasses import replace
from pathlib import Path

import pytest
from crash_points import begun
from launcher import Launcher, SmallRun
from places import CONFIGS
from report_runs import row
from solver_rows import question
from test_endpoint_replies import said, server

from infuser_core.config.overlays import load
from infuser_core.cotrain.phases.check_keys import check_keys, settings_of
from infuser_core.cotrain.phases.parts.health import key_warning
from infuser_core.engines.endpoint import Address, ChatSampler, Endpoint
from infuser_core.engines.fake import ScriptedSampler
from infuser_core.evaluation.statistics.key_accuracy import key_accuracy, majority_votes
from infuser_core.schemas import KeyAccuracy, Question, QuestionLabel, Rollout
from infuser_core.store.store import Store

CONFIG = load([CONFIGS / "nano.yaml"])


ASKED = [row(Question, question_id=name, rollout_id="r") for name in "abc"] + [row(Question, question_id="given")]


def answers(name: str, *verdicts: str) -> list[Rollout]:
    return [row(Rollout, group_id=name, verdict=verdict) for verdict in verdicts]


def test_a_majority_is_more_than_half_of_what_can_be_told():
    rollouts = [
        *answers("a", "correct", "correct", "wrong", "unverified"),
        *answers("b", "correct", "wrong", "no_answer"),
        *answers("c", "unverified", "no_answer"),
        *answers("given", "correct"),
    ]
    assert majority_votes(ASKED, rollouts) == [True, False]


def test_the_labeller_goes_before_the_majority_and_an_unknown_key_is_not_told():
    labels = [
        QuestionLabel(question_id=name, topic="t", key=key)
        for name, key in zip("ab", ("sound", "unknown"), strict=True)
    ]
    (found,) = key_accuracy(labels, [False, False])
    assert (found.told_by, found.questions, found.accuracy) == ("labels", 1, 1.0)
    (found,) = key_accuracy(labels[1:], [True, False])
    assert (found.told_by, found.questions, found.accuracy) == ("majority", 2, 0.5)
    assert found.low < 0.5 < found.high
    assert key_accuracy([], []) == []


@pytest.mark.parametrize(("right", "said"), [(4, True), (10, False)])
def test_only_an_interval_below_the_floor_is_complained_about(right: int, said: bool):
    (found,) = key_accuracy([], [True] * right + [False] * (30 - right))
    assert bool(key_warning(found, 0.4)) == said and not key_warning(found, 0.0)


def test_a_run_keeps_the_estimate_of_every_iteration(small_run: SmallRun):
    refs = [ref for ref in small_run.store.refs() if ref.kind == "rollout_questions"]
    for ref in refs:
        (found,) = small_run.store.rows(ref, "key_accuracies", KeyAccuracy)
        summary = small_run.store.manifest(ref).summary
        assert found.told_by == "labels" and summary["key_accuracy"] == round(found.accuracy, 4)
    assert refs


WRITTEN = [
    replace(question(name, answer=key, verifier="choice"), rollout_id="r", text=f"{name}?", choices=["x", "y"])
    for name, key in zip("abcd", "ABAA", strict=True)
]


GIVEN = replace(question("given", answer="A", verifier="choice"), rollout_id="")


def test_a_strong_solver_says_how_many_keys_are_right():
    solver = ScriptedSampler(reply=lambda prompt, seed: "I do not know" if "d?" in prompt else "\\boxed{A}")
    settings = settings_of(CONFIG, solver={"model": "m"})
    rollouts, keys = check_keys([*WRITTEN, GIVEN], solver, settings, checkpoint_id="m", seed=1, iteration=0)
    assert [answer.group_id for answer in rollouts] == list("abcd"), "one answer each, and none to given ones"
    (found,) = keys
    assert (found.told_by, found.questions) == ("strong solver", 3), "no answer tells nothing"
    assert found.accuracy == pytest.approx(2 / 3)


def test_a_server_is_asked_like_a_model_of_files():
    with server(lambda body, number: said("\\boxed{B}")) as (url, log):
        endpoint = Endpoint(Address(model="m", url=url), concurrency=2)
        settings = settings_of(CONFIG, solver={"model": "m"})
        _, keys = check_keys(WRITTEN, ChatSampler(endpoint.replies), settings, checkpoint_id="m", seed=1, iteration=0)
        endpoint.close()
    assert keys[0].accuracy == 0.25
    assert {body["temperature"] for body in log.bodies} == {0.0}


def test_a_run_asks_the_strong_solver_in_every_iteration(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = begun(small_run, tmp_path / "store")
    with server(lambda body, number: said("\\boxed{A}")) as (url, log):
        model = f"cotrain.key_solver={{type: endpoint, model: m, url: '{url}'}}"
        small = [word for word in small_run.arguments if word not in ("--name", "small")]
        ended = launch(*small, "--name", "watched", "--set", model, "--set", "cotrain.iterations=1", store=store)
    assert ended.code == 0, ended.err
    (ref,) = [ref for ref in Store(store).refs() if ref.kind == "check_keys"]
    (found,) = Store(store).rows(ref, "key_accuracies", KeyAccuracy)
    assert found.questions == len(log.bodies) > 0
