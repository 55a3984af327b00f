"""Start, drain and end of a service process. Invariant: the process ends in time, with a status and one line that say why.

Exit status: 0 done or drained, 2 wrong input, 3 something failed. SIGTERM or SIGINT asks for a drain; a second one, or
the drain deadline (TEMPER_DRAIN_S, 20 s unless set), ends the process at once with status 3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable

from services.runtime import settings, telemetry
from services.runtime.errors import BadInput, one_line
from services.runtime.health import Endpoint, Progress
from services.runtime.settings import Process

DRAIN_S = 20.0
LONGEST_DRAIN_S = 86_400.0
OK, WRONG, FAILED = 0, 2, 3
log = logging.getLogger(__name__)


class Lifecycle:
    """What a running service knows about its own life."""

    def __init__(self, drain_s: float = DRAIN_S) -> None:
        self.stop = asyncio.Event()
        """Set when the service is to take no more work, finish or hand back what it has, and return."""
        self.progress = Progress()
        """Beat here; the health endpoint shows it."""
        self.drain_s = drain_s
        self.reason = ""

    def drain(self, reason: str) -> None:
        """Ask for the drain from inside."""
        if not self.stop.is_set():
            self.reason = reason
            self.progress.drain()
            self.stop.set()
            log.info("draining: %s", reason)


Run = Callable[[Process, Lifecycle], Awaitable[None]]


def main(service: str, run: Run) -> int:
    """Run a service to its end; returns the exit status."""
    try:
        process = settings.process(service)
        drain_s = _drain_s()
    except BadInput as error:
        sys.stderr.write(f"{service}: {one_line(error)}\n")
        return WRONG
    telemetry.setup(service, worker=process.worker)
    # What is left when the service has returned, such as a thread that hangs, must not keep the process either.
    leftover = threading.Timer(
        drain_s, _end, args=(f"{service}: threads did not end within {drain_s:g} s, ending",)
    )
    leftover.daemon = True
    try:
        return asyncio.run(_main(service, process, run, drain_s, leftover.start))
    finally:
        leftover.cancel()


async def _main(service: str, process: Process, run: Run, drain_s: float, ended: Callable[[], None]) -> int:
    life = Lifecycle(drain_s)
    endpoint = Endpoint(life.progress, process.health_port)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, life, service, number)
    try:
        port = await endpoint.start()
        log.info("%s %s started, health at http://127.0.0.1:%d/healthz", service, process.worker, port)
        await run(process, life)
    except Exception as error:  # noqa: BLE001 (where everything ends)
        _report(service, error)
        return WRONG if isinstance(error, BadInput) else FAILED
    finally:
        ended()
        await endpoint.stop()
        telemetry.shutdown(min(5.0, drain_s))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    log.info("%s %s ended%s", service, process.worker, f": {life.reason}" if life.reason else "")
    return OK


def _signalled(life: Lifecycle, service: str, number: signal.Signals) -> None:
    if life.stop.is_set():
        _end(f"{service}: {number.name} again, ending without a drain")
    life.drain(number.name)
    # A thread and not the event loop: the deadline must hold even when the loop is blocked.
    timer = threading.Timer(
        life.drain_s, _end, args=(f"{service}: not drained within {life.drain_s:g} s, ending",)
    )
    timer.daemon = True
    timer.start()


def _end(message: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, message.encode() + b"\n")
    os._exit(FAILED)


def _report(service: str, error: Exception) -> None:
    leaves = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
    for leaf in leaves:
        log.error(
            "%s: %s", service, one_line(leaf), exc_info=leaf if log.isEnabledFor(logging.DEBUG) else None
        )


def _drain_s() -> float:
    text = os.environ.get("TEMPER_DRAIN_S") or str(DRAIN_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds <= LONGEST_DRAIN_S:
        raise settings.SettingsError(f"TEMPER_DRAIN_S is {text!r}; give seconds between 0 and 86400")
    return seconds
