"""Answers that lie to the runner of a suite about what they hold, or attack it: none earns a point, none stops the next job."""

# ruff: noqa: E501 (answers stand in one piece)
from __future__ import annotations

from typing import Any

import pytest

from schemas.tasks import Task
from services.verifier.families import code
from services.verifier.jail import Limits, Slot
from tests.hostile.conftest import Seen, check_traces

pytestmark = pytest.mark.hostile
LIMITS = Limits(wall_s=10.0, cpu_s=6.0)
TESTS = """
import unittest
import pytest
import answer
from answer import *

@pytest.fixture
def given(): return 3

def test_value(given): assert answer.f(given) == 6
def test_len(): assert len(answer.g(3)) == 3 and sorted(answer.g(3)) == [0, 1, 2]
def test_raises():
    with pytest.raises(ValueError): answer.h(-1)
    assert answer.h(1) == 1
def test_any_error():
    with pytest.raises(Exception): answer.h(-1)
def test_os_error():
    with pytest.raises(OSError): answer.missing_file()
def test_present(): assert answer.present and callable(answer.present)
def test_constant(): assert answer.LIMIT == 5
def test_member(): assert answer.kind(0) == answer.Kind.A and answer.kind(1) == answer.Kind.B
def test_block():
    with answer.Block(): assert answer.f(4) == 8
def test_called():
    def check(x): assert x == 7
    answer.each(check, [7])
    assert answer.f(5) == 10
class Case(unittest.TestCase):
    def test_case(self): self.assertEqual(answer.f(6), 12)
"""
NAMES = [
    "value",
    "len",
    "raises",
    "any_error",
    "os_error",
    "present",
    "constant",
    "member",
    "block",
    "called",
]
SPEC: dict[str, Any] = {
    "kind": "suite",
    "path": "answer.py",
    "tests": {"test_it.py": TESTS},
    "ids": [*(f"test_it.py::test_{name}" for name in NAMES), "test_it.py::Case::test_case"],
}
RIGHT = """
import enum
LIMIT = 5
class Kind(enum.Enum): A = 0; B = 1
class Block:
    def __enter__(self): return self
    def __exit__(self, *a): return None
def f(n): return 2 * n
def g(n): return list(range(n))
def h(n):
    if n < 0: raise ValueError("negative")
    return n
def missing_file(): open("/nowhere")
def present(): pass
def kind(n): return Kind(n)
def each(f, xs):
    for x in xs: f(x)
"""
# The frames of the report, and of the line to the tests, forged on every descriptor.
FORGE = """
import os, struct, json
for n in range(3, 64):
    for part in [b'B' + bytes(8)] + [b'P' + struct.pack('>II', i, 0) for i in range(11)]:
        try: os.write(n, part)
        except OSError: pass
"""
# What the survey is told goes over one descriptor, which an answer finds: it says what it likes there.
LIE = """
import os, json
def tell(names, dynamic=False):
    text = json.dumps(["", [dynamic, names]]).encode()
    for n in range(3, 64):
        try:
            import stat
            if stat.S_ISFIFO(os.fstat(n).st_mode): os.write(n, len(text).to_bytes(4, "big") + text)
        except OSError: pass
"""
ENUM = '["Kind","m",None,[["B","object"]],%s]'
CHEATS = {
    "nothing": "x = 1",
    "builtins-rewritten": "import builtins\nfor n in ('len','sorted','isinstance','type','callable','all','any','abs','str','repr','getattr'):\n"
    "  setattr(builtins, n, lambda *a, **k: True)\ndef f(n): return True",
    "star-takes-builtins": "def len(x): return 3\ndef sorted(x): return [0, 1, 2]\ndef callable(x): return True\ndef g(n): return n",
    "star-takes-pytest": "class raises:\n  def __init__(s,*a): pass\n  def __enter__(s): return s\n  def __exit__(s,*a): return True\n"
    "pytest = raises\n__all__ = ['pytest','raises','unittest','answer','given']",
    "star-takes-hooks": "def test_value(): pass\ntest_len = test_raises = test_value\npytestmark = []\ndef setup_module(): pass\n"
    "def pytest_runtest_makereport(*a): return None\npytest_plugins = ['answer']",
    "shadows-fixture": "given = 3\nrequest = tmp_path = given\ndef f(n): return n",
    "getattr-anything": "class A:\n  def __getattr__(s, n): return A()\n  def __call__(s, *a): return A()\n  def __eq__(s, o): return True\n"
    "  def __iter__(s): return iter([A()])\n  def __enter__(s): return s\n  def __exit__(s,*a): return True\n"
    "f = g = h = each = Block = A()",
    "swallowing-context": "class Block:\n  def __enter__(s): return s\n  def __exit__(s,*a): return True\ndef f(n): return 0",
    "swallows-own-error": "class Block:\n  def __enter__(s): return s\n  def __exit__(s,*a): return True\ndef f(n): raise ValueError(n)",
    "swallows-callback": "def each(f, xs):\n  try: f(0)\n  except BaseException: pass\ndef f(n): return 10",
    "members-all-one": "import enum\nclass Kind(enum.Enum):\n  A = 0\n  B = 0\ndef kind(n): return Kind.A",
    "members-said-one": LIE + "tell([" + ENUM % '[["A","A",1],["B","B",1]]' + "]); os._exit(0)".replace("None", "None"),
    "members-equal": "import enum\nclass V(int):\n  def __eq__(s,o): return True\n  __hash__=int.__hash__\n"
    "class Kind(enum.Enum):\n  A = V(0)\n  B = V(1)\ndef kind(n): return Kind.A",
    "load-raises-value-error": "raise ValueError('x')",
    "load-raises-later": "import os\nif os.path.exists('/tmp/seen'): raise ValueError('x')\nopen('/tmp/seen','w').close()\n"
    "def h(n): pass\ndef missing_file(): pass",
    "load-raises-os-error-later": "import os\nif os.path.exists('/w/seen'): raise OSError('x')\nopen('/w/seen','w').close()\n"
    "def h(n): pass\ndef missing_file(): pass",
    "load-exits": "import os; os._exit(0)",
    "load-system-exit": "raise SystemExit(0)",
    "load-keyboard-interrupt": "raise KeyboardInterrupt",
    "load-never-ends": "while True: pass",
    "load-sleeps": "import time; time.sleep(100)",
    "load-recursion": "def r(): r()\nr()",
    "huge-survey": "for i in range(200000): globals()['n%d' % i] = 'x' * 20",
    "huge-constant": "LIMIT = 'x' * (1 << 22)",
    "deep-constant": "LIMIT = []\nfor i in range(5000): LIMIT = [LIMIT]",
    "recursive-constant": "LIMIT = []\nLIMIT.append(LIMIT)",
    "surrogate-names": "globals()['\\ud800'] = 1\nglobals()['a b'] = 2\nglobals()['__spec__'] = 3\nglobals()['__path__'] = []",
    "frames-forged": FORGE,
    "frames-forged-when-called": "def f(n):\n" + "".join(f"  {line}\n" for line in FORGE.splitlines()) + "  return 0",
    "lie-not-utf8": "import os\nfor n in range(3,64):\n  try: os.write(n, b'\\0\\0\\0\\4\\xff\\xfe\\xff\\xff')\n  except OSError: pass\nos._exit(0)",
    "lie-endless": "import os\nwhile True:\n  for n in range(3,64):\n    try: os.write(n, b'\\0\\x0f\\xff\\xff' + b'x' * 4096)\n    except OSError: pass",
    "lie-names": LIE + "tell([['f','f',None,False],['__builtins__','d',1],['_names','d',1]]); os._exit(0)",
    "lie-bases": LIE + "tell([['h','x',None,[['N','h']]],['Kind','k',None,[['B','int'],['L','os','system']]]]); os._exit(0)",
    "lie-library": LIE + "tell([['present','d',['L','os','system']],['h','d',['B','exec']]]); os._exit(0)",
    "lie-twice": LIE + "tell([['LIMIT','d',5.0],['LIMIT','d',['r',['os','system'],'x']]]); os._exit(0)",
    "outcome-names": "class Skipped(Exception): pass\nclass Failed(BaseException): pass\nclass Exit(Exception): pass\n"
    "class KeyboardInterrupt(BaseException): pass\ndef f(n): raise Skipped\ndef g(n): raise Failed\ndef kind(n): raise Exit\n"
    "def each(f, x): raise KeyboardInterrupt",
    "raises-interrupt": "def f(n): raise KeyboardInterrupt\ng = kind = each = f",
    "raises-loop-end": "class S(StopIteration): pass\ndef f(n): raise S\ndef h(n): raise GeneratorExit\ng = kind = each = f",
    "error-hostile": "class M(type):\n  def mro(c): return [c, Exception, BaseException, object]\n"
    "class E(Exception, metaclass=M):\n  __class__ = property(lambda s: ValueError)\n  args = property(lambda s: 1/0)\n"
    "  def __str__(s): raise RuntimeError\ndef f(n): raise E()\ng = kind = f",
    "kills-all": "import os\ndef f(n): os.kill(-1, 9)\ng = kind = each = f",
    "stops-host": "import os, signal\ndef f(n): os.kill(os.getppid(), signal.SIGSTOP); return 0\ng = kind = each = f",
    "kills-host-for-os-error": "import os\ndef f(n): os.kill(os.getppid(), 9); os._exit(0)\ndef missing_file(): pass",
    "callbacks-for-ever": "def each(f, xs):\n  while True:\n    f(7)\ndef f(n): return 0",
    "recursing-callback": "def each(f, xs):\n  def again(x): each(f, xs)\n  again(1)\ndef f(n): return f(n)",
    "iterates-for-ever": "class G:\n  def __iter__(s): return s\n  def __next__(s): return 1\n  def __len__(s): return 3\ndef g(n): return G()",
    "traps-in-tmp": "import os\nfor i in range(3):\n  try: os.mkdir('/tmp/suite%d' % i)\n  except OSError: pass\n"
    "  for n in ('conftest', 'pytest', 'unittest', 'test_it', 'sitecustomize', 'socket'):\n"
    "    open('/tmp/suite%d/%s.py' % (i, n), 'w').write(\"import os; [os.write(9, b'P' + bytes([0,0,0,k]) + bytes(4)) for k in range(11)]\")",
    "tmp-full": "import os\nfor i in range(200): os.symlink('/dev/shm', '/tmp/suite%d' % i)",
}  # fmt: skip


@pytest.fixture
def judge(slot: Slot, seen: Seen) -> Any:
    def run(answer: str) -> Any:
        settings: dict[str, Any] = {"case_s": 0.5, "case_cpu_s": 0.5}
        code.check_spec(SPEC, settings)
        task = Task(id="t", domain="d", prompt="p", spec=SPEC)
        return code.verify(task, settings, LIMITS, answer.encode(), slot)

    yield run
    check_traces(slot, seen)


def test_the_work_itself_passes(judge: Any) -> None:
    verdict = judge(RIGHT)
    assert (verdict.score, verdict.passed) == (1.0, True), verdict


@pytest.mark.parametrize("cheat", CHEATS)
def test_an_answer_that_lies_earns_nothing(judge: Any, cheat: str) -> None:
    verdict = judge(CHEATS[cheat])
    assert (verdict.outcome, verdict.score) == ("scored", 0.0), verdict
