"""What tests of quotas share: a table of domains, tasks for them, and what they hold."""

from __future__ import annotations

from typing import Any

from services.scheduler.policies import Policies, Policy
from tests.unit.scheduler.conftest import Bench

CARD = """
name = "x"
layer = "foundation"
summary = "s"
generator = "a:b"
[verifier]
family = "format"
"""


def table(**domains: Policy) -> Policies:
    return Policies(domains=domains, group_size=2, eta=10_000, ready_cap=1000)


def fill(bench: Bench, domain: str, count: int, start: int = 0, **fields: Any) -> None:
    for number in range(start, start + count):
        bench.submit(f"{domain}{number}", domain, **fields)


def held(bench: Bench) -> dict[str, int]:
    return {name: leases.slots for name, leases in sorted(bench.state.held.items()) if leases.slots}


def finish(bench: Bench, domain: str, count: int) -> None:
    running = [entry for entry in bench.state.live.values() if entry.domain == domain and entry.lease_id]
    for entry in running[:count]:
        bench.verdicts(entry.id, 1.0, 0.0)
