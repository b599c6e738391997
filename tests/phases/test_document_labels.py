"""Labels of a teacher that reads the document: its majority rewards the solver, which sees the question alone."""

from launcher import Launcher, SmallRun
from solver_rows import answers, question

from infuser_core.cotrain.phases.rollout_questions import PseudoLabel, relabel
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store


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


def test_a_run_asks_the_teacher_and_the_solver(launch: Launcher, small_run: SmallRun, tmp_path):
    small = [word for word in small_run.arguments if word not in ("--name", "small")]
    until = ["--set", "cotrain.aims=[]", "--until", "rollout_questions@0"]
    ended = launch(*small, "configs/baseline/darc.yaml", "--name", "taught", *until, store=tmp_path)
    assert ended.code == 0, ended.err
    store = Store(tmp_path)
    keys = {entry.key for entry in Journal(tmp_path, "taught").latest()}
    (ref,) = [ref for ref in store.refs() if ref.kind == "rollout_questions" and ref.key in keys]
    labels = store.rows(ref, "pseudo_labels", PseudoLabel)
    assert labels and "pool" in store.manifest(ref).recipe["inputs"]
    assert {label.samples for label in labels} == {4}
