"""A hostile program on the inside of the proxy: it gets nothing that the list does not give, and costs little."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from services.verifier.network import ProxyLimits


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def get(port: int, extra: bytes = b"") -> bytes:
    return b"GET http://a.example:%d/ HTTP/1.1\r\nHost: a.example:%d\r\n%s\r\n" % (port, port, extra)


def test_a_second_request_is_never_passed_on(origin: Any, serve: Callable[..., Any]) -> None:
    """Pipelined behind a GET, behind a POST's body, and inside a body that claims to be empty."""
    served = serve(f"allow:a.example:{origin.port}")
    second = b"GET http://internal/ HTTP/1.1\r\nHost: internal\r\n\r\n"
    assert status(served.ask(get(origin.port) + second)) == 200
    assert status(served.ask(get(origin.port, b"Content-Length: 0\r\n") + second)) == 200
    post = get(origin.port, b"Content-Length: 4\r\n").replace(b"GET", b"POST", 1)
    assert status(served.ask(post + b"body" + second)) == 200
    served.finish()
    assert len(origin.got) == 3
    assert not any(b"internal" in got for got in origin.got)
    assert origin.got[2].endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize(
    "extra",
    [
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"X: y\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 50\r\n",
        b"Host: internal\r\n",
        b"X: y\rHost: internal\r\n",
    ],
)
def test_smuggling_is_refused_before_anything_goes_out(
    origin: Any, serve: Callable[..., Any], extra: bytes
) -> None:
    served = serve(f"allow:a.example:{origin.port}")
    assert status(served.ask(get(origin.port, extra) + b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n")) == 400
    assert origin.accepted == 0
    (line,) = served.finish()
    assert "refused: " in line


@pytest.mark.parametrize(
    "target",
    [
        "http://allowed@127.0.0.1:{port}/", "http://allowed:{port}@127.0.0.1:{port}/", "http://127.0.0.1:{port}/",
        "http://2130706433:{port}/", "http://0x7f.1:{port}/", "http://0177.0.0.1:{port}/", "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/", "http://[fe80::1%25eth0]:{port}/", "http://127.0.0.1.:{port}/",
        "http://allowed:{port}\\@127.0.0.1/", "http://allowed:{port}#@127.0.0.1/", "http://localhost:{port}/",
        "http://allowed.:1/", "http://allowed%2e:{port}/", "http://allowed:{port}:{port}/",
    ],
)  # fmt: skip
def test_targets_that_try_to_be_somewhere_else(origin: Any, serve: Callable[..., Any], target: str) -> None:
    served = serve(f"allow:allowed:{origin.port}")
    url = target.format(port=origin.port)
    authority = url.removeprefix("http://").split("/")[0]
    for host in (authority, f"allowed:{origin.port}"):
        assert status(served.ask(f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())) in (400, 403)
    assert status(served.ask(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())) in (
        400,
        403,
    )
    assert origin.accepted == 0
    assert served.resolved == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET http://a.example/ HTTP/1.1\r\nX: " + b"y" * 100_000,
        b"GET http://a.example/" + b"y" * 100_000,
        b"GET http://a.example/ HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
        b"y" * 1_000_000,
    ],
)
def test_huge_heads(serve: Callable[..., Any], data: bytes) -> None:
    served = serve("allow:a.example:80")
    with served.connect() as sock:
        with contextlib.suppress(OSError):  # it stops reading long before the end
            sock.sendall(data)
        with contextlib.suppress(OSError):
            assert status(sock.recv(65536)) == 431
    (line,) = served.finish()
    assert line == "?: refused: a head of more than 16384 bytes"


@pytest.mark.parametrize("data", [b"", b"G", b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"])
def test_an_end_within_the_head(serve: Callable[..., Any], data: bytes) -> None:
    served = serve("allow:a.example:80")
    with served.connect() as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert (status(answer) == 400) if data else (answer == b"")


@pytest.mark.parametrize(
    "data", [b"\r\n\r\n", b"\n\n", b"\x16\x03\x01\0\0\n\n", b"\0" * 64 + b"\r\n\r\n", b"\xff\n\n"]
)
def test_what_is_no_http_is_told_at_once(serve: Callable[..., Any], data: bytes) -> None:
    served = serve("allow:a.example:80", limits=ProxyLimits(head_s=60.0))
    begun = time.monotonic()
    assert status(served.ask(data)) == 400
    assert time.monotonic() - begun < 30


def test_slow_heads_end_by_the_clock(serve: Callable[..., Any]) -> None:
    """A byte now and then does not keep a place: the deadline is for the whole head."""
    served = serve("allow:a.example:80", limits=ProxyLimits(head_s=0.6))
    begun = time.monotonic()
    with served.connect() as sock:
        sock.settimeout(0.1)
        answer = b""
        while not answer and time.monotonic() - begun < 10:
            sock.sendall(b"X")
            with contextlib.suppress(TimeoutError):
                answer = sock.recv(65536)
    assert status(answer) == 408
    assert time.monotonic() - begun < 5


def test_a_thousand_silent_connections(origin: Any, serve: Callable[..., Any]) -> None:
    """They wait for each other, not for us; those that ask are served when a place is free, and all are counted."""
    limits = ProxyLimits(at_once=8, connections=1100, head_s=30.0, log_lines=5)
    served = serve(f"allow:a.example:{origin.port}", limits=limits)
    flood = [served.connect() for _ in range(1000)]
    for sock in flood:
        sock.close()  # now each is an end of file at once
    assert status(served.ask(get(origin.port))) == 200
    log = served.finish()
    assert log[:5] == ("?: closed without a request",) * 5
    assert log[5:] == ("996 more connections",)


def test_idle_holders_give_way(origin: Any, serve: Callable[..., Any]) -> None:
    served = serve(f"allow:a.example:{origin.port}", limits=ProxyLimits(at_once=4, head_s=0.3))
    holders = [served.connect() for _ in range(12)]
    begun = time.monotonic()
    assert status(served.ask(get(origin.port))) == 200
    assert 0.5 < time.monotonic() - begun < 20
    for sock in holders:
        sock.close()


def test_connections_in_all_are_bounded(origin: Any, serve: Callable[..., Any]) -> None:
    served = serve(f"allow:a.example:{origin.port}", limits=ProxyLimits(connections=3))
    for _ in range(3):
        assert status(served.ask(get(origin.port))) == 200
    while served.proxy._listener.fileno() >= 0:
        time.sleep(0.01)  # nothing tells from outside when it is closed, a moment after the third was taken
    with pytest.raises(ConnectionRefusedError):
        served.connect()
    log = served.finish()
    assert len(log) == 3
    assert origin.accepted == 3


def test_bytes_out_are_bounded_for_all_connections_together(origin: Any, serve: Callable[..., Any]) -> None:
    origin.behave = origin.echo
    served = serve(f"allow:a.example:{origin.port}", limits=ProxyLimits(up_bytes=100_000))
    connect = b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port
    for _ in range(4):
        with served.connect() as sock, contextlib.suppress(OSError):
            sock.sendall(connect + b"x" * 60_000)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
    log = served.finish()
    assert sum(len(got) for got in origin.got) <= 100_000
    assert sum("ended at the limit of bytes" in line for line in log) >= 2


def test_a_body_over_the_limit_is_refused_at_once(origin: Any, serve: Callable[..., Any]) -> None:
    served = serve(f"allow:a.example:{origin.port}")
    post = get(origin.port, b"Content-Length: 999999999999\r\n").replace(b"GET", b"POST", 1)
    assert status(served.ask(post)) == 413
    assert origin.accepted == 0


def test_bytes_in_are_bounded(origin: Any, serve: Callable[..., Any]) -> None:
    def flood(connection: socket.socket) -> None:
        connection.recv(65536)
        while True:
            connection.sendall(b"f" * 65536)

    origin.behave = flood
    served = serve(f"allow:a.example:{origin.port}", limits=ProxyLimits(down_bytes=1 << 20))
    assert len(served.ask(get(origin.port))) <= 1 << 20
    (line,) = served.finish()
    assert line.endswith("ended at the limit of bytes")


def test_a_reader_that_stops_reading_holds_no_memory_and_no_place(
    origin: Any, serve: Callable[..., Any]
) -> None:
    sent = []

    def flood(connection: socket.socket) -> None:
        connection.recv(65536)
        while True:
            sent.append(connection.send(b"f" * 65536))

    origin.behave = flood
    served = serve(f"allow:a.example:{origin.port}", limits=ProxyLimits(idle_s=0.5))
    with served.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(get(origin.port))
        while not sent:
            time.sleep(0.01)  # until the proxy has connected
        (line,) = served.finish()
    assert line.endswith("ended after 0.5 s of silence")
    assert sum(sent) < 32 << 20  # what the kernel's buffers hold, and no more


def test_a_silent_server(origin: Any, serve: Callable[..., Any]) -> None:
    def silent(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    origin.behave = silent
    served = serve(f"allow:a.example:{origin.port}", limits=ProxyLimits(idle_s=0.3))
    begun = time.monotonic()
    assert served.ask(get(origin.port)) == b""
    assert time.monotonic() - begun < 5
    assert served.finish()[0].endswith("ended after 0.3 s of silence")


def test_a_connection_that_is_kept_busy_ends_all_the_same(origin: Any, serve: Callable[..., Any]) -> None:
    origin.behave = origin.echo
    served = serve(f"allow:a.example:{origin.port}", limits=ProxyLimits(total_s=0.6))
    begun = time.monotonic()
    with served.connect() as sock, contextlib.suppress(OSError):
        sock.sendall(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port)
        while sock.recv(65536):
            sock.sendall(b"still here")
            time.sleep(0.02)
    assert time.monotonic() - begun < 5
    assert served.finish()[0].endswith("ended at the limit of 0.6 s")


def test_resets_at_every_point(origin: Any, serve: Callable[..., Any]) -> None:
    """A client that vanishes without a word never takes the proxy with it."""
    origin.behave = origin.echo
    served = serve(f"allow:a.example:{origin.port}")
    connect = b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port
    for data in (b"", b"GET ", b"\n\n", connect, connect + b"x" * 100_000, get(origin.port)):
        with served.connect() as sock:
            sock.sendall(data)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    origin.behave = origin.answer
    assert status(served.ask(get(origin.port))) == 200
    assert len(served.finish()) == 7


def test_the_log_holds_no_control_characters(serve: Callable[..., Any]) -> None:
    served = serve("allow:a.example:80")
    served.ask(b"CONNECT a\x1b[31m.example:80 HTTP/1.1\r\nHost: x\r\n\r\n")
    served.ask(b"GET http://\x7f\x01/ HTTP/1.1\r\nHost: \x1b]0;x\x07\r\n\r\n")
    served.ask(b"CONNECT " + b"a" * 5000 + b":80 HTTP/1.1\r\nHost: x\r\n\r\n")
    for line in served.finish():
        assert line.isprintable()
        assert len(line) <= 300


def test_a_byte_at_the_very_limit_of_silence_ends_its_own_connection_at_most(
    origin: Any, serve: Callable[..., Any]
) -> None:
    """240 connections whose next byte comes around the moment in which the proxy gives up on them."""
    idle = 0.1
    origin.behave = origin.echo
    served = serve(
        f"allow:a.example:{origin.port}", limits=ProxyLimits(idle_s=idle, connections=1000, log_lines=1000)
    )
    connect = b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port

    def client(number: int) -> None:
        for turn in range(60):
            with served.connect() as sock, contextlib.suppress(OSError):
                sock.sendall(connect)
                sock.recv(100)
                sock.sendall(b"a")
                at = time.monotonic() + idle + (number - 8) * 3e-5 + (turn % 20) * 1e-4 - 5e-4
                time.sleep(max(0.0, at - time.monotonic() - 7e-4))
                while time.monotonic() < at:
                    pass
                sock.sendall(b"b")
                sock.settimeout(1)
                sock.recv(1)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    log = served.finish()
    assert len(log) == 240
    assert all("silence" in line or "done" in line or "broken off (" in line for line in log), log
    assert not [line for line in log if "fault" in line]


def test_a_fault_of_ours_in_one_connection_ends_no_other(origin: Any, serve: Callable[..., Any]) -> None:
    origin.behave = origin.echo

    def strange(address: Any) -> str:
        if str(address) == "127.0.0.9":
            raise RuntimeError("a fault\nof ours")
        return ""

    served = serve(
        f"allow:a.example:{origin.port},b.example:{origin.port}",
        refuse=strange,
        answers={"b.example": [ipaddress.ip_address("127.0.0.9")]},
    )
    with served.connect() as sock:
        sock.sendall(b"CONNECT a.example:%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % origin.port)
        assert b" 200 " in sock.recv(100)
        assert served.ask(b"CONNECT b.example:%d HTTP/1.1\r\nHost: b.example\r\n\r\n" % origin.port) == b""
        sock.sendall(b"still here")
        assert sock.recv(100) == b"still here"
    log = served.finish()
    assert log[1].endswith("broken off by a fault of the proxy (RuntimeError: a fault of ours)")
    assert "fault" not in log[0]
