"""Keys are functions of the recipe, seeds are functions of names, and neither changes by accident."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.seeding import seed_of
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.system.sealed import canonical, digest_of

RECIPE = Recipe(
    phase="rollout_dev",
    version=3,
    config={"samples": 8, "sampling": {"temperature": 0.7, "top_p": 1.0}, "box": "paper"},
    seed=42,
    iteration=7,
    inputs={"dev": "questions-0123456789abcdef@00ff", "solver": "anchor-0123456789abcdef@ff00"},
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_key_of_a_recipe_is_pinned():
    # Another value here means that every store in the world would be computed again.
    assert RECIPE.key == "rollout_dev-686deafab00e446d"


@pytest.mark.parametrize(
    "changed",
    [
        replace(RECIPE, phase="dev_gradient"),
        replace(RECIPE, version=4),
        replace(RECIPE, config={**RECIPE.config, "samples": 9}),
        replace(RECIPE, config={**RECIPE.config, "sampling": {"temperature": 0.7, "top_p": 0.9}}),
        replace(RECIPE, seed=43),
        replace(RECIPE, iteration=8),
        replace(RECIPE, inputs={**RECIPE.inputs, "dev": "questions-0123456789abcdef@00fe"}),
        replace(RECIPE, inputs={"dev": RECIPE.inputs["dev"]}),
    ],
)
def test_every_part_of_a_recipe_enters_the_key(changed: Recipe):
    assert changed.key != RECIPE.key


@given(st.dictionaries(st.text(), JSON, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(config: dict[str, object], random):
    names = list(config)
    random.shuffle(names)
    shuffled = {name: config[name] for name in names}
    assert replace(RECIPE, config=config).key == replace(RECIPE, config=shuffled).key
    assert digest_of(config) == digest_of(shuffled)


@given(JSON)
def test_canonical_text_loses_nothing(value: object):
    text = canonical(value)
    assert text.isascii()
    assert repr(sorted_keys(json.loads(text))) == repr(sorted_keys(value))


def sorted_keys(value: object) -> object:
    """`repr` then tells 1 from 1.0 and True, and nothing else."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


def test_the_stored_recipe_gives_the_same_key_again():
    assert Recipe(**RECIPE.to_json()).key == RECIPE.key


def test_an_artifact_is_named_by_key_and_content():
    ref = ArtifactRef(kind="rollout_dev", key=RECIPE.key, digest="ab" * 32)
    assert ref.id == f"{RECIPE.key}@abababababababab"
    assert replace(ref, digest="cd" * 32).id != ref.id


NAMES = st.lists(st.integers() | st.text(st.characters(exclude_characters="\x1f")), min_size=1, max_size=4)


def test_seeds_never_change():
    # Another value here means that every run draws other tokens than before.
    assert seed_of(42, "rollout_dev/0", "q-1", 3) == 8459839293695321613
    assert seed_of("bootstrap", "validation") == 3489951628616958859


@given(NAMES)
def test_seeds_fit_any_generator(names: list[int | str]):
    assert 0 <= seed_of(*names) < 2**63


@given(NAMES, NAMES)
def test_different_names_give_different_seeds(one: list[int | str], other: list[int | str]):
    same = [str(name) for name in one] == [str(name) for name in other]
    assert (seed_of(*one) == seed_of(*other)) == same
