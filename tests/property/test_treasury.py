"""The treasury under any interleaving: messages lost, doubled, late, out of order; shards that die and come back."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.grants import Line, Standing
from services.scheduler.levels import Side, share_out
from services.scheduler.treasury import Treasury, grant, plan, take_report

SLOTS = "slots:standard"


class Shard:
    """What a shard's fold does: it takes units while it holds fewer than the newest grant that it has seen."""

    def __init__(self) -> None:
        self.held = self.ready = self.obeys = self.credit = self.seq = 0

    def dispatch(self) -> None:
        taken = min(self.ready, max(0, self.credit - self.held))
        self.held += taken
        self.ready -= taken

    def obey(self, number: int, credit: int) -> None:
        if number > self.obeys:
            self.obeys, self.credit = number, credit

    def report(self) -> tuple[int, int, Line]:
        self.seq += 1
        return self.seq, self.obeys, Line(held=self.held, want=self.held + self.ready)


class World:
    """Shards, the treasury, and messages that come when chance wants it."""

    def __init__(self, shards: int, capacity: int, rng: random.Random) -> None:
        self.shards = [Shard() for _ in range(shards)]
        self.capacity, self.rng = capacity, rng
        self.treasury = Treasury()
        self.treasury.open(shards)
        self.grants: list[tuple[int, int, int]] = []
        self.reports: list[tuple[int, tuple[int, int, Line]]] = []

    def step(self, *, faults: bool) -> None:
        rng = self.rng
        shard = rng.randrange(len(self.shards))
        match rng.randrange(5 if faults else 4):
            case 0:
                self.shards[shard].ready += rng.randrange(6)
            case 1:
                self.shards[shard].held = max(0, self.shards[shard].held - rng.randrange(4))
            case 2:
                self.reports.append((shard, self.shards[shard].report()))
            case 3:
                self.deliver(faults=faults)
            case (
                4
            ):  # a shard dies: what it was told after its last journal entry is read again by its successor
                self.grants += [item for item in self.grants if item[0] == shard][:3]
        self.shards[shard].dispatch()

    def deliver(self, *, faults: bool) -> None:
        rng = self.rng
        if self.reports:
            at = rng.randrange(len(self.reports)) if faults else 0
            if not faults or rng.random() < 0.9:
                number, (seq, obeys, line) = self.reports[at]
                take_report(
                    self.treasury,
                    number,
                    (1, seq),
                    obeys,
                    {SLOTS: line},
                    standings={"train": Standing(weight=1.0 + number)},
                )
            if not faults or rng.random() < 0.7:
                del self.reports[at]
        changed = plan(self.treasury, {SLOTS: self.capacity})
        if changed:
            units = grant(self.treasury, changed, {SLOTS: self.capacity})[SLOTS]
            self.grants += [(index, self.treasury.number, credit) for index, credit in enumerate(units)]
        if self.grants:
            at = rng.randrange(len(self.grants)) if faults else 0
            shard, number, credit = self.grants[at]
            self.shards[shard].obey(number, credit)
            if not faults or rng.random() < 0.7:
                del self.grants[at]

    @property
    def held(self) -> int:
        return sum(shard.held for shard in self.shards)

    def quiet(self) -> None:
        """Everything is delivered and reported until nothing moves."""
        for _ in range(200):
            for number, shard in enumerate(self.shards):
                shard.dispatch()
                self.reports.append((number, shard.report()))
            while self.reports or self.grants:
                self.deliver(faults=False)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5), st.integers(0, 12), st.integers(10, 300), st.integers(0, 10**9))
def test_units_are_never_given_twice_whatever_becomes_of_messages(
    shards: int, capacity: int, steps: int, seed: int
) -> None:
    world = World(shards, capacity, random.Random(seed))
    for _ in range(steps):
        world.step(faults=True)
        assert world.held <= capacity
        assert sum(account.bound for account in world.treasury.of(SLOTS)) <= capacity


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(1, 12), st.integers(0, 60), st.integers(0, 10**9))
def test_no_unit_stays_idle_while_a_shard_could_use_it(
    shards: int, capacity: int, steps: int, seed: int
) -> None:
    world = World(shards, capacity, random.Random(seed))
    for _ in range(steps):
        world.step(faults=True)
    world.reports.clear()
    for number in range(
        len(world.shards)
    ):  # a lost grant is told again by the next one, at the latest by this
        world.shards[number].ready += 1
    world.quiet()
    wanted = world.held + sum(shard.ready for shard in world.shards)
    assert world.held == min(capacity, wanted)


def test_a_smaller_capacity_is_reached_as_leases_end() -> None:
    world = World(3, 9, random.Random(1))
    for shard in world.shards:
        shard.ready = 9
    world.quiet()
    assert world.held == 9
    world.capacity = 4
    world.quiet()
    assert world.held == 9, "what is held is not taken away"
    for shard in world.shards:
        shard.held = 0
        shard.ready = 9
    world.quiet()
    assert world.held == 4


def test_units_level_the_virtual_times() -> None:
    def given_out(units: int, *sides: tuple[int, float, float]) -> list[int]:
        return share_out(units, [Side(limit, weight, virtual, 1.0) for limit, weight, virtual in sides])

    assert given_out(12, (12, 1.0, 0.0), (12, 2.0, 0.0), (12, 3.0, 0.0)) == [2, 4, 6]
    assert given_out(12, (1, 1.0, 0.0), (12, 1.0, 0.0), (12, 1.0, 0.0)) == [1, 6, 5]
    assert given_out(4, (9, 1.0, 5.0), (9, 1.0, 0.0)) == [0, 4], "the first is ahead by more than there is"
    assert given_out(6, (9, 1.0, 2.0), (9, 1.0, 0.0)) == [2, 4]
    assert given_out(1, (9, 100.0, 1.0), (9, 1.0, 0.0)) == [0, 1], "little weight is a unit now and then"
    assert given_out(5, (3, 0.0, 0.0), (1, 1.0, 0.0)) == [3, 1]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 50),
    st.lists(
        st.tuples(st.integers(0, 20), st.floats(0.0, 9.0), st.floats(0.0, 1e4), st.floats(0.001, 1e3)),
        min_size=1,
        max_size=6,
    ),
)
def test_shared_units_add_up_within_the_limits(
    units: int, parts: list[tuple[int, float, float, float]]
) -> None:
    sides = [Side(*part) for part in parts]
    given_out = share_out(units, sides)
    assert sum(given_out) == min(units, sum(side.limit for side in sides))
    assert all(0 <= got <= side.limit for got, side in zip(given_out, sides, strict=True))
