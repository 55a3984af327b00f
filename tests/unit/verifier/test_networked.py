from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas.cards import Card, parse_card
from services.verifier import engine
from services.verifier.jail import Job, Outcome

TEXT = 'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="terminal"\n[limits]\nnetwork={!r}\n'
SPEC = {"checks": [{"kind": "stdout", "text": "hi"}]}


class Recording:
    """A jail that keeps the jobs it was given."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def run(self, job: Job) -> Outcome:
        self.jobs.append(job)
        return Outcome(cause="exit", exit_code=0, stdout=b"hi\n", isolation="none")


@pytest.mark.parametrize("network", ["allow:", "allow", "all", "host", "allow:x", "allow:localhost:80,"])
def test_a_card_that_asks_for_network_without_a_list_is_at_fault(make_task: Any, network: str) -> None:
    jail = Recording()
    verdict = engine.judge(make_task(SPEC), unread(network), b"echo hi", jail)
    assert (verdict.outcome, verdict.score, jail.jobs) == ("infra", None, [])
    assert "limits.network" in verdict.evidence
    assert "\n" not in verdict.evidence


def unread(network: str) -> Card:
    """A card that no reader has looked at."""
    made = card("none")
    return msgspec.structs.replace(made, limits=msgspec.structs.replace(made.limits, network=network))


def card(network: str) -> Card:
    return parse_card(TEXT.format(network), "card")


def test_the_commands_of_a_card_reach_what_it_lists_and_the_verdict_says_so(make_task: Any) -> None:
    jail = Recording()
    verdict = engine.judge(make_task(SPEC), card("allow:pypi.example:443"), b"echo hi", jail)
    assert {str(job.network) for job in jail.jobs} == {"allow:pypi.example:443"}
    assert verdict.score == 1.0
    assert verdict.evidence.startswith("network allow:pypi.example:443")
    plain = Recording()
    other = engine.judge(make_task(SPEC), card("none"), b"echo hi", plain)
    assert {job.network for job in plain.jobs} == {None}
    assert "network" not in other.evidence
    assert other.digest != verdict.digest


@pytest.mark.parametrize("network", ["allow", "allow:", "all", "host", "allow:example.org"])
def test_a_card_that_asks_for_network_without_a_list_is_refused(make_task: Any, network: str) -> None:
    jail = Recording()
    verdict = engine.judge(make_task(SPEC), card(network), b"echo hi", jail)
    assert (verdict.outcome, jail.jobs) == ("infra", [])
    assert "limits.network" in verdict.evidence
    assert "\n" not in verdict.evidence


def test_the_network_is_part_of_what_a_cached_verdict_depends_on() -> None:
    off, on = card("none").limits, card("allow:a.example:1").limits
    assert msgspec.json.encode(off) != msgspec.json.encode(on)


def test_a_check_of_the_verifiers_has_no_network_unless_it_says_so(make_task: Any) -> None:
    """It may start the answer's program, which could tell what it is asked; and a verdict may not hang on a host."""
    own = [{"name": "c", "run": "cat a"}, {"name": "d", "run": "cat a", "network": True}]
    jail = Recording()
    spec = SPEC | {"files": {"a": ""}, "commands": own}
    verdict = engine.judge(make_task(spec), card("allow:pypi.example:443"), b"echo hi", jail)
    assert verdict.evidence.startswith("network allow:pypi.example:443")
    on = "allow:pypi.example:443"
    assert [str(job.network) for job in jail.jobs] == [on, "None", on]
