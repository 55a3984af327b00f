"""Health that means progress. Invariant: a service is healthy only while each of its activities beats within its own deadline."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import msgspec
import uvicorn

from services.runtime.errors import Unavailable

START_S = 10.0
STOP_S = 5.0
log = logging.getLogger(__name__)
Clock = Callable[[], float]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Progress:
    """Signs of progress of the activities in one process."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._beats: dict[str, tuple[float, float]] = {}
        self._ready = False
        self._draining = False

    def beat(self, name: str, *, deadline_s: float) -> None:
        """Activity `name` has moved; the next beat is due within `deadline_s` seconds."""
        self._beats[name] = (self._clock(), deadline_s)

    def forget(self, name: str) -> None:
        """Activity `name` has ended and is no longer expected to beat."""
        self._beats.pop(name, None)

    def ready(self, *, ready: bool = True) -> None:
        """The service takes work (or not yet)."""
        self._ready = ready

    def drain(self) -> None:
        """The service takes no more work."""
        self._draining = True

    @property
    def is_ready(self) -> bool:
        """Whether the service takes work and all its activities are on time."""
        return self._ready and not self._draining and self.status()[0]

    def status(self) -> tuple[bool, dict[str, Any]]:
        """Whether no activity is overdue, and for each its age and deadline in seconds."""
        now = self._clock()
        activities = {
            name: {"age_s": round(now - at, 3), "deadline_s": deadline, "ok": now - at <= deadline}
            for name, (at, deadline) in sorted(self._beats.items())
        }
        ok = all(activity["ok"] for activity in activities.values())
        return ok, {"ok": ok, "ready": self._ready, "draining": self._draining, "activities": activities}


def application(progress: Progress) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """ASGI application: `/healthz` (200 while everything is on time, else 503), `/readyz` (200 while it also takes work)."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 (ASGI)
        if scope["type"] != "http":
            return
        ok, detail = progress.status()
        known = scope["path"] in ("/healthz", "/readyz")
        status = {"/healthz": 200 if ok else 503, "/readyz": 200 if progress.is_ready else 503}.get(
            scope["path"], 404
        )
        body = msgspec.json.encode(detail if known else {"error": "only /healthz and /readyz are here"})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return app


class Endpoint:
    """The health endpoint of one process, on the loopback interface unless told otherwise."""

    def __init__(self, progress: Progress, port: int = 0, host: str = "127.0.0.1") -> None:
        self._progress, self.port, self._host = progress, port, host
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Serve; returns the bound port.

        Raises:
            Unavailable: the port is in use.
        """
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, self.port))
            sock.listen(64)
        except OSError as error:
            sock.close()
            raise Unavailable(
                f"health endpoint {self._host}:{self.port}: {error.strerror}; set TEMPER_HEALTH_PORT to 0 or a free port"
            ) from error
        self.port = int(sock.getsockname()[1])
        config = uvicorn.Config(
            application(self._progress),
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]), name="health")
        return self.port

    async def stop(self) -> None:
        """Stop serving, within a deadline."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=STOP_S)
        if not done:
            self._task.cancel()
            log.warning("the health endpoint did not stop in time")
        self._server = self._task = None


class _Server(uvicorn.Server):
    """Signals belong to the process's own life cycle, not to its health endpoint."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(progress: Progress, port: int = 0) -> int:
    """Serve the health of `progress` on the loopback interface until the event loop ends; returns the bound port.

    A service that `lifecycle.main` runs has its endpoint already.

    Raises:
        Unavailable: the port is in use.
    """
    endpoint = Endpoint(progress, port)
    bound = await endpoint.start()
    _serving.append(endpoint)  # Referenced, or the server's task might be collected.
    return bound


_serving: list[Endpoint] = []
