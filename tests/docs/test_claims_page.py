"""Pages of claims, curricula and of a pretrained model show what their commands write from the kept measurements."""

import json
import runpy

from places import ROOT

BENCH = ROOT / "tests" / "bench"


def test_the_page_follows_from_the_kept_measurements(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    claims = runpy.run_path(str(BENCH / "claims.py"))
    kept = json.loads((BENCH / "headline.json").read_text(encoding="utf-8"))
    assert claims["page"](kept) == (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def test_the_page_of_curricula_follows_from_the_kept_measurements(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    curricula = runpy.run_path(str(BENCH / "curricula.py"))
    assert curricula["page"](curricula["read_kept"]()) == (ROOT / "docs" / "curricula.md").read_text(encoding="utf-8")


def test_the_table_of_the_pretrained_model_follows_from_the_kept_measurements(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    pretrained = runpy.run_path(str(BENCH / "pretrained.py"))
    rows = json.loads((BENCH / "pretrained.json").read_text(encoding="utf-8"))
    assert "\n".join(pretrained["table"](rows)) in (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
