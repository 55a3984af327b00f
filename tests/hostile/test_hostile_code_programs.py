"""Programs and suites: output, files, processes and objects that would decide their own verdict decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import code
from services.verifier.jail import Limits, Slot
from services.verifier.specs import SpecError
from tests.hostile.conftest import Seen, check_traces

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=8.0)
Judge = Callable[..., Verdict]


@pytest.fixture
def judge(slot: Slot, seen: Seen) -> Iterator[Judge]:
    def run(answer: str, spec: dict[str, Any], limits: Limits = CALM, **settings: Any) -> Verdict:
        code.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        return code.verify(task, settings, limits, answer.encode(), slot)

    yield run
    check_traces(slot, seen)


def program(language: str) -> dict[str, Any]:
    cases = [{"stdin": f"{n} {n + 1}\n", "stdout": f"{2 * n + 1}\n"} for n in (3, 10, 21, 40)]
    return {"kind": "program", "language": language, "cases": cases}


ADDERS = {
    "python": "print(sum(map(int, input().split())))",
    "c": '#include <stdio.h>\nint main(void){int a,b;scanf("%d %d",&a,&b);printf("%d\\n",a+b);return 0;}',
    "cpp": "#include <iostream>\nint main(){int a,b;std::cin>>a>>b;std::cout<<a+b<<std::endl;}",
    "shell": "read a b\necho $((a+b))",
    "javascript": "const n=require('fs').readFileSync(0,'utf8').split(' ').map(Number);console.log(n[0]+n[1])",
}


@pytest.mark.parametrize("language", ADDERS)
def test_an_honest_program_passes_in_every_language(judge: Judge, language: str) -> None:
    try:
        verdict = judge(ADDERS[language], program(language))
    except SpecError as error:
        pytest.skip(str(error))
    assert (verdict.score, verdict.passed) == (1.0, True), verdict
    assert [stage.passed for stage in verdict.stages] == [True, True, True]


PROGRAMS = [
    ("prints-passed", "python", "print('PASSED')\nprint('4 passed')", 0.0, "token 1"),
    ("right-output-wrong-exit", "python", ADDERS["python"] + "\nraise SystemExit(3)", 0.0, "exit 3, expected 0"),
    ("right-output-then-signal", "shell", ADDERS["shell"] + "\nkill -9 $$", 0.0, "signal 9"),
    ("no-output", "python", "import os\nos._exit(0)", 0.0, "0 tokens, expected 1"),
    ("reads-past-its-input", "python", "import sys\nprint(len(sys.stdin.read()))", 0.0, "token 1"),
    ("syntax-error", "python", "def f(:", 0.0, "not built"),
    ("compile-error", "c", "int main(void){return x;}", 0.0, "not built"),
    ("build-leaves-a-link", "c", "#error x", 0.0, "not built"),
    ("floods", "python", "while 1: print('7'*1000)", 0.0, "printed too much"),
    ("floods-its-errors", "python", "import sys\nsys.stderr.write('x'*10**7)\n" + ADDERS["python"], 1.0, "4 of 4"),
    ("sleeps", "shell", "sleep 60", 0.0, "ran out of time"),
    ("daemon-keeps-the-pipe", "shell", ADDERS["shell"] + "\nsetsid sleep 60 &", 1.0, "4 of 4"),
    ("daemon-prints-later", "shell", "(sleep 0.2; echo 7) &\nexit 0", 0.0, "0 tokens"),
    ("kills-the-runner", "shell", "read a b\n[ $a = 10 ] && kill -9 $PPID\necho $((a+b))", 1.0, "4 of 4"),
    ("closes-its-output", "python", "import os,time\nos.write(1,str(sum(map(int,input().split()))).encode())\nos.close(1)\ntime.sleep(.05)", 1.0, "4 of 4"),
    ("writes-every-descriptor", "python", "import os\nfor fd in range(3,300):\n  for kind in b'OBVP':\n    try: os.write(fd,bytes([kind])+bytes(7)+b'\\x05'+bytes(4)+b'7')\n    except OSError: pass", 0.0, "0 tokens"),
    ("changes-itself", "python", "import os\nfor p in (__file__,'/t/p/answer.py','/t/programs.pyc'):\n  try: open(p,'w').write('print(7)')\n  except OSError: pass\n" + ADDERS["python"], 1.0, "4 of 4"),
    ("not-text", "python", "import os\nos.write(1,b'\\xff')", 0.0, "not UTF-8"),
    ("nan", "python", "print('nan')", 0.0, "token 1"),
    ("answer-among-many", "python", "print(*range(100))", 0.0, "token 1"),
    ("plants-the-next-folder", "shell", "read a b\nmkdir -p /w/1; rm -rf /w/2; touch /w/2\necho $((a+b))", 0.25, "no answer"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("language", "source", "score", "said"), [pytest.param(*row[1:], id=row[0]) for row in PROGRAMS]
)
def test_a_program_gets_the_score_of_its_work(
    judge: Judge, language: str, source: str, score: float, said: str
) -> None:
    verdict = judge(source, program(language), case_s=1.0)
    assert (verdict.outcome, verdict.score) == ("scored", score), verdict
    assert said in verdict.parts[1].evidence


def test_a_program_alone_in_its_jail_cannot_spoil_the_next_case(judge: Judge) -> None:
    source = "read a b\nmkdir -p /w/1; rm -rf /w/2; touch /w/2 /w/0/x\nls /w/0\necho $((a+b))"
    spec = program("shell")
    for case in spec["cases"]:
        case["stdout"] = "x\n" + case["stdout"]
    assert judge(source, spec, isolate="jail").score == 1.0


def test_a_build_that_never_ends_or_eats_all_is_a_failed_build(judge: Judge) -> None:
    spec = program("c")
    for source in (
        '#include "/proc/self/fd/1"\n',
        "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(x))))\nint main(void){B(B(B(;)))}\n",
        "char big[1L<<33]={1};int main(void){return 0;}\n",
    ):
        verdict = judge(source, spec, build={"wall_s": 1.0, "cpu_s": 1.0, "memory_mib": 128, "disk_mib": 8})
        assert (verdict.outcome, verdict.score) == ("scored", 0.0)
        assert [stage.passed for stage in verdict.stages] == [True, False, False]


TESTS = """
import pytest
from solution import double, Pile

def test_four():
    assert double(2) == 4
    assert double(3) != 7

def test_words():
    assert double("ab") == "abab"

def test_refuses():
    with pytest.raises(ValueError):
        double(None)

def test_pile():
    pile = Pile()
    pile.push(1)
    pile.push([2])
    assert len(pile) == 2
    assert pile.pop() == [2]
    assert pile.items == [1]

def test_in_place():
    given = [1]
    double(given)
    assert given == [1, 1]
"""
IDS = [f"test_it.py::test_{name}" for name in ("four", "words", "refuses", "pile", "in_place")]
SUITE = {"kind": "suite", "path": "solution.py", "tests": {"test_it.py": TESTS}, "ids": IDS}
# Names that each answer has, so that its tests are collected and run whatever it lacks.
NAMED = "def double(x): pass\nclass Pile: pass\n"
RIGHT = """
def double(x):
    if x is None: raise ValueError("nothing")
    if isinstance(x, list): x.extend(list(x)); return x
    return x * 2
class Pile:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x)
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
"""
ALWAYS = """
class Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    def __bool__(self): return True
    def __call__(self, *a, **k): return self
    def __getattr__(self, name): return self
    def __len__(self): return 2
double = Pile = Always()
"""
PATCHES = """
import sys, os, builtins
try:
    import _pytest.reports, _pytest.runner, unittest
    _pytest.reports.TestReport.from_item_and_call = classmethod(lambda c, i, k: c(i.nodeid, i.location, {}, "passed", None, k.when))
    unittest.TestCase.run = lambda *a, **k: None
except ImportError:
    pass
for name, text in (("conftest.py", "def pytest_runtest_makereport(item, call): return None"), ("sitecustomize.py", "import os; os._exit(0)"),
                   ("pytest.py", "def main(*a, **k): return 0"), ("pytest.ini", "[pytest]\\naddopts=--co"), ("json.py", ""), ("socket.py", "")):
    for place in ("/w", "/tmp", "/tmp/suite", "/t", os.getcwd()):
        try: open(os.path.join(place, name), "w").write(text)
        except OSError: pass
builtins.AssertionError = KeyboardInterrupt
"""
SUITES = [
    ("honest", RIGHT, 1.0, "5 of 5"),
    ("exit-at-import", "import os\nos._exit(0)\n" + RIGHT, 0.0, "not built"),
    ("raise-system-exit", "raise SystemExit(0)\n" + RIGHT, 0.0, "not built"),
    ("syntax-error", "def double(x: return", 0.0, "not built"),
    ("empty-module", "x = 1", 0.0, "call failed"),
    ("always-equal", ALWAYS, 0.0, "call failed"),
    ("always-equal-int", "class I(int):\n  __eq__=__ne__=lambda *a: True\ndef double(x): return I(9)", 0.0, "call failed"),
    ("patches-pytest", PATCHES + RIGHT, 1.0, "5 of 5"),
    ("patches-and-no-work", PATCHES, 0.0, "call failed"),
    ("skips", "import unittest\ndef double(x): raise unittest.SkipTest('x')", 0.0, "call failed"),
    ("skips-by-pytest-name", "class Skipped(Exception): pass\ndef double(x): raise Skipped", 0.0, "call failed"),
    ("right-exception-only", "def double(x): raise ValueError", 0.2, "call failed"),
    ("exits-where-an-exception-is-expected", "import os\ndef double(x):\n  os._exit(1)", 0.0, "call failed"),
    ("base-exception", "def double(x): raise KeyboardInterrupt", 0.0, "call failed"),
    ("atexit", "import atexit,os\natexit.register(os._exit,0)\ndef double(x): return 0", 0.0, "call failed"),
    ("sleeps", "import time\ndef double(x): time.sleep(60)", 0.0, "call failed"),
    ("kills-the-runner", "import os\ndef double(x): os.kill(-1, 9)", 0.0, "call failed"),
    ("stops-the-runner", "import os\ndef double(x):\n  for p in range(2,9):\n    if p != os.getpid():\n      try: os.kill(p, 19)\n      except OSError: pass\n  return 0", 0.0, "call failed"),
    ("signals-the-runner", "import os,signal\ndef double(x):\n  for s in range(1,32):\n    if s not in (9,19):\n      try: os.kill(2,s)\n      except OSError: pass\n  return 0", 0.0, "call failed"),
    ("forges-the-report", "import os\nfor fd in range(3,300):\n  for n in range(5):\n    try: os.write(fd,b'P'+n.to_bytes(4,'big')+bytes(4))\n    except OSError: pass\ndef double(x): return 0", 0.0, "not built"),
    ("fork-answers-twice", "import os\nos.fork()\n" + RIGHT, None, ""),
    ("floods-the-line", "import os\ndef double(x):\n  for fd in range(3,99):\n    try: os.write(fd,b'\\xff'*99999)\n    except OSError: pass", 0.0, "call failed"),
    ("deep-answer", "def double(x):\n  y=[]\n  for _ in range(999): y=[y]\n  return y", 0.0, "call failed"),
    ("huge-answer", "def double(x): return 'x'*10**8", 0.0, "call failed"),
    ("print-passed", "print('5 passed')\ndef double(x): print('PASSED')", 0.0, "call failed"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "score", "said"), [pytest.param(*row[1:], id=row[0]) for row in SUITES])
def test_a_suite_gives_the_score_of_the_work(
    judge: Judge, source: str, score: float | None, said: str
) -> None:
    verdict = judge(source, {**SUITE, "prefix": NAMED}, Limits(wall_s=6.0, cpu_s=6.0), case_s=1.0)
    assert verdict.outcome == "scored"
    if score is not None:  # whoever of two answers first, they are the answer's own words
        assert verdict.score == score, verdict
    assert said in verdict.parts[1].evidence


SPY = """
import os, gc, sys
BACKWARDS = "drow-terces-a"
def double(x):
    found = []
    for top in ("/w", "/t", "/tmp", "/dev/shm"):
        for folder, _, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                if "test_it" in path or BACKWARDS.encode() in open(path, "rb").read()[::-1]: found.append(path)
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for what in ("cmdline", "environ", "maps"):
                try: data = open(f"/proc/{pid}/{what}", "rb").read()
                except OSError: continue
                if BACKWARDS.encode() in data[::-1]: found.append(pid)
                if int(pid) != os.getpid(): found.append(pid)
    for each in gc.get_objects():
        try:
            if BACKWARDS in repr(each)[::-1]: found.append(repr(each)[:80])
        except Exception: pass
    for name in sys.modules:
        if "pytest" in name: found.append(name)
    return found
"""


def test_the_answer_sees_nothing_of_the_tests(judge: Judge) -> None:
    """Neither files nor memory, and no process of the runner's either."""
    text = "from solution import double\ndef test_it():\n    assert double(1) == [], 'a-secret-word'\n"
    spec = {**SUITE, "tests": {"test_it.py": text}, "ids": ["test_it.py::test_it"]}
    verdict = judge(SPY, spec)
    assert verdict.score == 1.0, verdict


def test_only_expected_tests_count_and_only_when_they_passed(judge: Judge) -> None:
    text = (
        "import pytest\nfrom solution import double\n"
        "def test_a(): assert double(1)==2\n@pytest.mark.skip\ndef test_b(): pass\n@pytest.mark.xfail\ndef test_c(): pass\n"
        "@pytest.mark.xfail\ndef test_d(): assert 0\ndef test_e(no_such_fixture): pass\ndef test_unexpected(): pass\n"
        "@pytest.fixture\ndef bad():\n  yield\n  assert 0\ndef test_f(bad): pass\n"
    )
    ids = [{"id": f"test_it.py::test_{name}", "weight": 3.0 if name == "a" else 1.0} for name in "abcdefg"]
    verdict = judge(RIGHT, {**SUITE, "tests": {"test_it.py": text}, "ids": ids})
    assert verdict.score == pytest.approx(3 / 9)
