"""Runs with an adapter, another anchor, another optimizer or an adaptive budget: each setting gives what it says."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from crash_points import begun, content, mismatches, orphans, repeated
from launcher import Finished, Launcher, SmallRun, copy_store
from peft import AutoPeftModelForCausalLM, PeftModel
from small_store import query
from transformers import AutoModelForCausalLM

from infuser_core.store.adapter_files import CONFIG, WEIGHTS
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

LORA = ("--set", "cotrain.adapter={type: lora, rank: 8, alpha: 16}")
KILLS = (
    "base:before_rename",
    "anchor:after_rename",
    "score_influence:inside",
    "update_generator:before_rename",
    "update_solver:inside",
    "update_solver:before_rename:2",
)
REACHED = ("score_influence", "update_generator", "update_solver")
"""Phases that a killed run computes again; it shares the others, whose keys name these, with the undisturbed run."""
Command = Callable[..., Finished]


def folder(store: Path, phase: str, iteration: int) -> Path:
    (entry,) = [e for e in Journal(store, "lora").latest() if (e.phase, e.iteration) == (phase, iteration)]
    return store / "artifacts" / phase / entry.key


@pytest.fixture(scope="module")
def finished(launch: Launcher, small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a finished run named lora. Look, but do not write into it."""
    store = begun(small_run, tmp_path_factory.mktemp("lora") / "store")
    ended = launch(*small_run.arguments[:-1], "lora", *LORA, store=store)
    assert ended.code == 0, ended.err
    return store


@pytest.mark.slow
def test_killed_anywhere_it_ends_in_the_same_bits(
    launch: Launcher, small_run: SmallRun, finished: Path, tmp_path: Path
) -> None:
    store = copy_store(finished, tmp_path / "store", without=("base", "anchor", *REACHED))
    arguments = [*small_run.arguments[:-1], "lora", *LORA]
    for kill in KILLS:
        assert launch(*arguments, store=store, INFUSER_CRASH_AT=kill).code == -signal.SIGKILL, kill
        arguments = ["resume", "lora"]
    ended = launch(*arguments, store=store)
    assert ended.code == 0, ended.err
    assert list(orphans(store)) == []
    assert mismatches(content(finished, "lora"), content(store, "lora")) == []


@pytest.mark.slow
def test_its_checkpoints_are_adapters_and_peft_finds_their_base(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = folder(finished, "update_solver", 1)
    names = {path.name for path in solver.iterdir()}
    assert {CONFIG, WEIGHTS} < names and not any(name.startswith("model") for name in names)
    (base,) = (finished / "artifacts" / "base").iterdir()
    assert (solver / WEIGHTS).stat().st_size < 0.2 * (base / "model.safetensors").stat().st_size
    monkeypatch.chdir(solver)
    model = AutoPeftModelForCausalLM.from_pretrained(".", dtype=torch.float32)
    assert model.peft_config["default"].r == 8


@pytest.mark.slow
def test_exports_merged_and_alone_say_the_same_under_transformers_and_peft(
    launch: Launcher, finished: Path, tmp_path: Path
) -> None:
    exported = []
    for place, options in (("merged", []), ("alone", ["--adapter"])):
        out = str(tmp_path / place)
        ended = launch("export", "lora", "--iteration", "2", "--out", out, *options, store=finished)
        assert ended.code == 0, ended.err
        exported.append(tmp_path / place)
    merged = AutoModelForCausalLM.from_pretrained(exported[0], dtype=torch.float32)
    assert not (exported[0] / CONFIG).exists()
    base = json.loads((exported[1] / CONFIG).read_text())["base_model_name_or_path"]
    alone = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), exported[1])
    assert {path.name for path in exported[1].glob("*.safetensors")} == {WEIGHTS}
    assert "PeftModel.from_pretrained" in (exported[1] / "README.md").read_text()
    for prompt in ([[5, 9, 11, 40]], [[7, 7, 30, 41, 300]], [[2, 60, 12]]):
        tokens = torch.tensor(prompt)
        said = [
            model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=12)
            for model in (merged, alone)
        ]
        assert torch.equal(*said)
    refused = launch("export", "small", "--iteration", "1", "--out", str(tmp_path / "no"), "--adapter", store=finished)
    assert refused.code == 2


@pytest.mark.slow
def test_pruned_adapters_are_computed_again_and_a_damaged_base_is_found(
    launch: Launcher, finished: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(finished, store)
    before = content(store, "lora")
    assert launch("gc", "--apply", "--keep-full", "1", "--every", "0", store=store).code == 0
    assert not (folder(store, "update_solver", 0) / WEIGHTS).exists()
    assert all((base / "model.safetensors").is_file() for base in (store / "artifacts" / "base").iterdir())
    assert launch("doctor", "lora", store=store).code == 0
    for iteration in ("0", "1"):
        ended = launch("doctor", "lora", "--repair", "--iteration", iteration, store=store)
        assert ended.code == 0, ended.err
    assert mismatches(before, content(store, "lora")) == []
    (base,) = (store / "artifacts" / "base").iterdir()
    weights = bytearray((base / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (base / "model.safetensors").write_bytes(weights)
    refused = launch("export", "lora", "--iteration", "2", "--out", str(tmp_path / "out"), store=store)
    assert refused.code == 3 and "model.safetensors" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("cotrain.adapter={targets: [nope]}",), "no linear layer nope"),
        (("cotrain.adapter={targets: [q_proj, lm_head]}",), "no linear layer lm_head"),
        (("cotrain.adapter={rank: 0}",), "cotrain.adapter.rank"),
        (("cotrain.adapter={type: dora}",), "cotrain.adapter.type"),
        (("cotrain.adapter={}", "engine.trainer=deepspeed"), "cotrain.adapter needs engine.trainer local"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, settings: tuple[str, ...], said: str
) -> None:
    (tmp_path / "store").mkdir()
    chosen = [word for setting in settings for word in ("--set", setting)]
    refused = launch(*small_run.arguments[:-1], "lora", *chosen, store=tmp_path / "store")
    assert refused.code == 2 and said in refused.err and "Traceback" not in refused.err
    assert not list((tmp_path / "store").glob("artifacts/*/*"))


@pytest.mark.slow
def test_a_fork_keeps_the_adapters(launch: Launcher, finished: Path) -> None:
    refused = launch("run", "--fork", "lora@1", "--set", "cotrain.adapter.rank=4", store=finished)
    assert refused.code == 2 and "cotrain.adapter.rank cannot change at iteration 1" in refused.err


KL = ("--set", "cotrain.loss.kl=0.1")


@pytest.mark.slow
def test_killed_near_the_anchor_it_ends_in_the_same_bits(launch: Launcher, small_run: SmallRun, tmp_path: Path) -> None:
    arguments = [*small_run.arguments[:-1], "near", *KL]
    # The setting enters updates alone: what comes before the first one is the small run's.
    stores = [copy_store(small_run.root, tmp_path / place) for place in ("whole", "killed")]
    assert (ended := launch(*arguments, store=stores[0])).code == 0, ended.err
    for kill in ("update_generator:inside", "update_solver:inside", "update_solver:before_rename"):
        assert launch(*arguments, store=stores[1], INFUSER_CRASH_AT=kill).code == -signal.SIGKILL, kill
        arguments = ["resume", "near"]
    assert (ended := launch(*arguments, store=stores[1])).code == 0, ended.err
    assert list(orphans(stores[1])) == []
    assert mismatches(*(content(store, "near") for store in stores)) == []
    for entry in Journal(stores[0], "near").latest():
        record = json.loads((stores[0] / "artifacts" / entry.phase / entry.key / MANIFEST).read_text())
        assert ("anchor" in record["recipe"]["inputs"]) == entry.phase.startswith("update_")


@pytest.mark.slow
def test_a_reward_may_compare_with_the_dev_questions(launch: Launcher, small_run: SmallRun, tmp_path: Path) -> None:
    store = begun(small_run, tmp_path / "store")
    arguments = [*small_run.arguments[:-1], "similar", "--set", "cotrain.reward.name=bm25"]
    assert (ended := launch(*arguments, store=store)).code == 0, ended.err
    records = {
        entry.phase: json.loads((store / "artifacts" / entry.phase / entry.key / MANIFEST).read_text())
        for entry in Journal(store, "similar").latest()
    }
    assert records["update_generator"]["recipe"]["inputs"]["dev"] and "dev_gradient" not in records
    assert len(query(store, "select distinct reward from generator_scores", run="similar")) > 2


@pytest.mark.slow
def test_a_study_of_scores_refuses_scores_without_a_direction(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
) -> None:
    store = begun(small_run, tmp_path / "store")
    arguments = [*small_run.arguments[:-1], "steps", "--set", "cotrain.influence=measured"]
    assert (ended := launch(*arguments, store=store)).code == 0, ended.err
    ended = launch("study", "prediction", "steps", store=store)
    assert ended.code == 2 and "cotrain.influence = measured stores no direction" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("sgd", "cotrain.optimizer.name=sgd"),
        ("muon", "cotrain.optimizer.name=muon"),
        ("measured", "cotrain.influence=measured"),
    ],
)
def test_killed_under_another_optimizer_or_score_it_ends_in_the_same_bits(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, name: str, setting: str
) -> None:
    arguments = [*small_run.arguments[:-1], name, "--set", setting]
    stores = [begun(small_run, tmp_path / "whole"), tmp_path / "killed"]
    assert (ended := launch(*arguments, store=stores[0])).code == 0, ended.err
    copy_store(stores[0], stores[1], without=REACHED)
    for kill in ("score_influence:inside", "update_solver:inside:2", "update_generator:before_rename"):
        assert launch(*arguments, store=stores[1], INFUSER_CRASH_AT=kill).code == -signal.SIGKILL, kill
        arguments = ["resume", name]
    assert (ended := launch(*arguments, store=stores[1])).code == 0, ended.err
    assert list(orphans(stores[1])) == []
    assert mismatches(*(content(store, name) for store in stores)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("cotrain.optimizer.name=lion", "cotrain.optimizer.name: no optimizer 'lion'"),
        ("cotrain.optimizer.name=lion", "one of adamw, adamw8bit, muon, sgd; or my_package.my_optimizer"),
        ("cotrain.optimizer.constants={blend: 0.5}", "cotrain.optimizer: constants.blend: adamw has only none"),
        ("cotrain.optimizer={name: outside.lion, constants: {blend: a}}", "constants.blend = 'a': expected a float"),
        ("cotrain.optimizer.momentum=0.5", "adamw has no momentum"),
        ("cotrain.optimizer={name: sgd, beta2: 0.5}", "sgd has no beta2"),
        ("cotrain.optimizer={name: sgd, momentum: 1}", "cotrain.optimizer.momentum"),
        ("engine.probe=fast", "engine.probe = 'fast': no longer a setting"),
        ("cotrain.optimizer.name=muon engine.trainer=deepspeed", "needs engine.trainer local"),
    ],
)
def test_what_cannot_be_is_refused(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, settings: str, said: str
) -> None:
    (tmp_path / "store").mkdir()
    # A space followed by a key begins the next setting.
    parts = settings.replace(" engine", "\nengine").split("\n")
    chosen = [word for setting in parts for word in ("--set", setting)]
    refused = launch(*small_run.arguments[:-1], "no", *chosen, store=tmp_path / "store")
    assert refused.code == 2 and said in refused.err and "Traceback" not in refused.err


BANDIT = ["--set", "cotrain.budget.mode=bandit", "--set", "cotrain.budget.by=source_id", "--name", "shared"]


@pytest.fixture(scope="module")
def store(launch: Launcher, small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's store; it was killed in the second allocation and resumed."""
    store = copy_store(small_run.root, tmp_path_factory.mktemp("budget") / "store")
    arguments = [*small_run.arguments[:3], "--set", "cotrain.iterations=3", *BANDIT]
    killed = launch(*arguments, store=store, INFUSER_CRASH_AT="allocate:before_commit")
    assert killed.code == -signal.SIGKILL, killed
    ended = launch(*arguments, store=store)
    assert ended.code == 0, ended.err
    return store


def rows(store: Path, sql: str) -> list[dict]:
    lens = Lens(Store(store), runs=["shared"])
    try:
        return lens.query(sql)
    finally:
        lens.close()


def test_every_batch_is_what_its_allocation_says(store: Path):
    planned = rows(store, "select iteration, arm, count as n from allocations where count > 0 order by all")
    drawn = rows(
        store,
        """select r.iteration, d.source_id as arm, count(distinct r.group_id) as n
        from rollouts r join documents d on d.document_id = r.group_id where r.role = 'generator' group by all
        order by all""",
    )
    assert planned == drawn
    assert {row["iteration"] for row in planned} == {0, 1, 2}


def test_an_allocation_reads_the_scores_before_it(store: Path):
    refs = {ref.key: ref for ref in Store(store).refs()}
    found = {(entry.phase, entry.iteration): refs[entry.key] for entry in Journal(store, "shared").latest()}
    inputs = Store(store).manifest(found["allocate", 2]).recipe["inputs"]
    assert set(inputs) == {"pool"} | {
        f"{name}{ago}" for name in ("allocation", "questions", "scores") for ago in (1, 2)
    }
    assert inputs["scores1"] == found["score_influence", 1].id
    assert inputs["scores2"] == found["score_influence", 0].id
    measured = rows(store, "select iteration, sum(pulls)::int as pulls from allocations group by all order by all")
    assert [row["pulls"] > 0 for row in measured] == [False, True, True]
    assert (
        Store(store).manifest(found["generate_questions", 2]).recipe["inputs"]["allocation"] == found["allocate", 2].id
    )


def test_nothing_is_computed_twice_after_a_kill(launch: Launcher, small_run: SmallRun, store: Path):
    assert repeated(store, "shared") == []
    told = launch("resume", "shared", "--dry-run", store=store)
    assert told.code == 0, told.err
    assert "stages are cached" in told.out.splitlines()[0]


def test_a_plan_knows_the_stage(launch: Launcher, small_run: SmallRun, store: Path):
    other = ["--set", "cotrain.iterations=3", *BANDIT[:-1], "other", "--set", "cotrain.budget.exploration=3"]
    told = launch(*small_run.arguments[:3], *other, "--dry-run", store=store)
    assert told.code == 0, told.err
    assert "allocate, iteration 0" in told.out
    assert "cotrain.budget.exploration" in told.out


def test_the_report_shows_the_shares(store: Path):
    report = (store / "runs" / "shared" / "report" / "report.md").read_text()
    assert "## Budget of documents" in report
    assert "doi:10.5555/nano.1" in report.partition("## Budget of documents")[2]


def test_why_explains_the_stage(launch: Launcher, store: Path):
    key = rows(store, "select artifact_key from run_artifacts where phase = 'allocate' and iteration = 2")
    told = launch("why", key[0]["artifact_key"], store=store)
    assert told.code == 0, told.err
    assert "score_influence" in told.out
