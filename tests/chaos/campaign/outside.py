"""A network of the campaign's own: workers live in one namespace, a server in another, and a cable runs between them.

Invariant: nothing of the machine's own network is touched, and all of this one ends with the two server processes.

The server's address is a public one, as the verifier's proxy wants it; in no namespace but these two does it mean that server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from services.verifier.hand import COMMAND

HERE, THERE = "11.3.5.1", "11.3.5.2"
ALLOWED, BESIDE, LOOPBACK = f"{THERE}:8080", f"{THERE}:8081", "127.0.0.1:8082"
SECRET = "seventeen\n"
END_S = 10.0


class _Handler(BaseHTTPRequestHandler):
    """The secret for any path; `/to/HOST:PORT` leads there."""

    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", f"http://{self.path.removeprefix('/to/')}/")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(SECRET)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(SECRET.encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def serve(address: str, ports: Sequence[int]) -> None:
    """Serve until the starter is gone: standard input ends then."""
    import threading

    for port in ports:
        server = ThreadingHTTPServer((address, port), _Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)  # noqa: T201 (the starter waits for it)
    sys.stdin.read()


@contextmanager
def network() -> Iterator[tuple[str, ...]]:
    """The command that starts a worker within this network."""
    with ExitStack() as stack:
        ours = stack.enter_context(_server("127.0.0.1", 8082))
        theirs = stack.enter_context(_server("0.0.0.0", 8080, 8081))
        _ip(
            "link",
            "add",
            "c0",
            "netns",
            str(ours),
            "type",
            "veth",
            "peer",
            "name",
            "c1",
            "netns",
            str(theirs),
        )
        for pid, device, address in ((ours, "c0", HERE), (theirs, "c1", THERE)):
            _ip("address", "add", f"{address}/30", "dev", device, inside=pid)
            _ip("link", "set", device, "up", inside=pid)
            _ip("link", "set", "lo", "up", inside=pid)
        yield (*_entered(ours), *COMMAND)


def _entered(pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{pid}/ns/net")


def _ip(*words: str, inside: int = 0) -> None:
    subprocess.run([*(_entered(inside) if inside else ()), "ip", *words], check=True, timeout=END_S)


@contextmanager
def _server(address: str, *ports: int) -> Iterator[int]:
    """The process id of a server in a network namespace of its own."""
    code = f"from tests.chaos.campaign.outside import serve; serve({address!r}, {ports!r})"
    process = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.stdin.close()
        process.stdout.close()
        process.terminate()
        process.wait(END_S)
