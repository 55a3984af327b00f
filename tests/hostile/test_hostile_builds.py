"""Compilers and interpreters of programs: what a source can reach, what a build says, what a case leaves for the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import code
from services.verifier.jail import Limits, Slot
from tests.hostile.conftest import Seen, check_traces

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=8.0)
CASES = [{"stdin": f"{n} {n + 1}\n", "stdout": f"{2 * n + 1}\n"} for n in (3, 10, 21, 40)]
ADD_C = '#include <stdio.h>\nint main(void){int a,b;scanf("%d %d",&a,&b);printf("%d\\n",a+b);return 0;}'
Judge = Callable[..., Verdict]


@pytest.fixture
def judge(slot: Slot, seen: Seen) -> Iterator[Judge]:
    def run(language: str, answer: str, cases: Any = CASES) -> Verdict:
        spec: dict[str, Any] = {"kind": "program", "language": language, "cases": cases}
        settings = {"build": {"wall_s": 4.0, "cpu_s": 2.0, "memory_mib": 256}, "case_s": 2.0}
        code.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        return code.verify(task, settings, CALM, answer.encode(), slot)

    yield run
    check_traces(slot, seen)


BUILDS = {
    "includes-the-trusted-folder": '#include "/t/programs.pyc"\n',
    "includes-its-parent": '#include "/proc/self/environ"\n',
    "includes-a-descriptor": '#include "/proc/self/fd/9"\n',
    "includes-a-device": '#include "/dev/zero"\n',
    "includes-itself": "#include __FILE__\n",
    "incbin-of-the-trusted-folder": '__asm__(".incbin \\"/t/programs.pyc\\"");int main(void){return 0;}',
    "incbin-of-the-order": '__asm__(".incbin \\"/proc/self/fd/8\\"");int main(void){return 0;}',
    "assembles-without-end": '__asm__(".rept 2000000000\\n nop\\n .endr");int main(void){return 0;}',
    "undefined-at-the-link": "int gone(void);int main(void){return gone();}",
    "a-plugin-by-pragma": '#pragma GCC plugin "/w/x.so"\n#error end\n',
}  # fmt: skip


@pytest.mark.parametrize("source", [pytest.param(text, id=name) for name, text in BUILDS.items()])
def test_106_a_build_reaches_nothing_and_says_the_same_each_time(judge: Judge, source: str) -> None:
    first, second = judge("c", source), judge("c", source)
    assert (first.outcome, first.score) == ("scored", 0.0), first
    assert first == second
    assert judge("c", ADD_C).score == 1.0


WAITS = (
    "/proc/self/fd/1",
    "/proc/self/fd/2",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/stdin",
    "/proc/thread-self/fd/1",
)


@pytest.mark.parametrize("path", WAITS)
def test_106b_a_build_that_would_wait_for_itself_ends_at_once(judge: Judge, path: str) -> None:
    """Of one that reads its own output there would be an end at the wall limit only, three times the card's."""
    for source in (
        f'#include "{path}"\n',
        f'__asm__(".incbin \\"{path}\\"");int gone(void);int main(void){{return gone();}}',
    ):
        begun = time.monotonic()
        verdict = judge("c", source)
        assert (verdict.outcome, verdict.score) == ("scored", 0.0), verdict
        assert time.monotonic() - begun < 4.0
        assert "(wall)" not in verdict.parts[0].evidence


# Whatever may be looked for by the next process is planted wherever one can write; then the work is done.
PLANT_SHELL = """for d in /w /tmp /dev/shm . ..; do
for f in .bashrc .profile .shrc sitecustomize.py usercustomize.py package.json .noderc specs; do echo 'exit 7' >$d/$f; done
mkdir -p $d/node_modules/fs; echo 'process.exit(7)' >$d/node_modules/fs/index.js; done 2>/dev/null
read a b; echo $((a+b))"""
PLANT_PYTHON = """import os
for place in ("/w", "/tmp", "/dev/shm", ".", "/t/p"):
    for name in ("os.py", "sitecustomize.py", "encodings.py", "answer.py", "python3.11"):
        try: open(f"{place}/{name}", "w").write("raise SystemExit(7)")
        except OSError: pass
os.environ["PYTHONPATH"] = os.environ["PYTHONHOME"] = "/w"
print(sum(map(int, input().split())))"""
PLANT_NODE = """const fs=require('fs');
for (const d of ['/w','/tmp','/dev/shm','.','/t/p','/t','/'])
  for (const [n,t] of [['package.json','{"type":"module"}'],['.noderc','process.exit(7)'],['fs.js','process.exit(7)']])
    try { fs.writeFileSync(d+'/'+n,t) } catch {}
process.env.NODE_OPTIONS='--require /w/fs.js';
const n=fs.readFileSync(0,'utf8').split(' ').map(Number);console.log(n[0]+n[1])"""


@pytest.mark.parametrize(
    ("language", "source"), [("shell", PLANT_SHELL), ("python", PLANT_PYTHON), ("javascript", PLANT_NODE)]
)
def test_107_what_a_case_plants_changes_no_later_one(judge: Judge, language: str, source: str) -> None:
    verdict = judge(language, source)
    assert (verdict.score, verdict.passed) == (1.0, True), verdict


SPY = """import os
want, found = b"drow-terces-a"[::-1], []
for top in ("/w", "/t", "/tmp", "/dev/shm"):
    for folder, _, files in os.walk(top):
        for name in files:
            try:
                if want in open(os.path.join(folder, name), "rb").read(1 << 22): found.append(name)
            except OSError: pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    for what in ("environ", "mem", "fd/3", "fd/8", "fd/9", "root/t/order"):
        if int(pid) != os.getpid():
            try:
                if open(f"/proc/{pid}/{what}", "rb").read(64): found.append(f"{pid} {what}")
            except OSError: pass
for fd in range(3, 256):
    try: found.append(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError: pass
print(*found or ["nothing"])"""


def test_108_a_program_finds_nothing_of_the_other_cases(judge: Judge) -> None:
    cases = [{"stdout": "nothing\n"}, {"stdout": "a-secret-word\n"}]
    verdict = judge("python", SPY, cases)
    assert verdict.score == 0.5, verdict
    assert "nothing" in verdict.parts[1].evidence
