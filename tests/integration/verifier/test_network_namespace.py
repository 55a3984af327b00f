"""The proxy's listener lies in another network namespace: the job's side sees loopback only, ours does the rest."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading

import pytest

from services.verifier.network import Allow, Proxy
from services.verifier.network.hosts import IPAddress

pytestmark = pytest.mark.integration
# What the jail's launcher does for a job, then what a program in it could do. Standard library only.
INSIDE = """
import fcntl, os, socket, struct, sys, urllib.request
os.unshare(os.CLONE_NEWNET)
with socket.socket() as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
with socket.socket(fileno=3) as line:
    socket.send_fds(line, [b"%d" % port], [listener.fileno()])
    listener.close()
    outside = line.recv(100).decode()
try:
    socket.create_connection(("127.0.0.1", int(outside)), timeout=5)
except OSError as error:
    print("direct", error.errno)
os.environ["http_proxy"] = f"http://127.0.0.1:{port}"
print(urllib.request.urlopen(f"http://a.example:{outside}/", timeout=10).read())
try:
    urllib.request.urlopen(f"http://b.example:{outside}/", timeout=10)
except OSError as error:
    print(error)
"""


@pytest.fixture
def namespaces() -> None:
    code = os.spawnv(
        os.P_WAIT, sys.executable, [sys.executable, "-c", "import os; os.unshare(os.CLONE_NEWNET)"]
    )
    if code:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no network namespaces here")


@pytest.mark.usefixtures("namespaces")
def test_listener_of_another_namespace() -> None:
    ours, theirs = socket.socketpair()
    origin = socket.create_server(("127.0.0.1", 0))
    port = origin.getsockname()[1]

    def answer() -> None:
        connection, _ = origin.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nfrom outside")

    server = threading.Thread(target=answer)
    server.start()
    action = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)]
    out, write_end = os.pipe()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", INSIDE],
        os.environ,
        file_actions=[*action, (os.POSIX_SPAWN_DUP2, write_end, 1)],
    )
    os.close(write_end)
    theirs.close()
    ours.settimeout(20)
    _, fds, _, _ = socket.recv_fds(ours, 100, 1)

    async def resolve(_: str) -> list[IPAddress]:
        return [ipaddress.ip_address("127.0.0.1")]

    proxy = Proxy(
        socket.socket(fileno=fds[0]),
        Allow.parse(f"allow:a.example:{port}"),
        resolve=resolve,
        refuse=lambda _: "",
    )
    proxy.start()
    try:
        ours.sendall(b"%d" % port)
        with os.fdopen(out) as said:
            lines = said.read().splitlines()
        _, status = os.waitpid(pid, 0)
        server.join(10)
    finally:
        log = proxy.stop()
        ours.close()
        origin.close()
    assert status == 0
    assert lines == ["direct 111", "b'from outside'", "HTTP Error 403: Forbidden"]
    assert [line.split(":")[0] for line in log] == ["GET a.example", "GET b.example"]
