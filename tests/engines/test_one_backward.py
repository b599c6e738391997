"""Where the solver's update is one optimizer step, scoring and update may share one backward: the same checkpoint."""

from pathlib import Path

from engine_tiny import make_checkpoint, objective_settings
from safetensors.torch import load_file
from test_influence_study import rollouts

from infuser_core.config.roles import OptimizerSettings
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.phases import dev_gradient, score_influence, update_solver
from infuser_core.phases.score_influence import ScoreSettings
from infuser_core.phases.training import UpdateSettings
from infuser_core.schemas import Question

OBJECTIVE = objective_settings()
DEV = dev_gradient.DevSettings(objective=OBJECTIVE, mean=0.0)


def questions() -> list[Question]:
    names = dict.fromkeys(row.group_id for row in rollouts("q", seed=0))
    blank = {"text": "", "choices": [], "answer": "", "verifier": "choice", "domain": "", "subdomain": ""}
    return [Question(question_id=n, document_id="d", rollout_id="", reasoning="", **blank) for n in names]


def updated(folder: Path, *, share: bool) -> tuple[dict[str, object], float]:
    folder.mkdir()
    (folder / "out").mkdir()
    trainer = LocalTrainer()
    before = make_checkpoint(folder)
    trainer.load(before)
    norm = dev_gradient.dev_gradient(rollouts("d", seed=1), trainer, DEV, workspace=folder).facts.norm
    scored = score_influence.score_influence(
        questions(),
        rollouts("q", seed=0),
        trainer,
        ScoreSettings(objective=OBJECTIVE, mode="preconditioned_cosine", probe=True, share_backward=share, left_out=[]),
        reference=folder / dev_gradient.FILE,
        reference_norm=norm,
        workspace=folder,
    )
    step = UpdateSettings(
        learning_rate=1e-2,
        minibatch=8,
        advantage="mean_centred",
        objective=OBJECTIVE,
        optimizer=OptimizerSettings(),
        kl=0.0,
    )
    settings = update_solver.SolverSettings(step=step, band=None, ranks=False, mid_eos_penalty=0.0, left_out=[])
    out = folder / "out"
    if share:
        kept = folder / score_influence.SHARED
        done = update_solver.finish_shared_step(scored.shared[0], kept, trainer, settings, workspace=out, first_step=0)
    else:
        assert not scored.shared
        done = update_solver.update_solver(
            questions(), rollouts("q", seed=0), trainer, settings, workspace=out, before=before
        )
    (update,) = done.updates
    return load_file(out / "model.safetensors"), update.gradient_norm


def test_one_backward_gives_the_two_pass_checkpoint(tmp_path: Path) -> None:
    shared, shared_norm = updated(tmp_path / "shared", share=True)
    apart, norm = updated(tmp_path / "apart", share=False)
    assert abs(shared_norm - norm) <= 1e-5 * norm
    # AdamW's first step is about sign(g): compare where the gradient is not rounding noise, by the whole step.
    differing = sum(float((shared[n] - apart[n]).abs().gt(1e-5).sum()) for n in apart)
    assert differing <= 0.001 * sum(apart[n].numel() for n in apart)
