"""The settings of a corpus: what each source of models, data and pools may be, and what is missing on this machine."""

from pathlib import Path

import pytest
from places import CONFIGS

from infuser_core.config.corpus import OverlapSettings
from infuser_core.config.overlays import load
from infuser_core.planning.preflight import missing_for_corpus

PAPER = ["qwen3-4b.yaml", "qwen3-8b.yaml", "olmo3-7b-sft.yaml"]


@pytest.fixture(autouse=True)
def nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A laptop: an empty store, no converter, no data."""
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("INFUSER_MARKER", str(tmp_path / "no" / "marker_single"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_corpus_is_that_of_public_catalogues_under_open_licences(name: str):
    corpus = load([CONFIGS / name]).corpus
    assert corpus.catalogue.type == "catalogues" and len(corpus.catalogue.catalogues) == 6
    assert not [licence for licence in corpus.catalogue.licences if "NC" in licence or "ND" in licence]
    assert (corpus.catalogue.languages, corpus.structure, corpus.convert.type) == (["en"], "model", "marker")
    assert (corpus.chunk.min_tokens, corpus.chunk.max_tokens) == (200, 2048)
    assert (corpus.overlap.mode, corpus.overlap.matched, corpus.overlap.reference_matched) == (
        "paper", "report", "report",
    )  # fmt: skip
    found = corpus.overlap.with_defaults()
    assert (found.n, found.containment, found.min_chars) == (13, 0.8, 200)


@pytest.mark.parametrize("name", PAPER)
def test_a_laptop_is_told_everything_that_it_lacks(name: str, nothing_there: Path):
    found = [(error.message, error.hint) for error in missing_for_corpus(load([CONFIGS / name]))]
    marker = f"corpus.convert.type = 'marker': no command '{nothing_there}/no/marker_single' is installed"
    data = "corpus.overlap.mixture.0 = 'data/Dolci-Instruct-SFT': no such file or folder"
    assert [message for message, _ in found] == ([marker, data] if name.startswith("olmo") else [marker])
    assert all(hint for _, hint in found)


def test_a_laptop_that_has_them_lacks_nothing(nothing_there: Path, monkeypatch: pytest.MonkeyPatch):
    (nothing_there / "data" / "Dolci-Instruct-SFT").mkdir(parents=True)
    monkeypatch.setenv("INFUSER_MARKER", "sh -c true")
    assert missing_for_corpus(load([CONFIGS / "olmo3-7b-sft.yaml"])) == []


def test_a_store_with_a_pool_needs_no_converter(nothing_there: Path):
    (nothing_there / "store" / "artifacts" / "pool" / "pool-0").mkdir(parents=True)
    assert missing_for_corpus(load([CONFIGS / "qwen3-4b.yaml"])) == []


@pytest.mark.parametrize("changes", [[], ["corpus.judge={type: none}"], ["prompts=nano"]])
def test_the_nano_corpus_lacks_nothing(changes: list[str]):
    assert missing_for_corpus(load([CONFIGS / "nano.yaml"], changes)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("corpus.judge={type: folder, path: /no}", "corpus.judge.path = '/no': no config.json there"),
        ("corpus.catalogue.model={type: folder, path: /no}", "corpus.catalogue.model.path = '/no': no config.json"),
        (
            "corpus.chunk.tokenizer={type: folder, path: /no}",
            "corpus.chunk.tokenizer.path = '/no': no config.json",
        ),
        ("corpus.pool=/no/pool", "corpus.pool = '/no/pool': no such file or folder"),
    ],
)
def test_what_a_setting_names_and_is_not_there_is_named(change: str, message: str):
    (error,) = missing_for_corpus(load([CONFIGS / "nano.yaml"], [change]))
    assert error.message.startswith(message) and error.hint


def test_a_pool_that_is_given_needs_nothing_that_builds_one(nothing_there: Path):
    (nothing_there / "documents.json").write_text("[]")
    assert missing_for_corpus(load([CONFIGS / "qwen3-4b.yaml"], [f"corpus.pool={nothing_there}/documents.json"])) == []


def test_the_dev_set_alone_needs_no_corpus():
    changes = ["cotrain.dev_only=true", "cotrain.generator.update=false", "corpus.overlap.references=[/no]"]
    assert missing_for_corpus(load([CONFIGS / "nano.yaml"], changes)) == []


@pytest.mark.parametrize("mode", ["exact", "paper", "loose"])
def test_a_mode_has_its_own_values_unless_others_are_named(mode: str):
    own = OverlapSettings(mode=mode).with_defaults()  # type: ignore[arg-type]
    assert (own.n, own.containment) == ((5, 0.5) if mode == "loose" else (13, 0.8))
    other = OverlapSettings(mode=mode, n=7, containment=0.6, run_words=9, min_words=2, min_chars=1)  # type: ignore[arg-type]
    assert other.with_defaults() == other
