"""The network of a card. Invariant: a job reaches only what the card lists, and a verdict given with the network on says so."""

from __future__ import annotations

from dataclasses import replace

from schemas.verdicts import Verdict, annotated
from services.verifier.jail import Jail, Job, Outcome
from services.verifier.network import Allow, AllowError, network
from services.verifier.specs import SpecError


def allowed(value: str) -> Allow | None:
    """What a card's `limits.network` lets its jobs reach; None for "none". Raises SpecError."""
    try:
        return network(value)
    except AllowError as error:
        raise SpecError(f"limits.network: {error}") from error


class Networked:
    """A jail whose jobs may reach the listed hosts, through the proxy alone."""

    def __init__(self, jail: Jail, allow: Allow) -> None:
        self._jail, self._allow = jail, allow

    def run(self, job: Job) -> Outcome:
        """As the jail within. A check of the verifier's goes without (`offline`): a program that it starts could tell."""
        return self._jail.run(job if job.offline else replace(job, network=self._allow))


def told(verdict: Verdict, allow: Allow) -> Verdict:
    """The verdict with the network named in its evidence."""
    return annotated(verdict, f"network {allow}")
