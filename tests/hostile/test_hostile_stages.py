"""Stages of a long task: none reaches another but by the files that it left when it passed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.cards import parse_card
from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import stages
from services.verifier.jail import Limits, Slot
from services.verifier.keep import Keep
from services.verifier.pool import Pool
from services.verifier.track import Follow
from tests.hostile.watched import judge_of_commands  # noqa: F401 (a fixture, by the name judge)

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)


def test_fifty_stages_keep_bounded_layers_and_roll_back(judge: Callable[..., Verdict]) -> None:
    count = 50
    # Stage 25 wrecks everything and wants a line too many: it is rolled back, and the later ones go on from stage 24.
    wants = [n if n <= 25 else n - 1 for n in range(1, count + 1)]
    spec = {
        "files": {},
        "stages": [
            {"name": f"s{n}", "checks": [{"kind": "lines", "path": "log", "count": want}]}
            for n, want in enumerate(wants, 1)
        ],
    }
    lines = [f"echo {n} >> log" for n in range(1, count + 1)]
    lines[24] = "rm -rf log; echo wrecked > log; mkfifo pipe"
    verdict = judge("\n".join(lines), spec, stages)
    assert [result.passed for result in verdict.stages] == [n != 25 for n in range(1, count + 1)], (
        verdict.evidence
    )
    digests = [result.snapshot for result in verdict.stages if result.passed]
    assert len(set(digests)) == count - 1
    assert verdict.score == pytest.approx((count - 1) / count)


def test_a_stage_cannot_reach_a_later_one(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {"keep": "1\n"},
        "trusted": {"check.sh": 'test "$(cat /w/a)" = 1\n'},
        "protected": ["keep"],
        "stages": [
            {"name": "one", "checks": [{"kind": "file", "path": "a", "text": "1"}]},
            {
                "name": "two",
                "commands": [
                    {"name": "c", "argv": ["/bin/sh", "/t/check.sh"]},
                    {"name": "d", "run": "test -e /w/b"},
                ],
            },
            {"name": "three", "checks": [{"kind": "absent", "path": "a"}], "limits": {"wall_s": 1.0}},
        ],
    }
    hack = "echo 1 > a; (sleep 0.2; echo 1 > b; rm a) >/dev/null 2>&1 &"
    verdict = judge(f"{hack}\ntrue\nsleep 5; rm a", spec, stages)
    assert [result.passed for result in verdict.stages] == [True, False, False]
    assert verdict.stages[2].cause == "wall"
    broken = judge("echo 1 > a; rm keep\necho 1 > a; echo > b\nrm a", spec, stages)
    assert [result.passed for result in broken.stages] == [False, True, True]
    assert verdict.stages[0].snapshot


NESTED = (
    "import os; n = 'd' * 250; [(os.mkdir(n), os.chdir(n)) for _ in range(16)]; open('f' * 200, 'w').close()"
)
UNKEPT = f"""echo 2 > b; head -c 9000000 /dev/zero > z; python3 -c "{NESTED}\""""


def test_files_that_cannot_be_kept_are_the_answers_fault_and_not_ours(judge: Callable[..., Verdict]) -> None:
    """A path that no second jail could be given: no snapshot, no command run on it, and no credit. Never `infra`."""
    spec = {
        "files": {"a": "1\n"},
        "checks": [{"kind": "file", "path": "b", "text": "2"}],
        "commands": [{"name": "c", "run": "test -e b"}],
    }
    verdict = judge(UNKEPT, spec)
    assert (verdict.outcome, verdict.score) == ("scored", 0.0), verdict.evidence
    assert judge("echo 2 > b", spec).score == 1.0


def test_a_stage_whose_files_cannot_be_kept_fails_once_and_the_next_goes_on(
    slot: Slot, tmp_path: Path
) -> None:
    """In the service, where each stage is kept and laid out for the next: one run of each, and a verdict."""
    checks = [[{"kind": "exists", "path": name}] for name in ("z", "c")]
    spec = {"stages": [{"name": f"s{n}", "checks": each} for n, each in enumerate(checks)]}
    card = parse_card(
        'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="stages"\n', "card"
    )
    assert slot.name

    async def go() -> tuple[Verdict, float]:
        keep = Keep(str(tmp_path / "blobs"))
        pool = Pool({"d": card}, tmp_path / "slots", slots=1, keep=keep, worker="w")
        await pool.start()
        try:
            task = Task(id="t", domain="d", prompt="p", spec=spec)
            answer = f"{UNKEPT}\ntouch c".encode()
            judged = await asyncio.wait_for(pool.judge(task, answer, Follow("o", lambda _: None)), 60)
            return judged.verdict, pool.stats["stages_again"]
        finally:
            await pool.close()

    verdict, again = asyncio.run(go())
    assert (verdict.outcome, verdict.score, again) == ("scored", 0.5, 0), verdict
    assert [(each.passed, bool(each.snapshot)) for each in verdict.stages] == [(False, False), (True, True)]
