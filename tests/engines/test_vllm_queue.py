"""Groups go longest first to whoever has least left to do, each exactly once."""

from hypothesis import given
from hypothesis import strategies as st

from infuser_core.engines.protocols import PromptGroup
from infuser_core.engines.vllm.draw import GroupQueue

SIZES = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6)), max_size=20)


def groups(sizes: list[tuple[int, int]]) -> list[PromptGroup]:
    return [
        PromptGroup(group_id=str(place), token_ids=[1] * prompt, seeds=list(range(rows)))
        for place, (prompt, rows) in enumerate(sizes)
    ]


@given(SIZES, st.integers(1, 4), st.integers(1, 12), st.randoms(use_true_random=False))
def test_every_group_is_given_once_and_no_engine_too_much(sizes, engines, capacity, draw) -> None:
    queue = GroupQueue(groups(sizes), 8, engines=engines, capacity=capacity)
    left: list[list[int]] = [[] for _ in range(engines)]
    given: list[int] = []
    while True:
        for each in queue.assign():
            given.append(each.place)
            rows = sizes[each.place][1]
            # A group larger than the capacity gets an engine of its own.
            assert len(left[each.engine]) + rows <= capacity or not left[each.engine]
            left[each.engine] += [each.place] * rows
        assert queue.busy() == [engine for engine in range(engines) if left[engine]]
        if not queue.busy():
            break
        engine = draw.choice(queue.busy())
        queue.finish_row(engine, left[engine].pop(draw.randrange(len(left[engine]))))
    assert sorted(given) == [place for place, (_, rows) in enumerate(sizes) if rows]


def test_the_longest_come_first_and_loads_are_even() -> None:
    queue = GroupQueue(groups([(5, 1), (20, 1), (10, 1), (15, 1)]), 1, engines=2, capacity=10)
    assert [(each.engine, each.place) for each in queue.assign()] == [(0, 1), (1, 3), (1, 2), (0, 0)]


def test_an_engine_that_is_done_takes_what_others_could_not_start() -> None:
    queue = GroupQueue(groups([(9, 2), (8, 2), (7, 2)]), 4, engines=2, capacity=2)
    assert [(each.engine, each.place) for each in queue.assign()] == [(0, 0), (1, 1)]
    queue.finish_row(1, 1)
    assert queue.assign() == []
    queue.finish_row(1, 1)
    assert [(each.engine, each.place) for each in queue.assign()] == [(1, 2)]
