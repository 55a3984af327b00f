"""Where the answers of a domain wait while it is not judged (breaker.py).

Invariant: an answer leaves with the right to be judged, with the reason why it will not be, or by `leave`; it waits no longer
than it may, and no more than `most` wait. So a fault that passes costs no answer one of its tries: a refusal would be asked
for again at once, and a domain would have spent its budget of `infra` in the seconds that a repair takes.

After a pause one waiting answer goes, as the probe; if that is judged well, all go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from services.verifier.breaker import Breaker
from services.verifier.track import HandedBackError

HOLD_SHARE = 0.75
"""Of the time that a card gives for a verdict: held longer, it would be given up by who waits for it."""
log = logging.getLogger(__name__)


class Gate:
    """The breaker with a place to wait before it, for `most` answers of all domains together; 0: none waits."""

    def __init__(self, breaker: Breaker, most: int) -> None:
        self._breaker, self._most = breaker, most
        self._changed: dict[str, asyncio.Event] = {}
        self._ending = False
        self.waiting = 0
        self.refused = 0
        self.opened = 0

    @property
    def open_count(self) -> int:
        """Domains of which nothing, or only a probe, is judged."""
        return self._breaker.open_count

    async def enter(self, domain: str, until: float, probe_s: float) -> tuple[str, bool]:
        """("", whether it is the probe) once an answer of `domain` may be judged; (why it may not, False) at `until`.

        `until`: CLOCK_MONOTONIC seconds. `probe_s`: the longest that a probe may take to say something.

        Raises:
            HandedBackError: `leave` was called while it waited.
        """
        while True:
            now = time.monotonic()
            said = self._breaker.refusal(domain, now, probe_s)
            if not said:
                return "", self._breaker.open(domain)
            if self.waiting >= self._most or now >= until:
                self.refused += 1
                return said, False
            if self._ending:
                raise HandedBackError(said)
            changed = self._changed.setdefault(domain, asyncio.Event())
            self.waiting += 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, min(until, self._breaker.until(domain)) - now)):
                        await changed.wait()
            finally:
                self.waiting -= 1

    def stopped(self, domain: str, probe_s: float) -> str:
        """Why an answer that has entered is not judged after all: the breaker opened since. Empty if it is judged."""
        return self._breaker.refusal(domain, time.monotonic(), probe_s)

    def note(self, domain: str, fault: str) -> None:
        """What judging an answer gave: `fault` empty, or the reason of an infra verdict."""
        now = time.monotonic()
        change = self._breaker.note(domain, fault, now)
        if change == "opened":
            self.opened += 1
            log.warning("%s", self._breaker.shut(domain, now))
        elif change:
            log.info("domain %s is judged again", domain)
        if change:
            self._wake(domain)

    def leave(self) -> None:
        """Whoever waits, or comes later, waits no longer: the service is ending."""
        self._ending = True
        for domain in list(self._changed):
            self._wake(domain)

    def _wake(self, domain: str) -> None:
        event = self._changed.pop(domain, None)
        if event is not None:
            event.set()
