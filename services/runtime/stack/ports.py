"""No fixed ports: a start asks the kernel for free loopback ports, or checks the one it was given."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from services.runtime.stack.errors import StackError

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """`count` different loopback ports that were free a moment ago (who loses the race starts again)."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def require_free(port: int, what: str) -> None:
    """Check that a port which the user named can be bound.

    Raises:
        StackError: it is taken, or may not be bound.
    """
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise StackError(
                f"{what}: port {port} on {HOST} cannot be used ({reason}): name another, or none"
            ) from error
