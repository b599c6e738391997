"""An artifact's record says what its engines computed on, and neither its key nor its digest knows."""

from pathlib import Path

from engine_tiny import make_checkpoint, make_groups

from infuser_core.engines.facts import noting
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.protocols import Objective
from infuser_core.schemas import Document
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import Outcome, Store, Table


def test_engines_that_are_asked_for_are_noted_with_what_they_are_in_the_end(tmp_path: Path) -> None:
    anchor = make_checkpoint(tmp_path)
    pool = EnginePool(trainer_options={"device": "cpu", "token_budget": 512})
    pool.trainer(anchor)
    with noting() as used:
        assert used.facts() == {}
        trainer = pool.trainer(anchor)
        trainer.forward_backward(make_groups([(5, [4, 7])]), Objective(), denominator=1)
    facts = used.facts()
    assert set(facts) == {"trainer"}
    assert facts["trainer"]["token_budget"] == 512 and facts["trainer"]["attention"] == "sdpa"


def test_the_record_keeps_them_outside_of_key_and_digest(tmp_path: Path) -> None:
    recipe = Recipe(phase="dev_gradient", version=1, config={}, seed=0, inputs={}, iteration=0)
    refs = []
    for place, machine in enumerate([{}, {"trainer": {"engine": "local", "attention": "flash"}}]):
        store = Store(tmp_path / str(place))
        with store.workspace(recipe) as workspace:
            outcome = Outcome(tables={"documents": Table(row_type=Document, rows=[])}, machine=machine)
            refs.append(store.commit(recipe, workspace, outcome, seconds=1.0))
        assert store.manifest(refs[-1]).machine == machine
        (record,) = Catalogue(store.root).records.values()
        assert record.machine == machine
    assert refs[0] == refs[1]


def test_engines_that_share_an_accelerator_forget_and_load_again(tmp_path: Path) -> None:
    anchor = make_checkpoint(tmp_path)
    pool = EnginePool(
        trainer_options={"device": "cpu"}, sampler_options={"device": "cpu"}, max_trainers=1, placement="colocated"
    )
    pool.trainer(anchor)
    engine = pool._warm["trainer", "solver"].engine
    pool.sampler(anchor)
    assert not hasattr(engine, "_flat")
    pool.trainer(anchor).forward_backward(make_groups([(5, [4, 7])]), Objective(), denominator=1)
    assert pool._warm["trainer", "solver"].engine is engine
