"""All scenarios. Invariant: each says what it does, and which figures must show that it had its effect."""

from __future__ import annotations

import msgspec

from tests.chaos.suite.plays.common import CALM, HOLDING, SLOW, layout_of
from tests.chaos.suite.plays.idle import idle
from tests.chaos.suite.plays.inputs import disorder, hostile_input
from tests.chaos.suite.plays.joining import rebalance, sigterm
from tests.chaos.suite.plays.kills import scheduler_killed, workers_killed
from tests.chaos.suite.plays.outages import broker_killed, redis_lost
from tests.chaos.suite.plays.quotas import CARD, quotas
from tests.chaos.suite.plays.sharing import shards
from tests.chaos.suite.plays.standstill import blocked, clock_jumps, two_schedulers
from tests.chaos.suite.run import Scenario
from tests.chaos.suite.worker import Manner

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="scheduler-killed",
        about="kill -9 of the scheduler before and after journal, effects and Redis",
        play=scheduler_killed,
        layout=lambda _: layout_of(SLOW),
        proves=("kills",),
    ),
    Scenario(
        name="workers-killed",
        about="kill -9 of workers at any time and before a commit",
        play=workers_killed,
        layout=lambda _: layout_of(HOLDING),
        proves=("kills", "lapsed_leases", "ended_leases", "lost_with_killed", "lapsed"),
    ),
    Scenario(
        name="broker-killed",
        about="kill -9 of the broker, back on the same data and port",
        play=broker_killed,
        layout=lambda _: layout_of(SLOW),
        own_servers=True,
        proves=("kills", "held_at_kill", "away_s"),
    ),
    Scenario(
        name="redis-lost",
        about="Redis flushed, killed, and back empty",
        play=redis_lost,
        # No snapshot in the blob store: what is rebuilt is rebuilt from the log.
        layout=lambda _: layout_of(SLOW, scheduler={"snapshot_s": 86_400.0}),
        own_servers=True,
        proves=("fields_flushed", "rebuilt_entries", "outages_noticed", "came_back_empty", "written_whole"),
    ),
    Scenario(
        name="rebalance",
        about="workers join and leave during work",
        play=rebalance,
        layout=lambda _: layout_of(SLOW),
        proves=("dealt_anew", "rebalances", "partitions_moved"),
    ),
    Scenario(
        name="sigterm",
        about="SIGTERM of everything under load: nothing lost, nothing charged",
        play=sigterm,
        layout=lambda _: layout_of(
            msgspec.structs.replace(CALM, slots=8, shortest_s=0.1, longest_s=1.2), lease_s=6.0, verify_s=20.0
        ),
        proves=("stopped_holding", "drains"),
    ),
    Scenario(
        name="blocked",
        about="processes stopped for longer than their leases last",
        play=blocked,
        layout=lambda _: layout_of(HOLDING),
        proves=("lapsed_leases", "lapsed"),
    ),
    Scenario(
        name="clock-jumps",
        about="wall clocks 30 days off, both ways",
        play=clock_jumps,
        layout=lambda _: layout_of(SLOW),
        proves=("scheduler_ahead", "scheduler_behind", "workers_off"),
    ),
    Scenario(
        name="two-schedulers",
        about="the owner of the log is stopped, replaced, and wakes up again",
        play=two_schedulers,
        layout=lambda _: layout_of(SLOW),
        proves=("takeovers", "late_entries"),
    ),
    Scenario(
        name="hostile-input",
        about="garbage, duplicates, strangers and late events on every input",
        play=hostile_input,
        layout=lambda _: layout_of(msgspec.structs.replace(Manner(), slots=6, late=0.1, twice=0.5)),
        proves=("dead_letters", "doubles", "passed_over_verdicts", "unreadable"),
    ),
    Scenario(
        name="disorder",
        about="a recorded log written again in other orders, with doubles",
        play=disorder,
        layout=lambda _: layout_of(SLOW),
        proves=("out_of_order", "doubled", "doubles", "passed_over_verdicts"),
    ),
    Scenario(
        name="quotas",
        about="lend, borrow, reclaim, pause and changes of quotas in a cohort, whose scheduler is killed meanwhile",
        play=quotas,
        layout=lambda _: layout_of(
            msgspec.structs.replace(CALM, slots=8, shortest_s=0.15, longest_s=0.4),
            cards=dict.fromkeys(("echo", "song"), CARD),
        ),
        proves=("kills", "most_borrowed", "borrowed_over_claim", "given_back", "quotas_changed"),
    ),
    Scenario(
        name="shards",
        about="two shards, three schedulers: owners die or stop, the others take over",
        play=shards,
        layout=lambda _: layout_of(
            SLOW,
            scheduler={"shards": 2},
            domains={"alto": 1.0, "bass": 2.0, "echo": 1.0, "song": 2.0, "tenor": 1.0},
        ),
        proves=("kills", "shards_moved"),
    ),
    Scenario(
        name="idle",
        about="an idle installation with flat memory",
        play=idle,
        layout=lambda _: layout_of(CALM),
        seeds=1,
        proves=("looks",),
    ),
)
