"""Two processes started on one run at the same moment: one works, the other names it and leaves; no bit is wrong."""

import pytest
from crash_points import content, mismatches, orphans, repeated
from fault_tools import store_without
from launcher import Launcher, SmallRun

from infuser_core.store.runs import Journal

pytestmark = pytest.mark.long

TIMES = 5


@pytest.mark.slow
def test_one_of_two_starts_works_and_the_other_names_it(launch: Launcher, small_run: SmallRun, tmp_path):
    whole = content(small_run.root, small_run.name)
    for number in range(TIMES):
        store = store_without(small_run, tmp_path / f"store-{number}", "judge", "select")
        both = [launch.start(*small_run.arguments, store=store) for _ in range(2)]
        ended = [process.wait() for process in both]
        winners = [process for process, end in zip(both, ended, strict=True) if end.code == 0]
        assert winners, ended
        for process, end in zip(both, ended, strict=True):
            if end.code != 0:
                assert end.code == 2, end
                other = next(each for each in both if each is not process)
                assert end.err.startswith(f"infuser: run small is being executed by process {other.pid} on "), end
        entries = Journal(store, "small").entries()
        assert repeated(store, "small") == []
        # Whoever came when the other was done found everything; nobody wrote between the other's lines.
        assert [entry.attempt for entry in entries] == sorted(entry.attempt for entry in entries)
        assert list(orphans(store)) == []
        assert mismatches(whole, content(store, "small")) == []
