"""Connect to a target of the list.

Invariant: what is connected to is an address that was checked after resolving, never a name: whatever the name server
says next cannot matter any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from services.verifier.network import hosts
from services.verifier.network.hosts import IPAddress
from services.verifier.network.request import RefusedError
from services.verifier.network.resolve import ResolveError

MAX_TRIES = 4
CHUNK = 64 << 10

Resolve = Callable[[str], Awaitable[list[IPAddress]]]
Refuse = Callable[[IPAddress], str]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def dial(
    host: str, port: int, resolve: Resolve, refuse: Refuse, within_s: float
) -> tuple[Streams, str]:
    """A connection to `host` (in normal form), and the address it is to. Raises RefusedError."""
    try:
        async with asyncio.timeout(within_s):
            literal = hosts.address(host)
            found = [literal] if literal is not None else await resolve(host)
            sock, ip = await _first(found, port, refuse)
    except TimeoutError as error:
        raise RefusedError(504, f"no connection within {within_s:g} s") from error
    except ResolveError as error:
        raise RefusedError(502, str(error)) from error
    return await streams(sock), ip


async def _first(found: list[IPAddress], port: int, refuse: Refuse) -> tuple[socket.socket, str]:
    """The first address that is not refused and answers."""
    status, why = 502, "the name has no address"
    for ip in found[:MAX_TRIES]:
        reason = refuse(ip)
        if reason:
            status, why = 403, f"{ip} is {reason}"
            continue
        family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET  # noqa: PLR2004
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (str(ip), port))
        except OSError as error:
            sock.close()
            status, why = 502, f"{ip} cannot be reached: {error.strerror}"
        except BaseException:
            sock.close()
            raise
        else:
            return sock, str(ip)
    raise RefusedError(status, why)


async def streams(sock: socket.socket) -> Streams:
    """Streams over a connected socket, which they own from now on; `drain` waits until the kernel has taken all."""
    try:
        reader, writer = await asyncio.open_connection(sock=sock, limit=CHUNK)
    except BaseException:
        sock.close()
        raise
    writer.transport.set_write_buffer_limits(high=0)  # so that closing after a drain loses nothing
    return reader, writer
