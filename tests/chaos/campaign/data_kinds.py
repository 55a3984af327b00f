"""What is read as data: meshes, calls over several turns, and the domains of the catalogue, each with texts that are no work."""

from __future__ import annotations

import json
from typing import Any

from schemas.cards import Card
from services.runtime.catalog import Catalog
from tests.chaos.campaign.answers import FULL, Answer, Hostile, Kind, card

TEXTS = (
    b"\xff\xfe\x00",
    b"[" * 60_000,
    b"{" * 60_000,
    b"a" * 65_536,
    b"x" * 70_000,
    b"- a\n" * 16_000,
    b'{"a":' * 10_000 + b"77.25" + b"}" * 10_000,
    b"1e999999999",
    b"NaN",
    b"((((" * 15_000,
    ("a\u0301\u202e" * 9000).encode(),
    b"\0" * 1000,
    b"",
)
SOLIDS = (
    b"s=box(1,1,1)\nfor _ in range(5000): s=s+s\nshape=s",
    b"while True: pass",
    b"box(1e308,1e308,1e308)",
    b"box(float('nan'),4,4)",
    b"import os; os._exit(0)",
    b"[[]]" * 1000,
    b"",
)
WORKING = ("code", "terminal", "stages")
"""Families whose hostile answers are commands: the campaign's own kinds have them."""
CORNERS = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
FACES = [
    "1 2 4",
    "1 4 3",
    "5 7 8",
    "5 8 6",
    "1 5 6",
    "1 6 2",
    "3 4 8",
    "3 8 7",
    "1 3 7",
    "1 7 5",
    "2 6 8",
    "2 8 4",
]


def cube(size: float = 1.0, faces: list[str] | None = None, first: int = 0, shift: float = 0.0) -> str:
    """OBJ text of a cube of edge 2 * `size`, its corners numbered from `first` + 1."""
    lines = [f"v {x * size + shift} {y * size + shift} {z * size + shift}" for x, y, z in CORNERS]
    made = FACES if faces is None else faces
    lines += ["f " + " ".join(str(int(n) + first) for n in each.split()) for each in made]
    return "\n".join(lines) + "\n"


INWARD = [" ".join(reversed(each.split())) for each in FACES]
MESH = {"kind": "mesh", "mesh": {"format": "obj", "text": cube()}}
MESHES: list[Hostile] = [
    (cube(float("nan")), 0.0),
    (cube(float("inf")), 0.0),
    (cube(faces=INWARD), 0.0),
    (cube(faces=FACES[:-1]), 0.0),
    (cube(faces=[]), 0.0),
    (cube(faces=FACES + FACES), 0.0),
    (cube(faces=[*FACES, "1 2 99"]), 0.0),
    (cube(1e30), 0.0),
    (cube(0.0), 0.0),
    (cube() + cube(0.9, INWARD, 8), None),
    (cube() + cube(0.9, FACES, 8), 0.0),
    (cube() + cube(1.0, FACES, 8, 1.0), 0.0),
    ("v 0 0 0\n" * 5000, 0.0),
    ("solid x\nendsolid x\n", 0.0),
    ("exit 0", 0.0),
]
WRITES = "open('/w/out.obj', 'w').write({!r})"
SCRIPTS: list[Hostile] = [
    ("import os; os._exit(0)", 0.0),
    (WRITES.format(cube()) + "\nraise SystemExit(1)", 0.0),
    (WRITES.format(cube()) + "\nopen('/w/out.stl', 'w')", 0.0),
    ("import os; os.mkfifo('/w/out.obj')", 0.0),
    ("import os; os.symlink('/etc/passwd', '/w/out.obj')", 0.0),
    ("import os; open('/w/x', 'w').write(" + repr(cube()) + "); os.symlink('x', '/w/out.obj')", 0.0),
    ("open('/w/out.obj', 'w').truncate(1 << 40)", 0.0),
    ("f = open('/w/out.obj', 'w')\nwhile True: f.write('v 0 0 0\\n' * 9999)", 0.0),
    ("while True: pass", 0.0),
]
TEXT, NUMBER = {"type": "string"}, {"type": "number"}


def function(name: str, **properties: Any) -> dict[str, Any]:
    """A function of the fake bank."""
    return {
        "name": name,
        "parameters": {"type": "object", "properties": properties, "required": list(properties)},
    }


def made(name: str, **arguments: Any) -> dict[str, Any]:
    """A call."""
    return {"name": name, "arguments": arguments}


PAY, LOOK = made("pay", source="a", target="b", amount=40), made("balance", account="b")
BACK = made("pay", source="b", target="a", amount=40)
TURNS: dict[str, Any] = {
    "syntax": "json",
    "functions": [
        function("pay", source=TEXT, target=TEXT, amount=NUMBER),
        function("balance", account=TEXT),
    ],
    "api": {
        "state": {"accounts": {"a": 100, "b": 0}},
        "functions": {
            "pay": [
                {
                    "op": "transfer",
                    "from": ["accounts", {"arg": "source"}],
                    "to": ["accounts", {"arg": "target"}],
                    "value": {"arg": "amount"},
                }
            ],
            "balance": [{"op": "get", "path": ["accounts", {"arg": "account"}]}],
        },
    },
    "turns": [{"want": [PAY]}, {"want": [LOOK]}],
}
PAY_TEXT, LOOK_TEXT = json.dumps(PAY), json.dumps(LOOK)
SPEAKS: list[Hostile] = [
    (json.dumps([[], []]), 0.0),
    (json.dumps([[PAY]]), None),
    (json.dumps([[LOOK], [PAY]]), None),
    (json.dumps([[PAY, BACK, PAY], [LOOK]]), None),
    (json.dumps([[PAY] * 50, [LOOK]]), None),
    (json.dumps([[made("pay", source="a", target="b", amount=-40)], [LOOK]]), None),
    (json.dumps([[made("pay", source="a", target="a", amount=40)], [LOOK]]), None),
    (json.dumps([[made("pay", source="a", target="b", amount="40")], [LOOK]]), None),
    (f'[[{PAY_TEXT[:-2]}, "amount": 40}}}}], [{LOOK_TEXT}]]', 0.0),
    ("[" * 60_000, 0.0),
    ('[[{"name": "pay", "arguments": {"source": "a", "target": "b", "amount": NaN}}]]', 0.0),
    ('[[{"name": "pay", "arguments": {"source": "a", "target": "b", "amount": 1e999}}]]', 0.0),
    (f"{PAY_TEXT} and so on", 0.0),
]


def cards() -> dict[str, Card]:
    """Limits as for files."""
    limits: dict[str, Any] = {"wall_s": 10.0, "cpu_s": 1.0, "memory_mib": 64}
    own = [
        card("geometry", "mesh", limits, answer="mesh"),
        card("geometry", "script", limits),
        card("call", "turns", limits),
    ]
    return {each.name: each for each in own}


def drawn(catalog: Catalog, seed: int) -> list[Kind]:
    """A kind for each domain of the catalogue: gold answers, slips, texts that are no answer."""
    found = []
    for name in sorted(catalog.cards):
        family = catalog.card(name).verifier.family
        samples = catalog.sample(name, split="heldout", seed=seed, count=6)
        gold = [Answer(name, each.task, each.gold.encode(), FULL) for each in samples]
        texts = () if family in WORKING else SOLIDS if family == "geometry" else TEXTS
        rest = [Answer(name, each.task, slip.encode(), None) for each in samples for slip in each.slips[:2]]
        rest += [Answer(name, samples[n % 6].task, text, None) for n, text in enumerate((*texts, b" ", b""))]
        found.append(Kind(name, family, name, drawn=(gold, rest)))
    return found


def kinds(catalog: Catalog, seed: int) -> list[Kind]:
    """Meshes as text and by a script, turns, and the catalogue."""
    script = (WRITES.format(cube()),)
    return [
        Kind("mesh", "geometry", "own.mesh", MESH, (cube(), cube(faces=FACES[::-1])), MESHES),
        Kind("mesh.script", "geometry", "own.script", MESH, script, SCRIPTS),
        Kind("turns", "call", "own.turns", TURNS, (json.dumps([[PAY], [LOOK]]),), SPEAKS),
        *drawn(catalog, seed),
    ]
