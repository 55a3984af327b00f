"""A job's way out exists only when it asks for one, leads only through the proxy, and ends with it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from services.verifier.jail import Job, Limits, Outcome, Slot
from services.verifier.network import Allow

pytestmark = pytest.mark.integration
CALM = Limits(wall_s=20, cpu_s=10)
ALLOWED = Allow((("example.invalid", 80), ("10.1.2.3", 443)))
ASK = """
import os, socket, urllib.request, urllib.error
print(sorted(k for k in os.environ if 'proxy' in k.lower()), os.environ['HTTPS_PROXY'])
for url in ('http://127.1.2.3:9/', 'http://example.org/', 'http://10.1.2.3:443/', 'http://169.254.169.254/'):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({'http': os.environ['HTTP_PROXY']}))
    try:
        opener.open(url, timeout=10)
        print('HOLE', url)
    except urllib.error.HTTPError as error:
        print(url, error.code)
for target in (('10.1.2.3', 443), ('1.1.1.1', 80)):
    try:
        socket.create_connection(target, timeout=2)
        print('HOLE', target)
    except OSError as error:
        print('direct', error.errno)
"""


def run(slot: Slot, code: str, **more: Any) -> Outcome:
    return slot.run(Job(argv=("/usr/bin/python3", "-S", "-c", code), limits=CALM, **more))


def test_only_what_is_allowed_and_only_through_the_proxy(slot: Slot) -> None:
    outcome = run(slot, ASK, network=ALLOWED)
    assert outcome.exit_code == 0, outcome.stderr
    lines = outcome.stdout.decode().splitlines()
    assert lines[0].endswith("http://127.0.0.1:3128")
    assert [line.split()[1] for line in lines[1:5]] == [
        "403"
    ] * 4  # one is on the list, and private all the same
    assert lines[5:] == ["direct 101", "direct 101"]
    assert outcome.network == "allow:example.invalid:80,10.1.2.3:443"
    assert len(outcome.connections) == 4
    assert all("refused" in line for line in outcome.connections)
    assert not [thread for thread in threading.enumerate() if thread.name == "network-proxy"]


def test_the_next_job_has_no_way_out(slot: Slot) -> None:
    code = (
        "import os,socket\nprint([k for k in os.environ if 'proxy' in k.lower()],"
        " socket.socket().connect_ex(('127.0.0.1', 3128)))"
    )
    run(slot, code)
    run(slot, code)  # the counters of a job's groups stay open for the next
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert run(slot, code, network=ALLOWED).stdout.endswith(b"] 0\n")
    outcome = run(slot, code)
    assert (outcome.stdout, outcome.network, outcome.connections) == (b"[] 111\n", "none", ())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_job_that_ends_at_a_limit_takes_its_proxy_along(slot: Slot) -> None:
    code = (
        "import socket\nl=[socket.create_connection(('127.0.0.1', 3128)) for _ in range(40)]\n"
        "l[0].send(b'CONNECT example.invalid:80 HTTP/1.1\\r\\n')\nwhile 1: pass"
    )
    job = Job(
        argv=("/usr/bin/python3", "-S", "-c", code), limits=Limits(wall_s=20, cpu_s=0.5), network=ALLOWED
    )
    outcome = slot.run(job)
    assert outcome.cause == "cpu"
    assert outcome.connections
    assert not [thread for thread in threading.enumerate() if thread.name == "network-proxy"]


def test_the_port_of_the_proxy_cannot_be_taken_over(slot: Slot) -> None:
    code = (
        "import socket\nfor kind in ('127.0.0.1', '0.0.0.0'):\n  "
        "s=socket.socket(); s.setsockopt(1, 2, 1); s.setsockopt(1, 15, 1)\n"
        "  try: s.bind((kind, 3128)); s.listen(); print('HOLE')\n  except OSError as e: print(e.errno)"
    )
    assert run(slot, code, network=ALLOWED).stdout == b"98\n98\n"
