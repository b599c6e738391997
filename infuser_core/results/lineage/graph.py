"""Artifact graph of one run: inputs and users of every artifact."""

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from infuser_core.config.phase_table import Phase
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import Record
from infuser_core.store.runs import find_run, list_runs


class Graph:
    """Artifacts of one run in the order of the pipeline, linked by input and user."""

    def __init__(self, catalogue: Catalogue, run: str, keys: Iterable[str]) -> None:
        self.catalogue = catalogue
        self.run = run
        self.records = {key: catalogue.record(key) for key in keys}

    @cached_property
    def _users(self) -> dict[str, list[str]]:
        users: dict[str, list[str]] = {key: [] for key in self.records}
        for key in self.records:
            for source in self.inputs(key).values():
                if source in users:
                    users[source].append(key)
        return users

    def inputs(self, key: str) -> dict[str, str]:
        """Keys of an artifact's inputs by input name, without inputs that are no longer in the store."""
        inputs = self.catalogue.record(key).inputs.items()
        return {name: identity.split("@")[0] for name, identity in inputs if self.catalogue.find_by_id(identity)}

    def users(self, key: str, phase: str = "") -> list[Record]:
        """Artifacts of the run that used this one as an input, of one phase or of all."""
        records = [self.records[user] for user in self._users.get(key, [])]
        return [record for record in records if phase in ("", record.phase)]

    def of(self, *phases: str, iteration: int | None = None) -> list[Record]:
        """Artifacts of these phases, of one iteration or of all."""
        return [r for r in self.records.values() if r.phase in phases and iteration in (None, r.iteration)]

    def holding(self, table: str) -> list[Record]:
        """Artifacts of the run that have a table."""
        return [record for record in self.records.values() if table in record.rows]

    def below(self, keys: Iterable[str], *, phases: Collection[str] = ()) -> list[Record]:
        """These artifacts and all that the run derived from them (through `phases` only, if set), in pipeline order."""
        reached: set[str] = set()
        ahead = [key for key in keys if key in self.records]
        while ahead:
            key = ahead.pop()
            if key not in reached:
                reached.add(key)
                ahead += [user for user in self._users[key] if not phases or self.records[user].phase in phases]
        return [record for key, record in self.records.items() if key in reached]

    def above(self, key: str) -> list[Record]:
        """All direct and indirect inputs of an artifact, the nearest first."""
        reached: dict[str, Record] = {}
        ahead = [key]
        while ahead:
            for source in self.inputs(ahead.pop(0)).values():
                if source not in reached:
                    reached[source] = self.catalogue.record(source)
                    ahead.append(source)
        return list(reached.values())

    def trained(self, key: str) -> list[Record]:
        """The chain of checkpoints from the anchor to this one, both included."""
        chain = [self.catalogue.record(key)]
        while before := self.inputs(chain[-1].key).get(chain[-1].phase.removeprefix("update_")):
            chain.append(self.catalogue.record(before))
        return chain[::-1]

    def checkpoint(self, role: str, iteration: int) -> Record | None:
        """A role's checkpoint after `iteration` iterations; None if the run has none."""
        later = [r for r in self.of(f"update_{role}") if r.iteration < iteration]
        anchors = self.of(Phase.ANCHOR)
        return max(later, key=lambda record: record.iteration, default=anchors[0] if anchors else None)


def graph_of(catalogue: Catalogue, run: str) -> Graph:
    """Load the artifact graph of a run. Raises StoreError if an artifact is lost or its commit record is damaged."""
    return Graph(catalogue, run, dict.fromkeys(entry.key for entry in catalogue.journal_entries(run)))


def graphs(catalogue: Catalogue, run: str | None, *, holding: Collection[str] | None = None) -> Iterator[Graph]:
    """The graph of `run`, or of every run, latest first; `holding` skips runs with none of these artifact keys."""
    for name in [find_run(catalogue.root, run)] if run is not None else list_runs(catalogue.root)[::-1]:
        if holding is None or any(entry.key in holding for entry in Journal(catalogue.root, name).latest()):
            yield graph_of(catalogue, name)


def stale_reasons(graph: Graph) -> dict[str, str]:
    """Reasons why artifacts of a run are stale, by key: an input is gone or stale, or a newer version of the phase has
    been used in the store."""
    newest: dict[str, int] = {}
    for record in graph.catalogue.records.values():
        newest[record.phase] = max(record.version, newest.get(record.phase, 0))
    reasons: dict[str, str] = {}
    for key, record in graph.records.items():
        sources = graph.inputs(key)
        lacking = [name for name in record.inputs if name not in sources]
        stale = [name for name, source in sources.items() if source in reasons]
        if lacking:
            reasons[key] = f"its input {lacking[0]} is no longer in the store"
        elif record.version < newest[record.phase]:
            reasons[key] = f"version {record.version} of the phase made it, and version {newest[record.phase]} is newer"
        elif stale:
            reasons[key] = f"its input {stale[0]} is stale"
    return reasons
