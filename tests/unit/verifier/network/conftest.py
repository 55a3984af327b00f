"""A proxy on loopback in front of a real server on loopback, and a client that speaks raw bytes."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from services.verifier.network import Allow, Log, Proxy, ProxyLimits
from services.verifier.network.hosts import IPAddress

LOOPBACK = ipaddress.ip_address("127.0.0.1")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Origin:
    """A server that runs `behave(connection)` in a thread for each connection; `got` holds what each one read."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.accepted = 0
        self.behave: Callable[[socket.socket], None] = self.answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._accept)
        self._main.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            connection.settimeout(10)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self.behave(connection)
            except OSError:
                return  # the proxy broke off: what was read until then counts

    def read_request(self, connection: socket.socket) -> bytes:
        """Head and as much body as Content-Length says, plus whatever else has come by then."""
        data = b""
        while b"\r\n\r\n" not in data and (chunk := connection.recv(65536)):
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        while len(body) < length and (chunk := connection.recv(65536)):
            body += chunk
        return head + b"\r\n\r\n" + body

    def answer(self, connection: socket.socket) -> None:
        self.got.append(self.read_request(connection))
        connection.sendall(OK)
        connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(65536):
            self.got[-1] += more

    def echo(self, connection: socket.socket) -> None:
        self.got.append(b"")
        while data := connection.recv(65536):
            self.got[-1] += data
            connection.sendall(data)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._main.join(10)
        for thread in self._threads:
            thread.join(15)
            assert not thread.is_alive()


@pytest.fixture
def origin() -> Iterator[Origin]:
    made = Origin()
    yield made
    made.close()


class Served:
    """A started proxy and its port; `resolved` lists the names it asked for."""

    def __init__(self, entries: str, **changes: Any) -> None:
        self.resolved: list[str] = []
        answers: dict[str, list[IPAddress]] = changes.pop("answers", {})

        async def resolve(name: str) -> list[IPAddress]:
            self.resolved.append(name)
            return answers.get(name, [LOOPBACK])

        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = listener.getsockname()[1]
        settings: dict[str, Any] = {
            "resolve": resolve,
            "refuse": lambda _: "",
            "limits": ProxyLimits(),
        } | changes
        self.proxy = Proxy(listener, Allow.parse(entries), **settings)
        self.proxy.start()

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def ask(self, data: bytes) -> bytes:
        """Send `data` and return all that comes back."""
        with self.connect() as sock:
            sock.sendall(data)
            return everything(sock)

    def finish(self) -> Log:
        """Stop when every connection so far has come to its end by itself; the log."""
        deadline = time.monotonic() + 10
        while not all(record.end for record in self.proxy._records) and time.monotonic() < deadline:
            time.sleep(0.002)  # nothing tells from outside
        return self.proxy.stop()


def everything(sock: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass  # closed with something of ours unread; what came before counts
    return data


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(entries: str, **changes: Any) -> Served:
        made.append(Served(entries, **changes))
        return made[-1]

    yield start
    for each in made:
        each.proxy.stop()
