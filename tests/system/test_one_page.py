"""The method on one page and the pipeline are one: the same texts, scores and weights over two iterations of `nano`.

The comparison runs in float64. In float32 the texts are also equal, and the rest differs by rounding: the page pads its
batches, the pipeline packs them.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from launcher import Launcher
from places import ROOT
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from infuser_core.config.phase_table import Phase
from infuser_core.engines.hf.norms import compute_in_own_dtype
from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

ITERATIONS = 2
PAGE = ROOT / "examples" / "one_page"


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    sys.path.insert(0, str(PAGE))
    import infuser

    yield infuser
    sys.path.remove(str(PAGE))
    del sys.modules["infuser"]


@pytest.fixture(scope="module")
def documents(page: ModuleType) -> list[dict[str, str]]:
    return [json.loads(line) for line in page.POOL.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def store(launch: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with a run of the pipeline in float64, named `pipeline`."""
    folder = tmp_path_factory.mktemp("store")
    changes = (f"cotrain.iterations={ITERATIONS}", f"cotrain.validate_every={ITERATIONS}", "engine.dtype=float64")
    settings = [part for change in (*changes, "evaluate.benchmarks=[]") for part in ("--set", change)]
    ended = launch("run", "nano", "--name", "pipeline", *settings, store=folder)
    assert ended.code == 0, ended.err
    return Store(folder)


@pytest.fixture(scope="module")
def rows(store: Store) -> Iterator[Lens]:
    with closing(Lens(store, runs=["pipeline"])) as lens:
        yield lens


def by_id(rows: Lens, columns: str, table: str) -> dict[tuple[int, str], dict[str, Any]]:
    """Rows of the co-training by iteration and their first column."""
    first = columns.split(",")[0]
    statement = f"select iteration, {columns} from {table} where iteration >= 0"
    return {(row["iteration"], row[first]): row for row in rows.query(statement)}


def test_the_documents_of_the_page_are_the_pool_of_the_pipeline(documents: list[dict[str, str]], store: Store):
    (key,) = {entry.key for entry in Journal(store.root, "pipeline").latest() if entry.phase == Phase.POOL}
    pool = pq.read_table(store.root / "artifacts" / Phase.POOL / key / "documents.parquet")
    assert documents == pool.select(["document_id", "text"]).to_pylist()


def test_texts_scores_and_weights_are_those_of_the_pipeline(
    page: ModuleType, documents: list[dict[str, str]], store: Store, rows: Lens
):
    anchor = AutoModelForCausalLM.from_pretrained(page.anchor_path(page.WORLD), dtype=torch.float64).eval()
    compute_in_own_dtype(anchor)
    sampled = by_id(rows, "rollout_id, token_ids, sampler_logprobs, text, reward", "rollouts")
    rewarded = by_id(rows, "rollout_id, reward, advantage", "generator_scores")
    scored = by_id(rows, "question_id, score", "scores")
    keys = {(entry.phase, entry.iteration): entry.key for entry in Journal(store.root, "pipeline").latest()}
    for number, iteration in enumerate(page.co_train(documents, ITERATIONS, anchor)):
        answers = {**iteration.dev_answers, **iteration.answers}
        written = {f"{number}/{name}": group for name, group in iteration.texts.items()}
        for name, group in [*answers.items(), *written.items()]:
            for index, row in enumerate(group):
                other = sampled.pop((number, f"{name}/{index}"))
                assert (row.tokens, row.text) == (list(other["token_ids"]), other["text"])
                assert row.logprobs == list(other["sampler_logprobs"])
                if name in answers:
                    assert row.reward == other["reward"]
        for name, score in iteration.scores.items():
            assert score == pytest.approx(scored.pop((number, name))["score"], abs=1e-9)
        for name, group in written.items():
            for index, row in enumerate(group):
                other = rewarded.pop((number, f"{name}/{index}"))
                assert row.reward == pytest.approx(other["reward"], abs=1e-9)
                assert row.advantage == pytest.approx(other["advantage"], abs=1e-6)
        for player, phase, bound in (
            (iteration.solver, Phase.UPDATE_SOLVER, 1e-13),
            (iteration.generator, Phase.UPDATE_GENERATOR, 1e-8),
        ):
            key = keys[phase, number]
            weights = load_file(store.root / "artifacts" / phase / key / "model.safetensors")
            gaps = [(weights[name] - own).abs().max() for name, own in player.model.named_parameters()]
            assert len(gaps) == len(weights) and max(gaps) < bound, (phase, max(gaps))
    assert not (scored or rewarded) and not any(number < ITERATIONS for number, _ in sampled)
