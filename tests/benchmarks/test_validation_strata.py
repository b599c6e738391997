"""Shares are whole, proportional and complete; samples depend on what is drawn from and on nothing else."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.evaluation.benchmarks.parts.validation import apportion, draw_stratified, spread_shortfall, stratum
from infuser_core.schemas import Question

WEIGHTS = st.dictionaries(st.text("abcd", min_size=1, max_size=3), st.integers(1, 50), min_size=1, max_size=6)


def made(name: str, domain: str) -> Question:
    return Question(
        question_id=f"set:{name}", text=f"Text {name}", choices=[], answer="1", verifier="math", domain=domain
    )


POOLS = st.lists(
    st.tuples(st.integers(0, 999), st.sampled_from("xyz")), unique_by=lambda item: item[0], max_size=60
).map(lambda items: [made(str(number), domain) for number, domain in items])


@given(WEIGHTS, st.integers(0, 300), st.integers(0, 9))
def test_shares_sum_up_and_stay_within_one_of_the_exact_share(weights: dict[str, int], total: int, seed: int):
    shares = apportion(total, weights, seed=seed)
    assert sum(shares.values()) == total
    for name, weight in weights.items():
        assert abs(Fraction(total * weight, sum(weights.values())) - shares[name]) < 1


@given(POOLS, st.integers(0, 80), st.integers(0, 9), st.randoms(use_true_random=False))
def test_a_sample_is_complete_without_repeats_and_blind_to_order(pool: list[Question], count: int, seed: int, chance):
    found = draw_stratified(pool, count, seed=seed)
    assert len(found) == min(count, len(pool))
    assert len({each.question_id for each in found}) == len(found)
    shuffled = list(pool)
    chance.shuffle(shuffled)
    assert draw_stratified(shuffled, count, seed=seed) == found


@given(POOLS, st.integers(1, 60), st.integers(0, 9))
def test_every_stratum_gives_its_share(pool: list[Question], count: int, seed: int):
    found = [stratum(each) for each in draw_stratified(pool, count, seed=seed)]
    for name in {stratum(each) for each in pool}:
        size = sum(stratum(each) == name for each in pool)
        assert abs(Fraction(min(count, len(pool)) * size, len(pool)) - found.count(name)) < 1


def test_a_scope_draws_others_and_strata_can_be_chosen():
    pool = [made(str(number), "xyz"[number % 3]) for number in range(60)]
    ten = draw_stratified(pool, 10, seed=1, scope=("limit", "a"))
    assert (
        draw_stratified(pool, 10, seed=1, scope=("limit", "b"))
        != ten
        != draw_stratified(pool, 10, seed=2, scope=("limit", "a"))
    )
    assert len(draw_stratified(pool, 10, seed=1, by=lambda question: "")) == 10


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1))
def test_a_lack_is_made_up_for_as_far_as_there_are_questions(sizes: dict[str, tuple[int, int]]):
    wanted = {name: want for name, (want, _) in sizes.items()}
    there = {name: have for name, (_, have) in sizes.items()}
    given_ = spread_shortfall(wanted, there, seed=1)
    assert sum(given_.values()) == min(sum(wanted.values()), sum(there.values()))
    for name in sizes:
        assert min(wanted[name], there[name]) <= given_[name] <= there[name]


def test_four_equal_fields_share_alike_and_a_small_one_gives_all_it_has():
    quotas = dict.fromkeys("abcd", 32)
    assert spread_shortfall(quotas, dict.fromkeys("abcd", 99), seed=0) == quotas
    given_ = spread_shortfall(dict.fromkeys("abcd", 32), {"a": 10, "b": 99, "c": 99, "d": 99}, seed=0)
    assert given_["a"] == 10 and sorted(given_.values()) == [10, 39, 39, 40]
