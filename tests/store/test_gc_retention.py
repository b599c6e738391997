"""What stays of a run's checkpoints: the last ones whole, every k-th with its weights, chosen ones always."""

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.store.retention import Course, Extent, Rule, Verdict, strongest, verdicts


@st.composite
def courses(draw: st.DrawFn) -> Course:
    last = draw(st.integers(0, 30))
    return Course(
        iterations=range(last + 1),
        passed=draw(st.integers(-1, last)),
        selected=draw(st.none() | st.integers(0, last)),
        pinned=draw(st.sets(st.integers(0, last), max_size=3)),
    )


RULES = st.builds(Rule, keep_full=st.integers(1, 5), every=st.integers(0, 7))


def extents(course: Course, rule: Rule) -> dict[int, Extent]:
    return {number: verdict.extent for number, verdict in verdicts(course, rule).items()}


def test_a_finished_run_of_twelve_iterations():
    course = Course(iterations=range(13), passed=12, selected=7, pinned={3})
    found = extents(course, Rule(keep_full=2, every=5))
    assert [number for number, extent in found.items() if extent == Extent.WHOLE] == [0, 3, 7, 11, 12]
    assert [number for number, extent in found.items() if extent == Extent.WEIGHTS] == [5, 10]


@given(courses(), RULES)
def test_what_training_goes_on_from_stays_whole(course: Course, rule: Rule):
    found = extents(course, rule)
    behind = [number for number in course.iterations if number <= course.passed]
    ahead = [number for number in course.iterations if number > course.passed]
    chosen = [number for number in (course.selected,) if number is not None]
    for number in {0, *behind[-rule.keep_full :], *ahead, *course.pinned, *chosen}:
        assert found[number] == Extent.WHOLE


@given(courses(), RULES)
def test_weights_stay_every_k_iterations_and_until_one_is_selected(course: Course, rule: Rule):
    found = extents(course, rule)
    assert set(found) == set(course.iterations)
    for number, extent in found.items():
        if course.selected is None or (rule.every and number % rule.every == 0):
            assert extent >= Extent.WEIGHTS


@given(courses(), RULES)
def test_keeping_more_whole_ones_never_removes_anything(course: Course, rule: Rule):
    more = extents(course, Rule(keep_full=rule.keep_full + 1, every=rule.every))
    assert all(more[number] >= extent for number, extent in extents(course, rule).items())


@given(st.lists(st.sampled_from(Extent), min_size=1))
def test_of_several_runs_the_one_that_wants_most_decides(wanted: list[Extent]):
    assert strongest(Verdict(extent=extent, why="") for extent in wanted).extent == max(wanted)
