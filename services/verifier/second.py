"""Second runs of settled verdicts. Invariant: a second run decides nothing but whether the first is still remembered."""

from __future__ import annotations

import logging

from schemas.verdicts import Verdict
from services.runtime import telemetry
from services.verifier.cache import Cache
from services.verifier.jobs import Job, Judged

log = logging.getLogger(__name__)


def compare(job: Job, first: Verdict, judged: Judged, cache: Cache, stats: dict[str, float]) -> None:
    """Count whether a second run came to the first verdict; one that did not is a warning, and is forgotten."""
    second = judged.verdict
    if second.outcome == "infra" or not judged.settled:
        stats["unsettled"] += 1
        return
    agree = first.digest == second.digest
    stats["reverified"] += 1
    with telemetry.span("reverify", attributes={"domain": job.domain, "agree": agree}):
        if agree:
            return
        stats["disagreements"] += 1
        cache.drop(job.key)
        log.warning("verdicts disagree in %s: %s against %s", job.domain, first.digest, second.digest)
