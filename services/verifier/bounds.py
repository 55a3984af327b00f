"""What a worker's own checks may use for one answer. Invariant: processor time and memory bound them, never the wall clock.

A check outside the jail works on a model's text, so a text can be found that makes one run for ever or take all memory. The
kernel ends the worker then; how it ended tells the pool that the answer was at fault (hand.py) and not the machine. Jail
runs are outside these bounds: they have their own, and what they start would inherit the memory bound.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TIMER = signal.ITIMER_PROF
MEMORY_STATUS = 76
"""Exit status of a worker whose check ran out of memory."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Processor seconds of one answer's checks, and bytes of private memory of the worker (RLIMIT_DATA)."""

    cpu_s: float
    memory_bytes: int

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Bound what runs within. Beyond the processor time the process dies of SIGPROF; beyond the memory, MemoryError."""
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (self.memory_bytes, hard))
        signal.setitimer(TIMER, self.cpu_s)
        try:
            yield
        finally:
            signal.setitimer(TIMER, 0.0)
            resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Within `armed`: no bounds, and the time does not count."""
        left, _ = signal.setitimer(TIMER, 0.0)
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
            signal.setitimer(TIMER, left)
