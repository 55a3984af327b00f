"""What the jailed program asked the proxy for, read so that it can mean one thing only.

Invariant: a request is either wholly understood or refused with a status. What goes out is written anew from the parts
understood, one request a connection, its body measured by Content-Length alone: nothing can be hidden behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import h11

from services.verifier.network import hosts

METHODS = (b"GET", b"HEAD", b"POST")
HTTP_PORT = 80
ABSOLUTE = re.compile(r"(?i:http)://([^/?#]*)(/[^#]*|\?[^#]*)?")
BAD_LINE_ENDS = re.compile(rb"(?<!\r)\n|\r(?!\n)|\r\n[ \t]|\0")
DROPPED = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding"
    b" upgrade expect host content-length http2-settings".split()
)
MAX_LENGTH_DIGITS = 15


class RefusedError(Exception):
    """The request is not served: the status to answer with and one line that says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Request:
    """A request understood. For a tunnel (CONNECT) `head` is empty; else it is what the origin server is sent.

    `host` is a normal form; `length` is the number of body bytes that follow; `waits` asks for a 100 response first.
    """

    method: str
    host: str
    port: int
    head: bytes = b""
    length: int = 0
    waits: bool = False

    @property
    def tunnel(self) -> bool:
        """Whether bytes are passed both ways, not understood."""
        return self.method == "CONNECT"


def parse(head: bytes) -> Request:
    """The request whose head, closing empty line included, is `head`. Raises RefusedError."""
    if BAD_LINE_ENDS.search(head):
        raise RefusedError(400, "malformed line ends")
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=len(head) + 1)
    try:
        reader.receive_data(head)
        event = reader.next_event()
    except h11.RemoteProtocolError as error:
        raise RefusedError(400, f"malformed: {error}") from error
    if not isinstance(event, h11.Request):
        raise RefusedError(400, "malformed: no request line")
    if event.http_version not in (b"1.1", b"1.0"):
        raise RefusedError(505, "HTTP/1.0 or HTTP/1.1 is wanted")
    fields: list[tuple[bytes, bytes]] = list(event.headers.raw_items())
    names = [name.lower() for name, _ in fields]
    if b"transfer-encoding" in names:
        raise RefusedError(400, "Transfer-Encoding is not taken: give Content-Length")
    length = _length([value for name, value in fields if name.lower() == b"content-length"])
    target, stated = _text(event.target), [_text(v) for n, v in fields if n.lower() == b"host"]
    if event.method == b"CONNECT":
        return _tunnel(target, stated, length)
    if event.method not in METHODS:
        raise RefusedError(405, "only CONNECT, GET, HEAD and POST are taken")
    match = ABSOLUTE.fullmatch(target)
    if match is None:
        raise RefusedError(400, "the target is no absolute http:// address (for https use CONNECT)")
    host, port = _authority(match[1], HTTP_PORT)
    path = match[2] or "/"
    _agree(stated, host, port, HTTP_PORT)
    return Request(
        method=event.method.decode("ascii"),
        host=host,
        port=port,
        head=_head(event.method, path if path.startswith("/") else f"/{path}", host, port, fields, length),
        length=length,
        waits=b"expect" in names and event.http_version == b"1.1",
    )


def _text(raw: bytes) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError as error:
        raise RefusedError(400, "malformed: bytes that are not ASCII in the target or in Host") from error


def _length(values: list[bytes]) -> int:
    if not values:
        return 0
    if len(set(values)) > 1 or not values[0].isdigit() or len(values[0]) > MAX_LENGTH_DIGITS:
        raise RefusedError(400, "malformed Content-Length")
    return int(values[0])


def _authority(text: str, default: int | None = None) -> tuple[str, int]:
    if "@" in text:
        raise RefusedError(400, "a user name in the target is not taken")
    try:
        return hosts.split(text, default)
    except hosts.HostError as error:
        raise RefusedError(400, f"malformed target: {error}") from error


def _agree(stated: list[str], host: str, port: int, default: int) -> None:
    """A Host header, where there is one, must name the target."""
    for text in stated:
        if _authority(text, default) != (host, port):
            raise RefusedError(400, "Host does not agree with the target")


def _tunnel(target: str, stated: list[str], length: int) -> Request:
    host, port = _authority(target)
    _agree(stated, host, port, port)
    if length:
        raise RefusedError(400, "CONNECT with a body")
    return Request("CONNECT", host, port)


def _head(
    method: bytes, path: str, host: str, port: int, fields: list[tuple[bytes, bytes]], length: int
) -> bytes:
    """The head for the origin server: path form, our own Host, Content-Length and Connection, no hop-by-hop field."""
    named = {
        token.strip().lower()
        for name, value in fields
        if name.lower() in (b"connection", b"proxy-connection")
        for token in value.split(b",")
    }
    kept = [(n, v) for n, v in fields if n.lower() not in DROPPED and n.lower() not in named]
    authority = host if port == HTTP_PORT else f"{host}:{port}"
    lines = [
        method + b" " + path.encode("ascii") + b" HTTP/1.1",
        b"Host: " + authority.encode("ascii"),
        *(name + b": " + value for name, value in kept),
        *([b"Content-Length: %d" % length] if length or method == b"POST" else []),
        b"Connection: close",
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"
