"""The proxy as it is, with the system's resolver and a name server that lies, between two machines made of namespaces.

One has the proxy, a name server on its loopback and something that must not be reached; the other has the only public address.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration
PROJECT = Path(__file__).resolve().parents[3]
PORT = 8080
INSIDE = r"""
import collections, json, os, socket, struct, subprocess, sys, threading
from services.verifier.network import Allow, Proxy

PORT, PUBLIC, WITHIN_S = 8080, "93.184.215.14", 20
run = lambda *words: subprocess.run(words, check=True, timeout=WITHIN_S)

with open(sys.argv[1], "w") as file:
    file.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
run("mount", "--bind", sys.argv[1], "/etc/resolv.conf")
run("ip", "link", "set", "lo", "up")
run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there")

ours, theirs = socket.socketpair()
other = os.fork()
if other == 0:
    os.unshare(os.CLONE_NEWNET)
    theirs.send(b"x")
    theirs.recv(1)
    run("ip", "addr", "add", f"{PUBLIC}/24", "dev", "there")
    run("ip", "link", "set", "there", "up")
    server = socket.create_server((PUBLIC, PORT))
    theirs.send(b"x")
    while True:
        connection, _ = server.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nthe public one")
        connection.close()
try:
    ours.settimeout(WITHIN_S)
    ours.recv(1)
    run("ip", "link", "set", "there", "netns", str(other))
    run("ip", "addr", "add", "93.184.215.1/24", "dev", "here")
    run("ip", "link", "set", "here", "up")
    ours.send(b"x")
    ours.recv(1)

    A, CNAME, AAAA = 1, 5, 28
    ZONE = {
        "turning.example": [[(A, PUBLIC)], [(A, "127.0.0.1")]],
        "returning.example": [[(A, "127.0.0.1")], [(A, PUBLIC)]],
        "both.example": [[(A, "127.0.0.1"), (A, PUBLIC), (A, "10.0.0.1"), (AAAA, "::1")]],
        "mapped.example": [[(AAAA, "::ffff:127.0.0.1")]],
        "nat64.example": [[(AAAA, "64:ff9b::7f00:1")]],
        "tunnel.example": [[(AAAA, "2002:7f00:1::")]],
        "zero.example": [[(A, "0.0.0.0")]],
        "neighbour.example": [[(A, "93.184.215.1")]],
        "alias.example": [[(CNAME, "localhost"), (A, "127.0.0.1")]],
        "empty.example": [[]],
    }
    asked = collections.Counter()

    def label(name):
        return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"

    def answer(query):
        at, parts = 12, []
        while query[at]:
            parts.append(query[at + 1 : at + 1 + query[at]].decode().lower())
            at += 1 + query[at]
        name, kind = ".".join(parts), struct.unpack(">H", query[at + 1 : at + 3])[0]
        turns = ZONE.get(name)
        # The two questions of one look-up, for either family, get the answers of the same turn.
        turn, asked[name, kind] = asked[name, kind], asked[name, kind] + 1
        records = turns[min(turn, len(turns) - 1)] if turns else []
        body, count = b"", 0
        for type_, value in records:
            if type_ in (kind, CNAME):
                family = socket.AF_INET if type_ == A else socket.AF_INET6
                data = label(value) if type_ == CNAME else socket.inet_pton(family, value)
                owner = b"\xc0\x0c" if type_ == CNAME or records[0][0] != CNAME else label(records[0][1])
                body += owner + struct.pack(">HHIH", type_, 1, 0, len(data)) + data
                count += 1
        return query[:2] + struct.pack(">HHHHH", 0x8180, 1, count, 0, 0) + query[12 : at + 5] + body

    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))

    def serve_names():
        while True:
            query, sender = names.recvfrom(4096)
            names.sendto(answer(query), sender)

    threading.Thread(target=serve_names, daemon=True).start()
    inner = socket.socket(socket.AF_INET6)
    inner.bind(("::", PORT))  # both families, every address of this machine
    inner.listen()
    inner.setblocking(False)

    listener = socket.create_server(("127.0.0.1", 0))
    at = listener.getsockname()
    proxy = Proxy(listener, Allow.parse("allow:" + ",".join(f"{name}:{PORT}" for name in ZONE)))
    proxy.start()

    def ask(name):
        with socket.create_connection(at, timeout=WITHIN_S) as sock:
            sock.sendall(f"GET http://{name}:{PORT}/ HTTP/1.1\r\nHost: {name}:{PORT}\r\n\r\n".encode())
            data = b""
            while part := sock.recv(65536):
                data += part
        return [int(data.split()[1]), data.partition(b"\r\n\r\n")[2].decode().strip()]

    found = {}
    for name in ZONE:
        first = ask(name)
        found[name] = [first, asked[name, A], ask(name), asked[name, A]]
    proxy.stop()
    try:
        inner.accept()
        reached = True
    except BlockingIOError:
        reached = False
    print(json.dumps({"found": found, "reached": reached}))
finally:
    os.kill(other, 9)
    os.waitpid(other, 0)
"""


def refuse_to_pass(why: str) -> None:
    (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        refuse_to_pass("ip (iproute2) and unshare are needed to make two machines")
    folder = tmp_path_factory.mktemp("names")
    command = ["unshare", "--net", "--mount", "--", sys.executable, "-c", INSIDE, str(folder / "resolv.conf")]
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=env, cwd=PROJECT
    )
    if "Operation not permitted" in done.stderr:
        refuse_to_pass("no network namespaces here")
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_nothing_of_this_machine_was_reached(found: dict[str, Any]) -> None:
    assert found["reached"] is False


def test_a_name_that_turns_is_met_at_the_address_that_was_checked(found: dict[str, Any]) -> None:
    """Asked for once a connection: public, and met; inward the next time, and refused."""
    first, once, second, twice = found["found"]["turning.example"]
    assert first == [200, "the public one"]
    assert second == [403, "127.0.0.1 is loopback"]
    assert (once, twice) == (1, 2)
    first, once, second, twice = found["found"]["returning.example"]
    assert first == [403, "127.0.0.1 is loopback"]
    assert second == [200, "the public one"]
    assert (once, twice) == (1, 2)


def test_of_a_name_with_both_kinds_the_public_one_is_met(found: dict[str, Any]) -> None:
    assert found["found"]["both.example"][0] == [200, "the public one"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mapped", "is IPv4-mapped"),
        ("nat64", "64:ff9b::7f00:1 is loopback behind NAT64"),
        ("tunnel", "2002:7f00:1:: is a tunnel (6to4)"),
        ("zero", "0.0.0.0 is unspecified"),
        ("neighbour", "93.184.215.1 is this host's own"),
        ("alias", "127.0.0.1 is loopback"),
    ],
)
def test_an_inward_address_is_refused_in_every_dress(found: dict[str, Any], name: str, why: str) -> None:
    for status, said in found["found"][f"{name}.example"][::2]:
        assert status == 403
        assert said.endswith(why)


def test_a_name_without_an_address(found: dict[str, Any]) -> None:
    assert found["found"]["empty.example"][0] == [502, "the name has no address"]
