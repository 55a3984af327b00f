"""Fifty stages through kill -9 of every service: resumed where they stood, and no committed stage run a second time.

The whole chain is real (chain.py). The model is one whose weights say the fifty commands one after the other. Every stage writes
a number that nobody can draw twice, and a stage's snapshot is named by its content: had a committed stage been run again, the
state that the later ones stand on, and with it the final verdict, would have another name than the log first gave it.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.ids import trajectory_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.states import TERMINAL, TaskState
from services.runtime.catalog import Catalog
from services.runtime.fence import EpochFence
from services.runtime.wire import Record
from services.scheduler.policies import policies_of
from services.verifier.image import image
from services.verifier.jail import JailUnavailable, probe
from tests.chaos.chain import FIRST, PLAN, Chain
from tests.chaos.speaker import STAGES
from tests.chaos.suite import log as logs
from tests.chaos.suite.audit import audit
from tests.chaos.suite.findings import unchecked
from tests.chaos.suite.run import stored_fields

NOTICE_S = 0.1
"""Between the last look at what is committed and the line that says what begins; a stage takes four times as long."""


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    try:
        probe()
    except JailUnavailable as error:
        # A machine that is to prove the jail must not pass without one.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no jail on this machine: {error}")
    made = Chain(tmp_path)
    yield made
    made.close()


def first[T](records: list[Record], kind: type[T], key: Callable[[T], Any]) -> dict[Any, Record]:
    """The first record of each key among events of a kind."""
    found: dict[Any, Record] = {}
    for record in records:
        if isinstance(record.event, kind):
            found.setdefault(key(record.event), record)
    return found


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_stages_survive_kill_9_of_every_service_and_none_is_run_twice(chain: Chain) -> None:
    before = image()
    asyncio.run(chain.run())
    assert image() == before, "the jail's sources changed meanwhile: what was kept is then not gone on with"
    strikes = Counter(name for names in PLAN.values() for name in names)
    assert chain.killed.total() == strikes.total(), chain.notes
    assert {path.name for path in chain.marks.iterdir()} == {FIRST.replace(":", "_")}

    # Each stage is told in one way only, however often; all are of the second attempt, since the first died with its sampler.
    told: dict[str, set[bytes]] = {}
    for record in chain.log:
        if isinstance(record.event, StageVerified):
            told.setdefault(record.envelope.id, set()).add(msgspec.json.encode(record.event))
    assert len(told) == STAGES
    assert all(len(bodies) == 1 for bodies in told.values()), "a stage was told in two ways"
    stages = chain.committed
    assert sorted(stages) == list(range(STAGES))
    owner = trajectory_id("long", 2, 0)
    assert {each.trajectory_id for each in stages.values()} == {owner}
    assert {(each.runs, each.note, each.result.passed) for each in stages.values()} == {(1, "", True)}
    assert {each.worker for each in stages.values()} == {"verifier-0", "verifier-1"}

    # The final verdict stands on exactly those runs: their snapshots hold numbers that no second run would have drawn.
    [verdict] = {
        record.envelope.id: record.event for record in chain.log if isinstance(record.event, TrajectoryVerified)
        and record.event.lease_id == stages[0].lease_id
    }.values()  # fmt: skip
    assert (verdict.verdict.outcome, verdict.verdict.score) == ("scored", 1.0)
    assert [each.snapshot for each in verdict.verdict.stages] == [
        stages[n].result.snapshot for n in range(STAGES)
    ]
    assert len({each.result.snapshot for each in stages.values()}) == STAGES

    # What verifiers began. A kill costs the one stage that was running; while the broker is away two may have the answer at
    # once, and then whoever commits first goes on and the other follows. But none is begun once it is committed: that it is, is
    # known at the latest when it is on the log, or when anybody begins the next.
    begun = chain.begun()
    assert {whose for _, _, whose, _ in begun} == {owner}
    assert {(n, each.worker) for n, each in stages.items()} <= {(stage, by) for _, stage, _, by in begun}
    at = first(chain.log, StageVerified, lambda event: event.stage)
    next_one = {stage - 1: when for when, stage, _, _ in reversed(begun)}
    for when, stage, _, by in begun:
        known = min(at[stage].timestamp_ms / 1000, next_one.get(stage, math.inf))
        assert when <= known + NOTICE_S, f"{by} began stage {stage} after its commit"

    # The task ended once, as succeeded, and cost the attempt that died with its sampler and no more.
    states = [
        record.event
        for record in EpochFence().admitted(chain.log)
        if isinstance(record.event, TaskState)
    ]  # fmt: skip
    final = {msgspec.json.encode(event) for event in states if event.state in TERMINAL}
    assert len(final) == 1
    ends = next((e.state, e.attempt, e.losses) for e in states if e.state in TERMINAL)
    assert ends[:2] == ("succeeded", 2)
    assert ends[2] <= 1  # none in full where the sampler died before it could say that the lease was its own

    chain.stop()
    domains = chain.config.domains
    catalog = Catalog.load(domains.paths, domains.include, domains.exclude)
    log = asyncio.run(logs.read(chain.broker.bootstrap, ""))
    stored = asyncio.run(stored_fields(chain.redis.url, ""))
    found = audit(log, policies_of(catalog.cards, chain.config), catalog, settled=False, stored=stored)
    assert found.findings == []
    assert unchecked([found]) == []
    assert found.figures["epochs"] >= 1 + strikes["scheduler"]
