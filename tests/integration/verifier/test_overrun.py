"""A check of our own that a model's text makes hang or swell, in a real worker: it costs the worker, and nothing else."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from schemas.cards import parse_card
from schemas.tasks import Task
from services.verifier.bounds import Bounds
from services.verifier.jail import JailUnavailable
from services.verifier.jail.storage import HOME
from services.verifier.pool import Judged, Pool

pytestmark = pytest.mark.integration
# The worker as it is, with a family that has such a fault for two words.
WORKER = """
import re, sys
from services.verifier import worker
from services.verifier.families import format as family
sound = family.verify
def verify(task, settings, limits, submission, jail):
    if submission == b"SPIN":
        re.match(r"(a|a)*$", "a" * 80 + "b")
    if submission == b"SWELL":
        return [bytearray(1 << 24) for _ in range(1 << 10)]
    return sound(task, settings, limits, submission, jail)
family.verify = verify
sys.exit(worker.main(sys.argv[1:]))
"""
CARD = parse_card(
    'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="format"\n', "card"
)
TASK = Task(id="t", domain="d", prompt="p", spec={"constraints": [{"id": "case:upper"}]})


def test_it_is_invalid_and_the_next_answer_is_judged(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)

    async def go() -> tuple[list[Judged], dict[str, float]]:
        pool = Pool(
            {"d": CARD},
            tmp_path / "slots",
            slots=1,
            cache=10,
            command=(sys.executable, str(script)),
            bounds=Bounds(cpu_s=3.0, memory_bytes=512 << 20),
        )
        try:
            await pool.start()
        except JailUnavailable as error:
            pytest.skip(str(error))
        try:
            async with asyncio.timeout(60):
                judged = [await pool.judge(TASK, raw) for raw in (b"SPIN", b"AB", b"SWELL", b"Ab", b"SPIN")]
        finally:
            await pool.close()
        return judged, pool.stats

    judged, stats = asyncio.run(go())
    assert [each.verdict.outcome for each in judged] == ["invalid", "scored", "invalid", "scored", "invalid"]
    assert judged[0].verdict.evidence == "checking the answer took more than 3 s of processor time"
    assert judged[2].verdict.evidence == "checking the answer took more than 512 MiB of memory"
    assert [judged[1].verdict.score, judged[4].cached] == [1.0, True]
    assert (stats["check_overruns"], stats["workers_lost"], stats["infra"]) == (2, 4, 0)
    assert not list(HOME.glob(f"temper-v{os.getpid()}-*"))
