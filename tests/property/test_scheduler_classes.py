"""Evaluation first, but not for ever: whatever arrives, both classes get what `classes` states while both wait."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from schemas.cards import Deadline, Retry, Timeouts
from schemas.heartbeats import WorkerHeartbeat
from schemas.tasks import Purpose, Task, TaskSubmitted
from services.scheduler.classes import service_s
from services.scheduler.effects import Assign
from services.scheduler.fold import Batch, Input, step
from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies, Policy
from services.scheduler.records import HELD, TaskEntry
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.shards import Fleet
from tests.verdicts import judged

LONG = Timeouts(lease_s=1e7, attempt_s=1e7)
DOMAINS = ("a", "b", "c", "d")


def ready(state: State, pool: str, purpose: Purpose) -> int:
    return sum(
        entry.state == "ready" and (entry.pool, entry.purpose) == (pool, purpose)
        for entry in state.live.values()
    )


class Window:
    """Expected slot seconds of both classes in one pool since both began to wait; `most`: of any one task."""

    def __init__(self) -> None:
        self.of = {"eval": 0.0, "train": 0.0}
        self.most = 0.0
        self.owed = 0.0
        """What training was owed when it began."""

    def begin(self, owed: float) -> None:
        self.of, self.owed = {"eval": 0.0, "train": 0.0}, owed

    def note(self, purpose: str, seconds: float, share: float) -> None:
        self.of[purpose] += seconds
        debt = share / (1.0 - share)
        given_out = self.of["eval"] + self.of["train"]
        slack = self.most * (1.0 + debt)
        assert self.of["train"] >= share * given_out - (1.0 - share) * slack - 1e-6 * given_out
        most = self.owed + self.of["eval"] * debt + self.most
        assert self.of["train"] <= most + 1e-6 * given_out, "evaluation goes first but for that"


class Both:
    """Two pools in which evaluation always waits; training comes as it likes. The twin is made anew from records each time."""

    def __init__(self, table: Policies, slots: int) -> None:
        self.table, self.slots = table, slots
        self.state, self.twin = State(), State()
        self.now, self.number, self.seq = 1000.0, 0, 0
        self.windows = {"standard": Window(), "fast": Window()}
        self.waited = dict.fromkeys(self.windows, False)
        """Pools in which training waits."""

    def submitted(self, pool: str, purpose: Purpose, domain: str) -> Input:
        self.number += 1
        task = Task(id=f"t{self.number}", domain=domain, prompt="p", pool=pool, purpose=purpose)
        return Input(event=TaskSubmitted(task=task), at=self.now)

    def arrivals(self, training: list[tuple[str, str]]) -> list[Input]:
        """Training by (pool, domain), and evaluation up to three times the slots."""
        events = [self.submitted(pool, "train", domain) for pool, domain in training]
        for pool in self.windows:
            missing = 3 * self.slots - ready(self.state, pool, "eval")
            events += [self.submitted(pool, "eval", DOMAINS[n % 4]) for n in range(missing)]
        return events

    def ends(self, count: int, *, failing: bool) -> list[Input]:
        """The oldest attempts end."""
        held = [entry for entry in self.state.live.values() if entry.state in HELD]
        held.sort(key=lambda entry: (entry.leased_at, entry.order))
        return [
            Input(
                event=judged(
                    entry.id,
                    0.0 if failing and entry.order % 3 == 0 else 1.0,
                    entry.attempt,
                    lease=entry.lease_id,
                ),
                at=self.now,
            )
            for entry in held[:count]
        ]

    def turn(self, training: list[tuple[str, str]], ends: int, *, failing: bool) -> None:
        self.now += 1.0
        self.seq += 1
        events = self.arrivals(training) + self.ends(ends, failing=failing)
        if self.seq == 1:
            for pool in self.windows:
                beat = WorkerHeartbeat(worker=pool, service="sampler", pool=pool, slots=self.slots)
                events.append(Input(event=beat, at=self.now))
        owed = dict(self.state.meta.owed)
        batch = Batch(seq=self.seq, now=self.now, inputs=tuple(events))
        effects = step(self.state, self.table, batch)
        self.twin = restore(snapshot(self.twin))
        assert step(self.twin, self.table, batch) == effects
        assert invariant(self.state) == []
        most = max(service_s(self.state, self.table, entry) for entry in self.state.live.values())
        given_out = [self.state.live[effect.task_id] for effect in effects if isinstance(effect, Assign)]
        # What failed and comes back in the same batch is among what was ready, too.
        left = {
            pool: ready(self.state, pool, "train")
            + sum((entry.pool, entry.purpose) == (pool, "train") for entry in given_out)
            for pool in self.windows
        }
        for pool, window in self.windows.items():
            window.most = max(window.most, most)
            if left[pool] and not self.waited[pool]:
                window.begin(owed.get(pool, 0.0))
                self.waited[pool] = True
        for entry in given_out:
            self.note(entry, left)
        for pool in self.windows:
            self.waited[pool] = self.waited[pool] and ready(self.state, pool, "train") > 0

    def note(self, entry: TaskEntry, left: dict[str, int]) -> None:
        pool = entry.pool
        if self.waited[pool]:
            seconds = service_s(self.state, self.table, entry)
            self.windows[pool].note(entry.purpose, seconds, self.table.train_share)
        if entry.purpose == "train":
            left[pool] -= 1
            self.waited[pool] = left[pool] > 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(0.02, 0.6),
    st.integers(2, 6),
    st.lists(st.tuples(st.floats(0.1, 100.0), st.integers(1, 2)), min_size=4, max_size=4),
    st.lists(
        st.tuples(
            st.integers(0, 8), st.integers(0, 3), st.integers(0, 5), st.sampled_from(["standard", "fast"])
        ),
        min_size=20,
        max_size=60,
    ),
    st.booleans(),
)
@example(
    share=0.5,
    slots=5,
    sizes=[(1.0, 1)] * 4,
    plan=[(1, 0, 0, "standard"), *[(0, 0, 0, "standard")] * 19],
    failing=True,
)
def test_endless_evaluation_leaves_training_its_share_and_no_more(
    share: float,
    slots: int,
    sizes: list[tuple[float, int]],
    plan: list[tuple[int, int, int, str]],
    failing: bool,  # noqa: FBT001
) -> None:
    table = Policies(
        domains={
            name: Policy(
                weight=1.0 + number,
                slots=need,
                deadline=Deadline(estimate_s=seconds),
                retry=Retry(failures=3, backoff_s=0.0),
                timeouts=LONG,
            )
            for number, (name, (seconds, need)) in enumerate(zip(DOMAINS, sizes, strict=True))
        },
        group_size=1,
        eta=1 << 40,
        worker_timeout_s=1e12,
        worker_memory_s=1e12,
        train_share=share,
    )
    both = Both(table, slots)
    for come, domain, ends, pool in plan:
        both.turn([(pool, DOMAINS[(domain + n) % 4]) for n in range(come)], ends, failing=failing)
    assert snapshot(both.state) == snapshot(both.twin)


QUICK = (Phase.explicit, Phase.reuse, Phase.generate)
SHARED = Policies(
    domains={f"d{number}": Policy(deadline=Deadline(estimate_s=1.0), timeouts=LONG) for number in range(8)},
    group_size=1,
    groups_per_step=40,
    eta=10**6,
    half_life_s=20.0,
)


@settings(max_examples=8, deadline=None, phases=QUICK)
@given(st.sampled_from([1, 2, 3, 12, 40]), st.integers(2, 3), st.integers(0, 10**9))
def test_endless_evaluation_in_one_shard_leaves_training_in_another_its_share(
    slots: int, shards: int, seed: int
) -> None:
    """Slots pass between shards with a delay, and less than one slot goes by what was had: so the bound is looser here."""
    fleet = Fleet(SHARED, shards, slots=slots, seed=seed)
    owners = {name: fleet.owner(name) for name in SHARED.domains}
    measuring = min(owners)
    others = [name for name, owner in sorted(owners.items()) if owner is not owners[measuring]]
    counted: dict[str, int] = {}
    for turn in range(1500):
        fleet.top_up(measuring, 2 * slots + 4, purpose="eval")
        for name in others:
            fleet.top_up(name, slots + 2)
        fleet.turn(0.2)
        if turn == 700:  # a minute past what half-lives take to level
            counted = dict(fleet.sent)
    given_out = {name: fleet.sent[name] - counted.get(name, 0) for name in fleet.sent}
    trained = sum(given_out.get(name, 0) for name in others)
    share = trained / sum(given_out.values())
    assert 0.7 * SHARED.train_share <= share <= 0.3, given_out
    assert given_out[measuring] > trained
