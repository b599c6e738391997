"""The catalogue says what the commit records say, and names the damaged ones."""

from pathlib import Path

from small_store import infuser, make_store

from infuser_core.results.lineage.progress import summaries
from infuser_core.schemas import AuditFact
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import MANIFEST, ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store, Table


def put(store: Store, number: int) -> ArtifactRef:
    recipe = Recipe(phase="audit", version=2, config={"n": number}, seed=3, iteration=number)
    table = Table(row_type=AuditFact, rows=[AuditFact(name="fact", value=number)])
    with store.workspace(recipe) as workspace:
        outcome = Outcome(tables={"audit_summary": table}, summary={"value": number})
        return store.commit(recipe, workspace, outcome, seconds=1.5)


def test_records_say_what_was_committed(tmp_path: Path):
    store = Store(tmp_path)
    refs = {ref.key: ref for ref in (put(store, number) for number in range(3))}
    catalogue = Catalogue(tmp_path)
    assert list(catalogue.records) == sorted(refs) and all(catalogue.find_by_id(ref.id) for ref in refs.values())
    for key, record in catalogue.records.items():
        assert (record.ref, record.phase, record.version, record.seed) == (refs[key], "audit", 2, 3)
        assert (record.config, record.summary) == ({"n": record.iteration}, {"value": record.iteration})
        assert (record.rows, record.seconds) == ({"audit_summary": 1}, 1.5)
        assert record.num_bytes == catalogue.paths([key], "audit_summary")[0].stat().st_size and record.created
    assert Catalogue(tmp_path / "nowhere").records == {}


def test_damaged_records_are_named_and_the_others_are_there(tmp_path: Path):
    store = Store(tmp_path)
    torn, flipped, odd, sound = (put(store, number) for number in range(4))
    paths = [store.folder(ref.key) / MANIFEST for ref in (torn, flipped, odd)]
    paths[0].write_text(paths[0].read_text()[:40])
    paths[1].write_text(paths[1].read_text().replace('"value": 1', '"value": 3'))
    paths[2].write_text("[]")
    catalogue = Catalogue(tmp_path)
    assert list(catalogue.records) == [sound.key] and set(catalogue.damaged) == {torn.key, flipped.key, odd.key}
    assert all(str(path) in catalogue.damaged[path.parent.name] for path in paths)


def test_uses_of_a_sound_artifact_are_not_listed_while_a_record_is_damaged(tmp_path: Path):
    make_store(tmp_path)
    user = next(each for each in Catalogue(tmp_path).records_of_phase() if each.inputs)
    source = next(iter(user.inputs.values()))
    assert user.id in infuser("show", source, store=tmp_path).stdout
    path = tmp_path / "artifacts" / user.phase / user.key / MANIFEST
    path.write_text(path.read_text()[:40])
    shown = infuser("show", source, store=tmp_path)
    assert shown.returncode == 3 and not shown.stdout and str(path) in shown.stderr


def test_a_damaged_run_is_told_beside_the_others_in_the_list_of_runs(tmp_path: Path):
    for name in ("first", "second"):
        make_store(tmp_path, run=name)
    path = tmp_path / "runs" / "first" / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"ran", b"run", 1))
    found, damage = summaries(tmp_path)
    assert {each.run: each.state.partition(":")[0] for each in found} == {"first": "damaged", "second": "done"}
    assert len(damage) == 1 and str(path) in damage[0].message and damage[0].hint
    listed = infuser("runs", store=tmp_path)
    assert listed.returncode == 3 and "second  " in listed.stdout and "damaged: " in listed.stdout
    assert listed.stderr.startswith(f"infuser: {path}: ")
