"""Commands whose output is read. Invariant: a reader that goes away (`| head`) ends a command quietly; nothing else does."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

ENDED = 128 + signal.SIGPIPE
"""Exit status, as a shell has it for a program that SIGPIPE ended."""


def command(run: Callable[[], int]) -> int:
    """Exit status of `run`, all its output written; `ENDED` if nobody reads that any more."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _unread(sys.stdout.fileno()):
            raise
        # The interpreter writes what is left at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return ENDED


def _unread(descriptor: int) -> bool:
    """Whether it is a pipe or a socket without a reader."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
