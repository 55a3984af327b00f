"""One connection of the jailed program, from its first byte to its last.

Invariant: every wait here has a deadline, every byte is taken from a budget, and nothing goes out before the request is
wholly understood and its target found on the list.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from services.verifier.network.allow import Allow
from services.verifier.network.dial import CHUNK, Refuse, Resolve, Streams, dial, streams
from services.verifier.network.limits import Budget, OverBudgetError, ProxyLimits, Record
from services.verifier.network.request import RefusedError, Request, parse

LINGER_S = 1.0
LINGER_BYTES = 256 << 10
HEAD_END = re.compile(rb"\n\r?\n")
REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}


class SilenceError(Exception):
    """No byte has been moved for too long."""


class Idle:
    """How long nothing has been moved. A number that only `watch` acts on, so that a byte in the last moment disturbs nothing."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.moved()

    def moved(self) -> None:
        """Some bytes were moved just now."""
        self._end = asyncio.get_running_loop().time() + self._limit_s

    async def watch(self, moving: Collection[asyncio.Task[None]]) -> None:
        """Return when all of `moving` have ended. Raises SilenceError: nothing was moved within the limit."""
        pending: Collection[asyncio.Task[None]] = moving
        while pending:
            left = self._end - asyncio.get_running_loop().time()
            if left <= 0:
                raise SilenceError
            _, pending = await asyncio.wait(pending, timeout=left)


@dataclass(slots=True)
class Relay:
    """Serves connections; shared by those of one proxy. `clock` is the loop's."""

    allow: Allow
    resolve: Resolve
    refuse: Refuse
    limits: ProxyLimits
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.limits.up_bytes, self.limits.down_bytes)

    async def serve(self, client: socket.socket, record: Record) -> None:
        """Serve one accepted connection to its end and close it. Raises nothing but CancelledError."""
        try:
            reader, writer = await streams(client)
        except OSError as error:
            record.end = f"broken off ({error.strerror or type(error).__name__})"
            return
        try:
            async with asyncio.timeout(self.limits.total_s):
                await self._serve(reader, writer, record)
        except TimeoutError:
            record.end = f"ended at the limit of {self.limits.total_s:g} s"
        except OSError as error:
            record.end = f"broken off ({error.strerror or type(error).__name__})"
        except Exception as error:  # noqa: BLE001 (a fault of ours in one connection is told with it, and ends no other)
            record.end = (
                f"broken off by a fault of the proxy ({type(error).__name__}: {' '.join(str(error).split())})"
            )
        finally:
            writer.transport.abort()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Record
    ) -> None:
        try:
            head, rest = await self._read_head(reader)
            if not head:
                record.end = "closed without a request"
                return
            request = parse(head)
            record.target = f"{request.method} {request.host}:{request.port}"
            self._check(request)
            upstream, record.to = await dial(
                request.host, request.port, self.resolve, self.refuse, self.limits.connect_s
            )
        except RefusedError as refused:
            record.end = f"refused: {refused.reason}"
            await answer(reader, writer, refused)
            return
        try:
            await self._pass(request, rest, (reader, writer), upstream, record)
        finally:
            upstream[1].transport.abort()

    async def _read_head(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        """The head with its closing empty line, and what came after it; both empty when nothing was sent."""
        data = bytearray()
        try:
            async with asyncio.timeout(self.limits.head_s):
                while chunk := await reader.read(4096):
                    seen = max(len(data) - 3, 0)
                    data += chunk
                    found = HEAD_END.search(data, seen)
                    if found and found.end() <= self.limits.head_bytes:
                        return bytes(data[: found.end()]), bytes(data[found.end() :])
                    if len(data) > self.limits.head_bytes:
                        raise RefusedError(431, f"a head of more than {self.limits.head_bytes} bytes")
        except TimeoutError as error:
            raise RefusedError(408, f"no whole head within {self.limits.head_s:g} s") from error
        if data:
            raise RefusedError(400, "malformed: ended within the head")
        return b"", b""

    def _check(self, request: Request) -> None:
        """Raises RefusedError: not on the list, or more than may still be sent."""
        if not self.allow.permits(request.host, request.port):
            raise RefusedError(403, f"{request.host}:{request.port} is not on the list")
        if request.length > self.budget.up:
            raise RefusedError(413, f"more than the limit of {self.limits.up_bytes} bytes sent")

    async def _pass(
        self,
        request: Request,
        rest: bytes,
        client: Streams,
        upstream: Streams,
        record: Record,
    ) -> None:
        """Move the bytes, both ways at once, until both ends are done or a limit is met."""
        idle = Idle(self.limits.idle_s)
        if request.tunnel:
            client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            upstream[1].write(request.head)
            if request.waits and len(rest) < request.length:
                client[1].write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as group:
                both = (
                    group.create_task(self._up(request, rest, client[0], upstream[1], record, idle)),
                    group.create_task(self._down(upstream[0], client[1], record, idle)),
                )
                group.create_task(idle.watch(both))
            record.end = "done"
        except* OverBudgetError:
            record.end = "ended at the limit of bytes"
        except* SilenceError:
            record.end = f"ended after {self.limits.idle_s:g} s of silence"
        except* OSError as group:
            first = group.exceptions[0]
            record.end = f"broken off ({getattr(first, 'strerror', None) or type(first).__name__})"

    async def _up(
        self,
        request: Request,
        rest: bytes,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        record: Record,
        idle: Idle,
    ) -> None:
        """From the program: all it sends into a tunnel; of anything else just the body that it announced."""
        left = None if request.tunnel else request.length
        data = rest
        while left is None or left > 0:
            if not data:
                data = await source.read(CHUNK if left is None else min(CHUNK, left))
                if not data:
                    break
            if left is not None:
                data = data[:left]
                left -= len(data)
            if len(data) > self.budget.up:
                raise OverBudgetError
            self.budget.up -= len(data)
            record.up += len(data)
            sink.write(data)
            await sink.drain()
            idle.moved()
            data = b""
        if left != 0 and sink.can_write_eof():
            sink.write_eof()

    async def _down(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        record: Record,
        idle: Idle,
    ) -> None:
        """To the program: everything until the server is done."""
        while data := await source.read(CHUNK):
            if len(data) > self.budget.down:
                raise OverBudgetError
            self.budget.down -= len(data)
            record.down += len(data)
            sink.write(data)
            await sink.drain()
            idle.moved()
        if sink.can_write_eof():
            sink.write_eof()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: RefusedError) -> None:
    """Tell the program why, and wait a moment for its end, so that the answer is not lost in a reset."""
    body = f"{refused.reason}\n".encode("ascii", "backslashreplace")
    head = (
        f"HTTP/1.1 {refused.status} {REASONS[refused.status]}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii") + body)
    left = LINGER_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            await writer.drain()
            writer.write_eof()
            while left > 0 and (data := await reader.read(CHUNK)):
                left -= len(data)
