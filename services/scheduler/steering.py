"""Controls as the command line takes them. Invariant: what can be seen to be refused is refused here, before it is sent."""

from __future__ import annotations

from schemas.tasks import (
    DomainDrained,
    DomainPaused,
    DomainResumed,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
)
from services.runtime.errors import BadInput
from services.scheduler.controls import Control
from services.scheduler.policies import Policies

USER = "by the user"


def control_of(
    command: str,
    subject: str,
    policies: Policies,
    *,
    nominal: str = "",
    borrow: str | None = None,
    lend: str | None = None,
) -> Control:
    """The event for `pause|resume|drain|quota SUBJECT`; `drain` and `resume` take a pool or a domain, a pool first.

    Raises:
        BadInput: no such domain or pool, or a quota that is no whole number of at least 0.
    """
    pools = {policies.pool, *policies.pools}
    if command in ("drain", "resume") and subject in pools:
        return PoolDrained(pool=subject, reason=USER) if command == "drain" else PoolResumed(pool=subject)
    if subject not in policies.domains:
        also = f", and pools are {', '.join(sorted(pools))}" if command in ("drain", "resume") else ""
        raise BadInput(f"unknown domain {subject!r}; `temper domains ls` lists the known ones{also}")
    match command:
        case "pause":
            return DomainPaused(domain=subject, reason=USER)
        case "resume":
            return DomainResumed(domain=subject)
        case "drain":
            return DomainDrained(domain=subject, reason=USER)
    return QuotaChanged(
        domain=subject,
        nominal=whole("quota", nominal),
        borrow=None if borrow is None else whole("--borrow", borrow),
        lend=None if lend is None else whole("--lend", lend),
    )


def whole(name: str, text: str) -> int:
    """A number of slots.

    Raises:
        BadInput: it is none.
    """
    try:
        value = int(text)
    except ValueError as error:
        raise BadInput(f"{name} {text[:40]!r} is no whole number; give slots at a time, or 0") from error
    if value < 0:
        raise BadInput(f"{name} {value} is negative; give slots at a time, or 0")
    return value
