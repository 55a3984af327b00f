"""One reading of a request, and what goes out is written anew."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from services.verifier.network.request import RefusedError, parse


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def test_tunnel() -> None:
    request = parse(head("CONNECT Example.com.:443 HTTP/1.1", "Host: example.com:443"))
    assert (request.method, request.host, request.port, request.tunnel) == (
        "CONNECT",
        "example.com",
        443,
        True,
    )
    assert request.head == b""


@pytest.mark.parametrize("host", ["Host: example.com:443", "Host: example.com", "Host: EXAMPLE.com.:443"])
def test_tunnel_host_agrees(host: str) -> None:
    assert parse(head("CONNECT example.com:443 HTTP/1.1", host)).port == 443


def test_old_clients_send_no_host() -> None:
    assert parse(head("CONNECT example.com:443 HTTP/1.0")).host == "example.com"
    assert b"Host: example.com\r\n" in parse(head("GET http://example.com/ HTTP/1.0")).head


@pytest.mark.parametrize(
    ("target", "host", "port", "line"),
    [
        ("http://a.example", "a.example", 80, b"GET / HTTP/1.1"),
        ("http://a.example/", "a.example", 80, b"GET / HTTP/1.1"),
        ("HTTP://A.Example./x?y=z", "a.example", 80, b"GET /x?y=z HTTP/1.1"),
        ("http://a.example?q", "a.example", 80, b"GET /?q HTTP/1.1"),
        ("http://a.example:8080/x//y", "a.example", 8080, b"GET /x//y HTTP/1.1"),
        ("http://a.example/@/http://b/", "a.example", 80, b"GET /@/http://b/ HTTP/1.1"),
        ("http://a.example/%0d%0aHost:%20b", "a.example", 80, b"GET /%0d%0aHost:%20b HTTP/1.1"),
        ("http://[2606::1]:81/", "[2606::1]", 81, b"GET / HTTP/1.1"),
    ],
)
def test_plain(target: str, host: str, port: int, line: bytes) -> None:
    request = parse(head(f"GET {target} HTTP/1.1", f"Host: {host}:{port}"))
    assert (request.host, request.port, request.head.split(b"\r\n")[0]) == (host, port, line)
    stated = host if port == 80 else f"{host}:{port}"
    assert request.head.split(b"\r\n")[1] == f"Host: {stated}".encode()


def test_hop_by_hop_fields_stay_here() -> None:
    request = parse(
        head(
            "POST http://a.example/ HTTP/1.1", "Host: a.example", "Connection: keep-alive, X-Secret, Content-Length",
            "Proxy-Connection: X-Other", "X-Secret: 1", "X-Other: 2", "Keep-Alive: timeout=5", "TE: trailers",
            "Proxy-Authorization: Basic eDp5", "Upgrade: h2c", "HTTP2-Settings: x", "Trailer: z", "Expect: 100-continue",
            "Content-Length: 3", "Accept: */*", "X-Kept: a",
        )
    )  # fmt: skip
    assert request.head == (
        b"POST / HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nX-Kept: a\r\n"
        b"Content-Length: 3\r\nConnection: close\r\n\r\n"
    )
    assert (request.length, request.waits) == (3, True)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        # Who is meant must be plain.
        (head("GET http://allowed@127.0.0.1/ HTTP/1.1", "Host: allowed"), 400),
        (head("GET http://allowed:80@127.0.0.1/ HTTP/1.1", "Host: allowed"), 400),
        (head("GET http://allowed:80#@127.0.0.1/ HTTP/1.1", "Host: allowed"), 400),
        (head("GET http://allowed\\@127.0.0.1/ HTTP/1.1", "Host: allowed"), 400),
        (head("GET http://127.0.0.1#.allowed/ HTTP/1.1", "Host: allowed"), 400),
        (head("GET http://allowed%2f@127.0.0.1/ HTTP/1.1", "Host: allowed"), 400),
        (head("GET http://allowed%00.evil/ HTTP/1.1", "Host: allowed"), 400),
        (head("GET http://a.example/ HTTP/1.1", "Host: b.example"), 400),
        (head("GET http://a.example/ HTTP/1.1", "Host: a.example:81"), 400),
        (head("GET http://a.example:81/ HTTP/1.1", "Host: a.example"), 400),
        (head("GET http://a.example/ HTTP/1.1", "Host: a.example", "Host: b.example"), 400),
        (head("GET http://a.example/ HTTP/1.1", "Host: a.example", "Host: a.example"), 400),
        (head("GET http://a.example/ HTTP/1.1", "Host: a.example, b.example"), 400),
        (head("GET http://a.example/ HTTP/1.1"), 400),
        (head("CONNECT a.example:443 HTTP/1.1", "Host: b.example:443"), 400),
        (head("CONNECT a.example HTTP/1.1", "Host: a.example"), 400),
        (head("CONNECT http://a.example:443/ HTTP/1.1", "Host: a.example"), 400),
        (head("CONNECT user@a.example:443 HTTP/1.1", "Host: a.example"), 400),
        (head("CONNECT [fe80::1%25eth0]:443 HTTP/1.1", "Host: [fe80::1]"), 400),
        (head("CONNECT [fe80::1%eth0]:443 HTTP/1.1", "Host: [fe80::1]"), 400),
        (head("CONNECT 2606::1:443 HTTP/1.1", "Host: x"), 400),
        (head("CONNECT 0x7f000001:443 HTTP/1.1", "Host: 0x7f000001:443"), 400),
        (head("CONNECT 2130706433:80 HTTP/1.1", "Host: 2130706433:80"), 400),
        (head("CONNECT 017700000001:80 HTTP/1.1", "Host: 017700000001:80"), 400),
        (head("CONNECT 127.1:80 HTTP/1.1", "Host: 127.1:80"), 400),
        (head("CONNECT 127.0.0.1.:080 HTTP/1.1", "Host: 127.0.0.1"), 400),
        (head("CONNECT a.example:99999 HTTP/1.1", "Host: a.example:99999"), 400),
        (head("GET http:///x HTTP/1.1", "Host: a.example"), 400),
        (head("GET /x HTTP/1.1", "Host: a.example"), 400),
        (head("GET * HTTP/1.1", "Host: a.example"), 400),
        (head("GET https://a.example/ HTTP/1.1", "Host: a.example"), 400),
        (head("GET ftp://a.example/ HTTP/1.1", "Host: a.example"), 400),
        (head("GET file:///etc/passwd HTTP/1.1", "Host: a.example"), 400),
        (head("GET http://a.example/#frag HTTP/1.1", "Host: a.example"), 400),
        (head("GET http://\xe4.example/ HTTP/1.1", "Host: x"), 400),
        (head("GET http://a.example/ HTTP/1.1", "Host: \xe4.example"), 400),
        # Where the body ends must be plain.
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: 5", "Transfer-Encoding: chunked"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Transfer-Encoding: identity"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Transfer-Encoding : chunked"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: 5", "Content-Length: 6"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: 5, 6"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: +5"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: -5"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: 0x5"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: 5 5"), 400),
        (head("POST http://a.example/ HTTP/1.1", "Host: a.example", f"Content-Length: {'9' * 30}"), 400),
        (head("CONNECT a.example:443 HTTP/1.1", "Host: a.example", "Content-Length: 5"), 400),
        (head("CONNECT a.example:443 HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked"), 400),
        # Where a line ends must be plain.
        (b"GET http://a.example/ HTTP/1.1\nHost: a.example\n\n", 400),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\nX: y\r\n\r\n", 400),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\rX: y\r\n\r\n", 400),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n folded\r\n\r\n", 400),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\0\r\n\r\n", 400),
        (b"GET http://a.example/\0 HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX\r\n\r\n", 400),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n: y\r\n\r\n", 400),
        (b"GET http://a.example/ x HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
        (b"GET http://a.example/\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (head("PUT http://a.example/ HTTP/1.1", "Host: a.example"), 405),
        (head("TRACE http://a.example/ HTTP/1.1", "Host: a.example"), 405),
        (head("get http://a.example/ HTTP/1.1", "Host: a.example"), 405),
        (head("GET http://a.example/ HTTP/1.7", "Host: a.example"), 505),
    ],
)  # fmt: skip
def test_what_could_mean_two_things_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(RefusedError) as caught:
        parse(data)
    assert caught.value.status == status
    assert "\n" not in caught.value.reason


pieces = st.sampled_from(
    [b"GET ", b"CONNECT ", b"POST ", b"http://", b"a.example", b"@", b":80", b"/", b" HTTP/1.1", b"\r\n", b"\n", b"\r",
     b"Host: ", b"Host: a.example\r\n", b"Content-Length: 4", b"Transfer-Encoding: chunked", b"[::1]", b"127.1", b"%",
     b"\0", b" ", b"\t", b"Connection: Host", b"\xff"]
)  # fmt: skip


@given(st.lists(st.one_of(pieces, st.binary(max_size=3)), max_size=20).map(b"".join))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    """What goes out is one head, in canonical form, to the host that was understood."""
    try:
        request = parse(data + b"\r\n\r\n")
    except RefusedError as refused:
        event(f"refused {refused.status}")
        return
    assert request.tunnel or request.head.count(b"\r\n\r\n") == 1
    assert request.tunnel or request.head.endswith(b"Connection: close\r\n\r\n")
    assert request.tunnel or request.head.lower().count(b"\r\nhost:") == 1
    assert b"transfer-encoding" not in request.head.lower()
