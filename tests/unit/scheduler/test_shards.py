"""Shares over shards, with the real folds: what is configured is what is dispatched, and evaluation goes first everywhere."""

from __future__ import annotations

import pytest

from schemas.checkpoints import CheckpointPublished
from schemas.tasks import PolicyRef, TaskCancelled
from services.scheduler.policies import Policies, Policy
from tests.shards import Fleet

LAYERS = ("foundation", "tool", "domain")
DOMAINS = {f"d{at}": Policy(weight=1.0 + at % 4, layer=LAYERS[at % 3]) for at in range(9)}
WHOLE = sum(policy.weight for policy in DOMAINS.values())


def run(fleet: Fleet, dispatches: int) -> dict[str, int]:
    """So many dispatches with all domains backlogged; by domain."""
    before, end = fleet.sent.copy(), fleet.sent.total() + dispatches
    while fleet.sent.total() < end:
        for domain in fleet.policies.domains:
            fleet.top_up(domain, 30)
        fleet.turn(0.1)
    fleet.sound()
    return {domain: fleet.sent[domain] - before[domain] for domain in fleet.policies.domains}


@pytest.mark.parametrize(("shards", "slots"), [(2, 7), (3, 32)])
def test_weights_are_realised_over_all_shards(shards: int, slots: int) -> None:
    fleet = Fleet(Policies(domains=DOMAINS, groups_per_step=10**7, group_size=2), shards, slots=slots)
    assert len({fleet.owner(domain).policies.shard for domain in DOMAINS}) == shards
    run(fleet, 500)
    sent = run(fleet, 10_000)
    for domain, policy in DOMAINS.items():
        assert sent[domain] / sum(sent.values()) == pytest.approx(policy.weight / WHOLE, abs=0.02), sent


def test_layer_ratios_are_realised_over_all_shards() -> None:
    ratios = {"foundation": 5.0, "tool": 3.0, "domain": 2.0}
    policies = Policies(domains=DOMAINS, layers=ratios, groups_per_step=24, eta=10**7, group_size=2)
    fleet = Fleet(policies, 3, slots=32)
    fleet.passes = dict.fromkeys(DOMAINS, 0.5)
    run(fleet, 1000)
    sent = run(fleet, 10_000)
    for layer, ratio in ratios.items():
        share = sum(sent[name] for name, policy in DOMAINS.items() if policy.layer == layer) / sum(
            sent.values()
        )
        assert share == pytest.approx(ratio / 10.0, abs=0.02), layer


def test_scarce_training_tickets_follow_the_weights_too() -> None:
    policies = Policies(domains=DOMAINS, groups_per_step=24, eta=1, group_size=2)
    fleet = Fleet(policies, 2, slots=64)
    sent = dict.fromkeys(DOMAINS, 0)
    for version in range(1, 120):
        for domain in DOMAINS:
            fleet.top_up(domain, 30)
        for _ in range(25):
            fleet.turn(0.1)
        checkpoint = PolicyRef(version=version, uri="v", digest="d")
        fleet.log.write(
            "checkpoints", CheckpointPublished(run="run", policy=checkpoint, step=version), fleet.now
        )
    sent = dict(fleet.sent)
    assert sum(sent.values()) > 2500
    for domain, policy in DOMAINS.items():
        assert sent[domain] / sum(sent.values()) == pytest.approx(policy.weight / WHOLE, abs=0.02), sent


def test_evaluation_goes_before_the_training_of_other_shards() -> None:
    fleet = Fleet(Policies(domains=DOMAINS, groups_per_step=10**7, group_size=2), 2, slots=6)
    run(fleet, 100)
    domain = next(name for name in DOMAINS if fleet.owner(name).policies.shard == 1)
    for number in range(12):
        fleet.submit(f"eval-{number}", domain, purpose="eval")
    began = len(fleet.order)
    fleet.quiet(lambda: sum(event.task.purpose == "eval" for event in fleet.order) == 12)
    after = fleet.order[began:]
    assert sum(event.task.purpose == "train" for event in after) <= 12, (
        "training had what was granted already"
    )


def test_a_task_that_needs_all_slots_gets_them_though_two_shards_are_busy() -> None:
    names = [f"d{at}" for at in range(9)]
    policies = Policies(
        domains={name: Policy(slots=6 if name == "d0" else 1) for name in names},
        groups_per_step=10**7,
        group_size=2,
    )
    fleet = Fleet(policies, 2, slots=6)
    for name in names[1:]:
        fleet.top_up(name, 200)
    fleet.submit("big", "d0")
    fleet.quiet(lambda: any(event.task.id == "big" for event in fleet.order), 600)


def test_a_key_of_two_domains_in_two_shards_is_refused_to_the_second() -> None:
    fleet = Fleet(Policies(domains=DOMAINS, groups_per_step=10**7, group_size=2), 2, slots=4)
    one, two = (
        next(name for name in DOMAINS if fleet.owner(name).policies.shard == shard) for shard in (0, 1)
    )
    for number in range(6):
        fleet.submit(f"a{number}", one, idempotency_key=f"k{number}")
        fleet.submit(f"again{number}", one, idempotency_key=f"k{number}")
    fleet.quiet(lambda: all(f"a{number}" in fleet.states for number in range(6)))
    for number in range(6):
        fleet.submit(f"b{number}", two, idempotency_key=f"k{number}")
    fleet.quiet(lambda: all(f"b{number}" in fleet.states for number in range(6)))
    for number in range(6):
        refused = fleet.states[f"b{number}"][-1]
        assert (refused.state, refused.cause) == ("rejected", "key_reused")
        assert (
            refused.reason
            == f"idempotency key 'k{number}' was used with other content by task a{number}; use a new key"
        )
        assert f"again{number}" not in fleet.states, "a repeat is no task"


def test_a_submission_that_is_held_back_can_be_cancelled() -> None:
    fleet = Fleet(Policies(domains=DOMAINS, groups_per_step=10**7, group_size=2), 2, slots=0)
    domain = next(name for name in DOMAINS if fleet.owner(name).policies.shard == 1)
    names = [f"t{number}" for number in range(8)]
    for name in names:
        fleet.submit(name, domain, idempotency_key=f"k-{name}")
        fleet.log.write("tasks", TaskCancelled(task_id=name, reason="enough"), fleet.now)
    fleet.quiet(lambda: all(name in fleet.states for name in names))
    for name in names:
        assert fleet.states[name][-1].state == "cancelled"
    fleet.sound()
