"""Commands on files, whole trees, stages and the network: honest answers, and answers that would be paid without the work."""

# ruff: noqa: E501 (one way to cheat a line)
from __future__ import annotations

from typing import Any

from schemas.cards import Card
from tests.chaos.campaign.answers import Hostile, Kind, card
from tests.chaos.campaign.outside import ALLOWED, BESIDE, LOOPBACK, SECRET, THERE

FILES = {
    "files": {"in": "1\n"},
    "checks": [{"kind": "file", "path": "out", "text": "1\n"}],
    "protected": ["in"],
}
SHELL: list[Hostile] = [
    (":(){ :|:& };:", 0.0),
    ("yes", 0.0),
    ("cat /dev/zero >full", 0.0),
    ("i=0; while :; do : >f$i; i=$((i+1)); done", 0.0),
    ("(setsid sleep 60 &) ; echo 1 >out", 1.0),
    ("kill -9 -1", 0.0),
    ("echo PASSED; exit 0", 0.0),
    ("ln -s /etc/passwd out; mkfifo in2", 0.0),
    ("while :; do :; done", 0.0),
    ("mkdir -p d/d/d/d; rm -rf in; echo 1 >out", 0.0),
    ("x=aaaaaaaa; while :; do x=$x$x; done", 0.0),
    ("truncate -s 1T out", 0.0),
    ("ln -s in out", 0.0),
    ("ln in out", 1.0),
    ("mkfifo out", 0.0),
    ("echo 1 >out; while :; do :; done", 0.0),
    ("echo 1 >out; touch a b c", 0.25),
    ("(sleep 0.2; echo 1 >out) >/dev/null 2>&1 &", 0.0),
]
SLEEPS: list[Hostile] = [
    ("sleep 60", 0.0),
    ("echo 1 >out; trap '' TERM HUP; exec 3<&1; sleep 60", 0.0),
    ("echo 1 >out; kill -STOP $$", 0.0),
]
TREE = {
    "files": {"a": "1\n", "b": "2\n"},
    "tree": {"want": {"a": {"text": "2\n"}, "b": {"absent": True}, "d/c": {"text": "3\n"}}},
}
TREES: list[Hostile] = [
    ("true", 0.0),
    ("rm -rf ./*", 2 * 1 / (2 + 3)),
    ("echo 2 >a", 2 * 1 / (1 + 3)),
    ("echo 2 >a; rm b; mkdir d; echo 3 >d/c; touch x y z", 2 * 3 / (6 + 3)),
    ("echo 2 >a; rm b; mkdir d; echo 3 >e; ln -s ../e d/c", 2 * 2 / (4 + 3)),
    ("echo 2 >a; rm b; mkdir e; echo 3 >e/c; ln -s e d", 2 * 2 / (5 + 3)),
    ("echo 2 >a; rm b; mkdir d; echo 3 >d/c; while :; do :; done", 0.0),
    ("echo 2 >a; rm b; mkfifo d", 2 * 2 / (3 + 3)),
    ("mkdir d; echo 3 >d/c; echo 3 >'d/c\n'; echo 3 >D", 2 * 1 / (3 + 3)),
]
SORTING: dict[str, Any] = {
    "files": {"in": "b\na\n"},
    "commands": [{"name": "sorted", "argv": ["/usr/bin/python3", "-I", "/t/check.py"], "stdout": "sorted\n"}],
    "trusted": {
        "check.py": "import sys\nsys.exit(1) if open('/w/out').read() != 'a\\nb\\n' else print('sorted')\n"
    },
    "protected": ["in"],
    "ignore": ["*"],
}
CHECKED: list[Hostile] = [
    ("echo sorted", 0.0),
    ("ln -s /t/check.py out", 0.0),
    ("for n in sys site sitecustomize; do echo 'print(\"sorted\"); raise SystemExit' >$n.py; done", 0.0),
    ("(setsid sh -c 'sleep 0.2; sort in >out' >/dev/null 2>&1 &)", 0.0),
    ("sort in >out; (setsid sh -c 'sleep 0.2; rm out' >/dev/null 2>&1 &)", 1.0),
    ("mkfifo out", 0.0),
    ("truncate -s 1G out", 0.0),
    ("printf 'a\\nb\\n' >in; cp in out", 0.0),
]
TWO_STAGES = {
    "files": {},
    "stages": [{"name": n, "checks": [{"kind": "file", "path": n, "text": "1\n"}]} for n in ("a", "b")],
}
THREE_STAGES: dict[str, Any] = {
    "files": {"seed": "3\n1\n2\n"},
    "trusted": {
        "sort.py": "import sys\nsys.exit(open('/w/sorted').read() != '1\\n2\\n3\\n')\n",
        "sum.py": "import sys\nsys.exit(open('/w/sum').read().split() != ['6'])\n",
    },
    "protected": ["seed"],
    "stages": [
        {"name": "sort", "commands": [{"name": "sorted", "argv": ["/usr/bin/python3", "-I", "/t/sort.py"]}]},
        {"name": "sum", "commands": [{"name": "summed", "argv": ["/usr/bin/python3", "-I", "/t/sum.py"]}]},
        {
            "name": "clean",
            "checks": [{"kind": "absent", "path": "sorted"}],
            "commands": [{"name": "kept", "run": "test -f sum"}],
        },
    ],
}  # fmt: skip
SORT, SUM, CLEAN = "sort seed >sorted", "echo 6 >sum", "rm sorted"
# A stage is passed by the state after it, whichever line brought it about; what is to be clean at the end is so by itself
# where nothing was sorted before.
STEPS: list[Hostile] = [
    ("exit 0\nexit 0\nexit 0", 0.0),
    (f"{SORT}; {SUM}\ntrue\n{CLEAN}", 1.0),
    (f"{SORT}; (setsid sh -c 'sleep 0.1; {SUM}' >/dev/null 2>&1 &)\nsleep 0.3\ntrue", 1 / 3),
    (f"{SUM}; rm seed\n{SUM}\ntrue", 2 / 3),
    (f"ln -s /t/sum.py sorted\n{SUM}\ntrue", 2 / 3),
    (f"{SORT}\nwhile :; do :; done\n{CLEAN}", 1 / 3),
    (f"{SORT}\n:(){{ :|:& }};:\n{SUM}; {CLEAN}", 2 / 3),
    (f"{SORT}", 1 / 3),
    (f"yes\ncat /dev/zero >sum\n{SUM}", 1 / 3),
]
NETWORK = {
    "files": {},
    "checks": [{"kind": "file", "path": "out", "text": SECRET}],
}
ASK = (
    "python3 -S - <<'X'\nimport os, urllib.request as u\n"
    "r = u.build_opener(u.ProxyHandler({{'http': os.environ['HTTP_PROXY']}})).open('http://{}', timeout=20)\n"
    "open('out', 'wb').write(r.read())\nX"
)
RAW = (
    "python3 -S - <<'X'\nimport socket\ns = socket.create_connection(('127.0.0.1', 3128), 20)\n"
    "s.sendall({!r})\nd = b''\nwhile True:\n    p = s.recv(65536)\n    if not p: break\n    d += p\n"
    "open('out', 'wb').write(d.rpartition(b'\\r\\n\\r\\n')[2])\nX"
)
DIRECT = (
    "python3 -S - <<'X'\nimport socket\ns = socket.create_connection({}, 5)\n"
    "s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\nopen('out', 'wb').write(s.makefile('rb').read())\nX"
)


def _get(target: str, host: str) -> bytes:
    return f"GET http://{target}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


REACHES: list[Hostile] = [
    ("exit 0", 0.0),
    (ASK.format(BESIDE + "/"), 0.0),
    (ASK.format(LOOPBACK + "/"), 0.0),
    (ASK.format(f"{ALLOWED}/to/{BESIDE}"), 0.0),
    (ASK.format(f"{ALLOWED}/to/{LOOPBACK}"), 0.0),
    (ASK.format(f"[::ffff:{THERE}]:{BESIDE.rpartition(':')[2]}/"), 0.0),
    (RAW.format(_get(BESIDE, ALLOWED)), 0.0),
    (RAW.format(_get(ALLOWED, BESIDE)), 0.0),
    (RAW.format(_get(f"{ALLOWED}@{BESIDE}", ALLOWED)), 0.0),
    (RAW.format(f"CONNECT {BESIDE} HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\nGET / HTTP/1.0\r\n\r\n".encode()), 0.0),
    (DIRECT.format((THERE, int(ALLOWED.rpartition(":")[2]))), 0.0),
    ("python3 -S -c 'import socket as s\nl=[s.socket() for _ in range(200)]\nfor c in l: c.setblocking(False); c.connect_ex((\"127.0.0.1\", 3128))'", 0.0),
]  # fmt: skip


def cards() -> dict[str, Card]:
    """Short limits, the wall ten times the processor time."""
    limits: dict[str, Any] = {"wall_s": 10.0, "cpu_s": 1.0, "memory_mib": 64}
    made = [
        card("terminal", "terminal", limits),
        card("terminal", "network", {**limits, "network": f"allow:{ALLOWED}"}),
        card("terminal", "wall", {**limits, "wall_s": 3.0}),
        card("stages", "stages", limits),
    ]
    return {each.name: each for each in made}


def kinds() -> list[Kind]:
    """Checks, trees, commands, network; stages of two lines and of three with commands."""
    fetched = (ASK.format(ALLOWED + "/"), RAW.format(_get(ALLOWED, ALLOWED)))
    two: list[Hostile] = [(f"{text!s}\necho 1 >b", 0.5) for text, _ in SHELL if "\n" not in str(text)]
    return [
        Kind("checks", "terminal", "own.terminal", FILES, ("echo 1 >out", "cp in out"), SHELL),
        Kind("tree", "terminal", "own.terminal", TREE, ("echo 2 >a; rm b; mkdir d; echo 3 >d/c",), TREES),
        Kind("commands", "terminal", "own.terminal", SORTING, ("sort in >out",), CHECKED),
        Kind("wall", "terminal", "own.wall", FILES, ("echo 1 >out",), SLEEPS),
        Kind("network", "terminal", "own.network", NETWORK, fetched, REACHES),
        Kind("stages.two", "stages", "own.stages", TWO_STAGES, ("echo 1 >a\necho 1 >b",), two),
        Kind("stages.three", "stages", "own.stages", THREE_STAGES, (f"{SORT}\n{SUM}\n{CLEAN}",), STEPS),
    ]
