"""A lying name server: whatever it says, and however the program writes the host, only a public address is met.

The rule is the one that is really in force. Nothing here listens on a public address, so that what the proxy tried is read in
its log: an address that it could not reach is one that it did try.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from services.verifier.network import ProxyLimits, refuse_address
from services.verifier.network import resolve as resolving
from services.verifier.network.dial import MAX_TRIES
from services.verifier.network.hosts import IPAddress

PUBLIC = "192.31.196.1"
"""Public, and nobody's: of AS112 (RFC 7535), which is there to take what goes astray."""
NEVER = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "10.0.0.1": "private",
    "172.31.255.255": "private",
    "192.168.0.1": "private",
    "169.254.169.254": "link-local",
    "100.100.100.200": "carrier NAT",
    "168.63.129.16": "a cloud's own",
    "255.255.255.255": "reserved",
    "224.0.0.1": "multicast",
    "::": "unspecified",
    "::1": "loopback",
    "::127.0.0.1": "reserved",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:192.31.196.1": "IPv4-mapped",
    "::ffff:0:127.0.0.1": "reserved",
    "64:ff9b::127.0.0.1": "loopback behind NAT64",
    "64:ff9b::169.254.169.254": "link-local behind NAT64",
    "64:ff9b::0.0.0.0": "unspecified behind NAT64",
    "64:ff9b:1::127.0.0.1": "private",
    "2002:7f00:1::": "6to4",
    "2002:a9fe:a9fe::1": "6to4",
    "2001:0:4136:e378:8000:63bf:807f:fffe": "reserved",
    "fe80::1": "link-local",
    "fe80::1%lo": "zone",
    "fd00:ec2::254": "private",
    "fec0::1": "private",
    "ff02::1": "multicast",
}


def ask(served: Any, target: str) -> int:
    answer = served.ask(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    return int(answer.split(b" ", 2)[1])


class Listening:
    """What a program could reach on this machine by mistake: `port` on every address of it, IPv6 too where there is one."""

    def __init__(self) -> None:
        self.sockets = [socket.create_server(("0.0.0.0", 0))]
        self.port: int = self.sockets[0].getsockname()[1]
        with suppress(OSError):
            self.sockets.append(socket.create_server(("::", self.port), family=socket.AF_INET6))
        for each in self.sockets:
            each.setblocking(False)  # noqa: FBT003 (the socket's own interface)

    def reached(self) -> bool:
        for each in self.sockets:
            with suppress(BlockingIOError):
                each.accept()
                return True
        return False


@pytest.fixture
def listening() -> Any:
    made = Listening()
    yield made
    for each in made.sockets:
        each.close()


@pytest.fixture
def start(serve: Callable[..., Any], listening: Listening) -> Callable[..., Any]:
    """A proxy with the real rule, whose names are answered by the given lists, one after another and the last for ever."""

    def made(*answers: list[str], host: str = "a.example") -> Any:
        left = [[ipaddress.ip_address(text) for text in texts] for texts in answers]

        async def resolve(name: str) -> list[IPAddress]:
            served.resolved.append(name)
            return left.pop(0) if len(left) > 1 else left[0]

        limits = ProxyLimits(connect_s=0.3)
        served = serve(
            f"allow:{host}:{listening.port}", resolve=resolve, refuse=refuse_address, limits=limits
        )
        return served

    return made


@pytest.mark.parametrize("address", NEVER)
def test_a_name_that_turns_inward_is_refused(
    start: Callable[..., Any], listening: Listening, address: str
) -> None:
    """Public when it is asked for first, and inward each time after: one look-up a connection, and that one decides."""
    served = start([PUBLIC], [address])
    target = f"a.example:{listening.port}"
    assert ask(served, target) in (502, 504)  # tried, and nobody there
    assert served.resolved == ["a.example"]
    assert ask(served, target) == 403
    assert served.resolved == ["a.example"] * 2
    first, second = served.finish()
    assert PUBLIC in first
    assert NEVER[address] in second
    assert not listening.reached()


@pytest.mark.parametrize("address", NEVER)
def test_of_a_name_with_both_only_the_public_one_is_tried(
    start: Callable[..., Any], listening: Listening, address: str
) -> None:
    for answers in ([address, PUBLIC], [PUBLIC, address], [address, PUBLIC, address]):
        served = start(answers)
        # The last one that is refused is told, where the public one did not answer; a deadline is told as such.
        assert ask(served, f"a.example:{listening.port}") in (403, 502, 504)
        assert served.resolved == ["a.example"]
        assert not listening.reached()


def test_a_flood_of_answers_is_tried_a_few_times_only(
    start: Callable[..., Any], listening: Listening
) -> None:
    served = start([f"10.0.{n >> 8}.{n & 255}" for n in range(5000)] + ["127.0.0.1"])
    assert ask(served, f"a.example:{listening.port}") == 403
    assert not listening.reached()
    text = "".join(f"10.0.{n >> 8}.{n & 255} STREAM\n" for n in range(5000))
    assert len(resolving.parse(text)) == resolving.MAX_ANSWERS >= MAX_TRIES


def test_half_a_line_of_an_answer_is_no_address() -> None:
    """What is cut off could read as another address: 1.1.1.1 of 1.1.1.100."""
    assert [str(ip) for ip in resolving.parse("1.1.1.1 STREAM\n1.1.1.1")] == ["1.1.1.1"]
    assert resolving.parse("1.1.1.1") == []
    assert [str(ip) for ip in resolving.parse("1.1.1.2 STREAM x\n1.1.1.100 STREAM\n2606:4700::1")] == [
        "1.1.1.2",
        "1.1.1.100",
    ]


SPELLINGS = [
    *("2130706433", "017700000001", "0x7f000001", "0X7F000001", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1"),
    *("127.0.0.01", "127.0.0.0x1", "0", "0.0.0.0", "00.0.0.0", "127.0.0.1", "127.0.0.1.", "127.0.0.1..", "localhost"),
    *("LOCALHOST", "LocalHost.", "localhost..", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"),
    *("[::ffff:7f00:1]", "[::FFFF:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::1%lo]", "[::1%25lo]"),
    *("a.example@127.0.0.1", "127.0.0.1@a.example", "a.example:x@localhost", "@localhost", "a.example%2elocalhost"),
    *("a.example%00.localhost", "a.example\\@localhost", "a.example#@localhost", "a.example?@localhost"),
    *("\u2460\u2461\u2466.0.0.1", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u24dbocalhost"),
    *("a.example\t", "a.example.", "A.EXAMPLE", "a..example", ".a.example"),
]  # fmt: skip


@pytest.mark.parametrize("host", SPELLINGS)
def test_however_a_host_is_written_the_list_is_met_exactly(
    start: Callable[..., Any], listening: Listening, host: str
) -> None:
    """A spelling of the one host that is listed resolves to what is listed; any other is refused and never looked up."""
    served = start([PUBLIC])
    same = host.rstrip(".").lower() == "a.example" and not host.endswith("..")
    target = f"{host}:{listening.port}"
    assert ask(served, target) in ((502, 504) if same else (400, 403))
    answer = served.ask(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert int(answer.split(b" ", 2)[1]) in ((502, 504) if same else (400, 403))
    assert served.resolved == (["a.example"] * 2 if same else [])
    assert not listening.reached()


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "0.0.0.0"]
)
def test_what_is_listed_by_mistake_is_refused_all_the_same(
    start: Callable[..., Any], listening: Listening, host: str
) -> None:
    served = start(["127.0.0.1"], host=host)
    assert ask(served, f"{host}:{listening.port}") == 403
    assert served.resolved == (["localhost"] if host == "localhost" else [])
    assert not listening.reached()
