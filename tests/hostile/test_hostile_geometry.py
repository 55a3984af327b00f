"""Scripts and meshes made to fool or to break the measuring: a reason and 0, and the slot as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import geometry
from services.verifier.jail import Job, Limits, Outcome, Slot

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)
SPEC: dict[str, Any] = {"kind": "mesh", "want": "box(2,2,2)"}
BOX = """
import itertools, struct
def facets(x, y, z, dx=0.0):
    a = [(s * x / 2 + dx, t * y / 2, u * z / 2) for s in (-1, 1) for t in (-1, 1) for u in (-1, 1)]
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return [[a[q[0]], a[q[i]], a[q[i + 1]]] for q in quads for i in (1, 2)]
def stl(rows, path="out.stl", count=None):
    with open(path, "wb") as f:
        f.write(bytes(80) + struct.pack("<I", len(rows) if count is None else count))
        for row in rows:
            f.write(struct.pack("<12fH", 0, 0, 0, *itertools.chain(*row), 0))
"""


class Watched:
    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    def run(self, job: Job) -> Outcome:
        outcome = self.slot.run(job)
        assert outcome.cause != "infra", outcome.detail
        assert outcome.survivors == 0
        return outcome


@pytest.fixture
def judge(slot: Slot, attack: Callable[..., Outcome]) -> Callable[..., Verdict]:
    def run(answer: str, **settings: Any) -> Verdict:
        geometry.check_spec(SPEC, settings)
        task = Task(id="t", domain="d", prompt="p", spec=SPEC)
        verdict = geometry.verify(task, settings, CALM, (BOX + answer).encode(), Watched(slot))
        attack(("/bin/true",), CALM)
        assert verdict.outcome == "scored"
        return verdict

    return run


def test_the_real_thing_passes(judge: Callable[..., Verdict]) -> None:
    verdict = judge("stl(facets(2, 2, 2))")
    assert (verdict.score, verdict.passed) == (1.0, True), verdict


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("stl([])", "empty"),
        ("stl([], count=10**8)", "announces"),
        ("stl(facets(2, 2, 2), count=10**8)", "announces"),
        ("stl([[(float('nan'),) * 3] * 3] * 12)", "not finite"),
        ("stl([[(3e38, 0.0, 0.0), (0.0, 3e38, 0.0), (0.0, 0.0, 3e38)]] * 4)", "not finite or beyond"),
        ("stl([[(0.0, 0.0, 0.0)] * 3] * 1000)", "four triangles"),
        ("stl([row[::-1] for row in facets(2, 2, 2)])", "inwards"),
        ("stl(facets(2, 2, 2)[:-1])", "watertight"),
        ("r = facets(2, 2, 2); r[0] = r[0][::-1]; stl(r)", "same side"),
        ("stl(facets(2, 2, 2) + facets(2, 2, 2))", "watertight"),
        ("stl(facets(1, 2, 2, -0.5) + facets(1.0001, 2.0001, 2.0001, -0.5))", "overlaps itself"),
        ("stl(facets(2, 2, 2) + facets(1, 1, 1))", "overlaps itself"),
        ("stl(facets(2, 2, 2) + facets(0.001, 0.001, 0.001, 0.3))", "overlaps itself"),
        ("stl(facets(2, 2, 2) * 4000)", "watertight"),
        ("stl(facets(2, 2, 2) * 5000)", "60000 triangles"),
        ("stl(facets(2, 2, 0))", "watertight|volume|four|same side"),
        ("open('out.obj', 'w').write('v 0 0 0\\nf 1 2 -3\\n')", "index"),
        (
            "open('out.obj', 'w').write('mtllib /etc/passwd\\n' + 'v 0 0 0\\n' * 10 + 'f 1 2 999\\n')",
            "not there",
        ),
        ("open('out.off', 'w').write('OFF\\n' + '9' * 5000 + ' 1 0\\n')", "count"),
        (
            "open('out.ply', 'w').write('ply\\nformat ascii 1.0\\nelement vertex 999999999\\nend_header\\n')",
            "vert|faces|cou",
        ),
        ("open('out.ply', 'wb').write(b'ply\\n' * 10**6)", "no header"),
        ("open('out.obj', 'w').write('f ' + '1 ' * 4_000_000)", "characters"),
        ("import pickle; open('out.obj', 'wb').write(pickle.dumps(print))", "ASCII|'"),
        ("import os; os.symlink('/etc/passwd', 'out.stl')", "symlink"),
        ("stl(facets(2, 2, 2), 'real.stl'); import os; os.symlink('real.stl', 'out.stl')", "symlink"),
        ("import os; os.mkfifo('out.stl')", "fifo"),
        ("import os; os.mkdir('out.stl')", "dir"),
        ("import os; os.truncate(os.open('out.stl', 66, 0o644), 12 << 20)", "announces|neither"),
        ("import os; os.truncate(os.open('out.stl', 66, 0o644), 1 << 40)", "script failed"),
        ("import os; stl(facets(2, 2, 2)); os._exit(3)", "exit 3"),
        ("import os; stl(facets(2, 2, 2)); os.kill(os.getpid(), 9)", "signal 9"),
        ("raise SystemExit(0)", "it left none"),
        ("open('reward.json', 'w').write('{\"score\": 1}'); print('score 1.0')", "it left none"),
        ("import sys; sys.stdout.write('solid x')", "it left none"),
    ],
)
def test_what_is_no_body_scores_0_with_the_reason(
    judge: Callable[..., Verdict], answer: str, said: str
) -> None:
    verdict = judge(answer)
    assert verdict.score == 0.0
    assert not verdict.passed
    assert any(word in verdict.parts[0].evidence for word in said.split("|")), verdict.parts[0].evidence


@pytest.mark.parametrize(
    ("answer", "most"),
    [
        ("stl(facets(2000, 2000, 2000))", 0.01),
        ("stl(facets(0.002, 0.002, 0.002))", 0.1),
        ("stl(facets(1, 2, 2, -0.5))", 0.7),
        ("stl(facets(2, 2, 2) + [r[::-1] for r in facets(1.9, 1.9, 1.9)])", 0.6),
    ],
)
def test_another_body_scores_what_it_is_worth(
    judge: Callable[..., Verdict], answer: str, most: float
) -> None:
    verdict = judge(answer)
    assert verdict.parts[0].score == 1.0
    assert 0.0 <= (verdict.score or 0.0) <= most
    assert not verdict.passed
