"""What the list allows passes, byte for byte; what it does not allow gets no further than the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.verifier.network import Allow, Proxy, ProxyError, ProxyLimits
from services.verifier.network import resolve as resolving
from services.verifier.network.hosts import IPAddress
from services.verifier.network.resolve import ResolveError

LOOPBACK = ipaddress.ip_address("127.0.0.1")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_get(origin: Any, serve: Callable[..., Any]) -> None:
    served = serve(f"allow:a.example:{origin.port}")
    client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    client.request("GET", f"http://a.example:{origin.port}/x?y", headers={"Host": f"a.example:{origin.port}"})
    reply = client.getresponse()
    assert (reply.status, reply.read()) == (200, b"ok")
    client.close()
    assert origin.got[0].startswith(b"GET /x?y HTTP/1.1\r\nHost: a.example:%d\r\n" % origin.port)
    (line,) = served.finish()
    assert line == f"GET a.example:{origin.port} (127.0.0.1): 0 bytes up, 59 down, done"
    assert served.resolved == ["a.example"]


def test_post_waits_for_the_go_ahead(origin: Any, serve: Callable[..., Any]) -> None:
    served = serve(f"allow:a.example:{origin.port}")
    with served.connect() as sock:
        sock.sendall(
            b"POST http://a.example:%d/ HTTP/1.1\r\nHost: a.example:%d\r\nContent-Length: 70000\r\n"
            b"Expect: 100-continue\r\n\r\n" % (origin.port, origin.port)
        )
        assert sock.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"b" * 70_000)
        reply = b"".join(iter(lambda: sock.recv(65536), b""))
    assert reply.endswith(b"\r\n\r\nok")
    assert origin.got[0].endswith(b"\r\n\r\n" + b"b" * 70_000)
    assert b"Expect" not in origin.got[0]


def test_tunnel_both_ways_and_half_closed(origin: Any, serve: Callable[..., Any]) -> None:
    """The client's end of file reaches the server, and all that the server says afterwards reaches the client."""

    def count(connection: socket.socket) -> None:
        total = 0
        while data := connection.recv(65536):
            total += len(data)
        connection.sendall(b"%d" % total + b"." * 200_000)

    origin.behave = count
    served = serve(f"allow:a.example:{origin.port}")
    with served.connect() as sock:
        sock.sendall(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\nearly" % origin.port)
        assert sock.recv(39, socket.MSG_WAITALL) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        sock.sendall(b"x" * 300_000)
        sock.shutdown(socket.SHUT_WR)
        reply = b"".join(iter(lambda: sock.recv(65536), b""))
    assert reply == b"300005" + b"." * 200_000
    (line,) = served.finish()
    assert line.endswith("300005 bytes up, 200006 down, done")


def test_a_dialogue_through_the_tunnel(origin: Any, serve: Callable[..., Any]) -> None:
    origin.behave = origin.echo
    served = serve(f"allow:a.example:{origin.port}")
    with served.connect() as sock:
        sock.sendall(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port)
        sock.recv(39, socket.MSG_WAITALL)
        for n in range(50):
            sock.sendall(b"%4d" % n)
            assert sock.recv(4, socket.MSG_WAITALL) == b"%4d" % n


@pytest.mark.parametrize(
    "target",
    ["b.example:{port}", "a.example:1", "x.a.example:{port}", "127.0.0.1:{port}", "localhost:{port}"],
)
def test_what_is_not_on_the_list(origin: Any, serve: Callable[..., Any], target: str) -> None:
    served = serve(f"allow:a.example:{origin.port}")
    authority = target.format(port=origin.port)
    answer = served.ask(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    assert status(answer) == 403
    assert b"is not on the list" in answer
    assert origin.accepted == 0
    assert served.resolved == []  # not even asked for: a name can carry data out
    (line,) = served.finish()
    assert line == f"CONNECT {authority}: refused: {authority} is not on the list"


@pytest.mark.parametrize("entry", ["localhost", "127.0.0.1", "a.example"])
def test_loopback_is_refused_even_if_allowed(origin: Any, serve: Callable[..., Any], entry: str) -> None:
    """With the rule that is really in force."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async def resolve(_: str) -> list[IPAddress]:
        return [LOOPBACK]

    proxy = Proxy(listener, Allow.parse(f"allow:{entry}:{origin.port}"), resolve=resolve)
    proxy.start()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(f"CONNECT {entry}:{origin.port} HTTP/1.1\r\nHost: {entry}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert status(answer) == 403
    (line,) = proxy.stop()
    assert line.endswith("127.0.0.1 is loopback")
    assert origin.accepted == 0


def test_the_address_that_was_checked_is_the_one_connected_to(origin: Any, serve: Callable[..., Any]) -> None:
    """A name that answers differently the second time is asked only once."""
    asked: list[str] = []

    async def fickle(name: str) -> list[IPAddress]:
        asked.append(name)
        return [LOOPBACK if len(asked) > 1 else ipaddress.ip_address("127.0.0.2")]

    checked: list[str] = []

    def refuse(ip: IPAddress) -> str:
        checked.append(str(ip))
        return "secret" if ip == LOOPBACK else ""

    served = serve(f"allow:a.example:{origin.port}", resolve=fickle, refuse=refuse)
    # Nothing listens at 127.0.0.2; the server at 127.0.0.1 must not be reached instead.
    answer = served.ask(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port)
    assert status(answer) == 502
    assert (asked, checked) == (["a.example"], ["127.0.0.2"])
    assert origin.accepted == 0
    answer = served.ask(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port)
    assert status(answer) == 403
    assert origin.accepted == 0


def test_refused_addresses_of_a_name_are_passed_over(origin: Any, serve: Callable[..., Any]) -> None:
    answers = {"a.example": [ipaddress.ip_address(x) for x in ("169.254.169.254", "::1", "127.0.0.1")]}
    served = serve(
        f"allow:a.example:{origin.port}",
        answers=answers,
        refuse=lambda ip: "" if ip == LOOPBACK else "link-local",
    )
    assert status(served.ask(b"GET http://a.example:%d/ HTTP/1.0\r\n\r\n" % origin.port)) == 200


def test_names_that_do_not_resolve(serve: Callable[..., Any]) -> None:
    async def nothing(_: str) -> list[IPAddress]:
        raise ResolveError("the name has no address")

    served = serve("allow:a.example:80", resolve=nothing)
    assert status(served.ask(b"GET http://a.example/ HTTP/1.0\r\n\r\n")) == 502
    assert served.finish() == ("GET a.example:80: refused: the name has no address",)


def test_a_name_server_that_never_answers(serve: Callable[..., Any]) -> None:
    async def never(_: str) -> list[IPAddress]:
        await asyncio.Event().wait()
        return []

    served = serve("allow:a.example:80", resolve=never, limits=ProxyLimits(connect_s=0.2))
    assert status(served.ask(b"GET http://a.example/ HTTP/1.0\r\n\r\n")) == 504


def test_the_systems_own_resolver() -> None:
    assert LOOPBACK in asyncio.run(resolving.resolve("localhost"))
    with pytest.raises(ResolveError, match="no address"):
        asyncio.run(resolving.resolve("name.invalid"))


def test_a_look_up_is_killed_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "getent"
    fake.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setitem(resolving.ENVIRONMENT, "PATH", f"{tmp_path}:/usr/bin:/bin")

    async def main() -> None:
        async with asyncio.timeout(1.0):
            await resolving.resolve("a.example")

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert time.monotonic() - begun < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_resolver_output_is_only_addresses() -> None:
    text = "93.184.216.34   STREAM example\n93.184.216.34 DGRAM\nfe80::1%eth0 STREAM\nnot-one RAW\n\n::1\n"
    assert [str(ip) for ip in resolving.parse(text)] == ["93.184.216.34", "fe80::1%eth0", "::1"]


def test_nothing_is_left(origin: Any) -> None:
    """Neither threads nor descriptors, although connections were going on."""
    origin.behave = origin.echo
    threads, before = threading.active_count(), descriptors()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async def resolve(_: str) -> list[IPAddress]:
        return [LOOPBACK]

    proxy = Proxy(
        listener, Allow.parse(f"allow:a.example:{origin.port}"), resolve=resolve, refuse=lambda _: ""
    )
    proxy.start()
    clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(20)]
    for sock in clients[:5]:
        sock.sendall(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port)
        assert sock.recv(39, socket.MSG_WAITALL).startswith(b"HTTP/1.1 200")
    for sock in clients[5:10]:
        sock.sendall(b"GET ")
    begun = time.monotonic()
    log = proxy.stop()
    assert time.monotonic() - begun < 5
    assert proxy.stop() == log
    assert (
        sum("broken off at the end of the job" in line for line in log) == 16
    )  # as many as are served at once
    for sock in clients:
        sock.close()
    origin.close()
    origin.close = lambda: None
    assert threading.active_count() <= threads
    assert descriptors() <= before


def test_stop_without_start() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    assert Proxy(listener, Allow.parse("allow:a.example:80")).stop() == ()
    assert listener.fileno() == -1


def test_a_loop_that_cannot_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that cannot be accepted from: an error of ours, told by stop, and nothing left behind."""
    threads = threading.active_count()
    proxy = Proxy(socket.socket(), Allow.parse("allow:a.example:80"))  # does not listen
    with pytest.raises(ProxyError, match="Invalid argument"):
        start_and_stop(proxy)
    assert threading.active_count() == threads


def start_and_stop(proxy: Proxy) -> None:
    proxy.start()
    proxy.stop()


def test_no_thread_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = Proxy(listener, Allow.parse("allow:a.example:80"))

    def none_left() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(proxy._thread, "start", none_left)
    with pytest.raises(ProxyError, match="did not start: can't start new thread"):
        proxy.start()
    assert listener.fileno() == -1


def test_a_proxy_that_starts_too_late_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.verifier.network.proxy.START_S", 0.0)
    threads = threading.active_count()
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = Proxy(listener, Allow.parse("allow:a.example:80"))
    with contextlib.suppress(ProxyError):  # it may be in time all the same
        proxy.start()
        proxy.stop()
    assert threading.active_count() == threads
    assert listener.fileno() == -1
