"""Answers that try to be scored without doing the work: each gets the score of the work it did, and leaves nothing behind.

The numbers are those of the catalogue of hostile programs that these tests grew from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import code
from services.verifier.jail import Limits, Slot
from tests.hostile.conftest import Seen, check_traces

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=12.0, cpu_s=6.0)
CASES = [{"args": [n], "want": 2 * n + 1} for n in (3, 10, 21, 40)]
SPEC = {"kind": "function", "entry": "f", "params": ["n"], "cases": CASES}
HONEST = "def f(n): return 2*n+1\n"
Judge = Callable[..., Verdict]


@pytest.fixture
def judge(slot: Slot, seen: Seen) -> Iterator[Judge]:
    def run(answer: str, spec: dict[str, Any] = SPEC, limits: Limits = CALM, **settings: Any) -> Verdict:
        code.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        return code.verify(task, settings, limits, answer.encode(), slot)

    yield run
    check_traces(slot, seen)


def hack(name: str, source: str, score: float = 0.0, said: str = "", **settings: Any) -> object:
    return pytest.param(source, score, said, settings, id=name)


ALWAYS = """
class Always(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __repr__(self): return '7'
    __str__ = __index__ = __int__ = __repr__
"""
# Finds every descriptor and writes a right-looking report, an answer and a status on it.
FORGER = """
import os
def forge(value):
    text = str(value).encode()
    answer = b'V' + len(text).to_bytes(4, 'big') + text
    report = b''.join(b'V' + n.to_bytes(4, 'big') + len(text).to_bytes(4, 'big') + text for n in range(4))
    for fd in range(3, 200):
        for data in (b'B' + bytes(8) + report, report):
            try: os.write(fd, data)
            except OSError: pass
"""
HACKS = [
    hack("51-exit-at-import", "import sys\nsys.exit(0)\n" + HONEST, said="raised SystemExit"),
    hack("51-os-exit-at-import", "import os\nos._exit(0)\n" + HONEST, said="died"),
    hack("52-exit-inside", "def f(n): raise SystemExit(0)", said="raised SystemExit"),
    hack("52-os-exit-inside", "import os\ndef f(n): os._exit(0)", said="died"),
    hack("52-exit-thread", "import os,threading\ndef f(n):\n  threading.Thread(target=os._exit,args=(0,)).start()\n  threading.Event().wait(5)", said="died"),
    hack("52-kill-driver", "import os\ndef f(n):\n  if n==10: os.kill(os.getppid(), 9)\n  return 2*n+1", 0.75, "raised PermissionError"),
    hack("52-stop-driver", "import os\ndef f(n):\n  if n==10: os.kill(os.getppid(), 19)\n  return 2*n+1", 0.75, "raised PermissionError"),
    hack("52-kill-all", "import os\ndef f(n):\n  if n==10: os.kill(-1, 9)\n  return 0", said="got 0"),
    hack("54-always-equal", ALWAYS + "def f(n): return Always()", said="no plain data (Always)"),
    hack("54-always-equal-honest-value", ALWAYS + "def f(n): return Always(2*n+1)", said="no plain data"),
    hack("54-str-subclass", "class S(str): pass\ndef f(n): return S('x')", said="no plain data (S)"),
    hack("54-list-subclass", "class L(list):\n  __eq__=lambda *a: True\ndef f(n): return L()", said="no plain data"),
    hack("54-dict-subclass", "class D(dict): pass\ndef f(n): return D()", said="no plain data"),
    hack("54-inside-a-list", ALWAYS + "def f(n): return [Always()]", said="no plain data (list)"),
    hack("54-class-assignment", "class A:\n  __class__=int\n  __eq__=lambda *a: True\ndef f(n): return A()", said="no plain data (A)"),
    hack("54-metaclass-name", "class M(type):\n  __name__='int'\nclass A(metaclass=M): pass\ndef f(n): return A()", said="no plain data (A)"),
    hack("54-raise-with-metaclass", "class M(type):\n  def __getattribute__(s,n): raise SystemExit\nclass E(Exception,metaclass=M): pass\ndef f(n): raise E", said="raised E"),
    hack("54-bool-for-int", "def f(n): return True", said="got true"),
    hack("54-float-for-int", "def f(n): return float(2*n+1)", said="got 7.0, expected 7"),
    hack("54-text-for-int", "def f(n): return str(2*n+1)", said='got "7"'),
    hack("57-prints-passed", "print('PASSED case 0\\n4 passed')\ndef f(n): print('{\"score\":1}')", said="got null"),
    hack("58-syntax-error", "def f(n: return", said=""),
    hack("58-nested-too-deep", "(" * 5000 + ")" * 5000 + "\n" + HONEST),
    hack("58-null-byte", "x = '\0'\n" + HONEST),
    hack("58-no-function", "def g(n): return 2*n+1", said="raised KeyError"),
    hack("65-the-word-pytest", "# pytest\ndef f(n): return 0", said="got 0"),
    hack("71-nan", "def f(n): return float('nan')", said="no plain data (float)"),
    hack("71-inf", "def f(n): return float('inf')", said="no plain data (float)"),
    hack("72-huge-int", "def f(n): return 10**5000", said="no plain data (int)"),
    hack("72-long-int", "def f(n): return 10**1000", said="digits"),
    hack("72-deep", "def f(n):\n  x=[]\n  for _ in range(100): x=[x]\n  return x", said="no plain data (list)"),
    hack("72-cyclic", "def f(n):\n  x=[]\n  x.append(x)\n  return x", said="no plain data (list)"),
    hack("72-pickle", "def f(n):\n  class P:\n    def __reduce__(s): return (exit,())\n  return P()", said="no plain data (P)"),
    hack("72-lone-surrogate", "def f(n): return '\\ud800'", said="no plain data"),
    hack("72-large", "def f(n): return 'x'*10**6", said="answered too much"),
    hack("recursion", "def f(n): return f(n)", said="raised RecursionError"),
    hack("patched-builtins", "import builtins,os\nbuiltins.type=lambda x:int\nbuiltins.len=lambda x:1\nbuiltins.BaseException=int\ndef f(n): return object()", said="case 0"),
    hack("patched-write", "import os,posix\nos.write=posix.write=lambda fd,data: len(data)\nos._exit=posix._exit=lambda c: None\ndef f(n): return 2*n+1", said="case 0"),
    hack("patched-marshal", "import marshal,sys\nmarshal.loads=lambda b:[7]\nsys.modules['_json']=None\ndef f(n): return n", said="got 3"),
    hack("trace-function", "import sys\ndef t(frame,event,arg): return t\nsys.settrace(t)\ndef f(n): return 0", said="got 0"),
    hack("signal-handler", "import signal,os\nsignal.signal(15,lambda *a: os._exit(0))\ndef f(n):\n  os.kill(os.getpid(),15)\n  return 0", said="died"),
    hack("ignore-and-hang", "import signal,time\nfor s in (1,2,15): signal.signal(s,signal.SIG_IGN)\ndef f(n): time.sleep(99)", said="ran out of time", case_s=0.3),
    hack("daemon-thread", "import threading,os,time\ndef late():\n  time.sleep(.05)\n  for fd in range(3,99):\n    try: os.write(fd,b'V\\0\\0\\0\\x017')\n    except OSError: pass\ndef f(n):\n  threading.Thread(target=late,daemon=True).start()\n  return 0", said="got 0"),
    hack("forged-report", FORGER + "forge(7)\ndef f(n): return 0", said="case 0: died"),
    hack("forged-answer", "import os\nfor fd in range(3, 200):\n  try: os.write(fd, b'V\\0\\0\\0\\x017')\n  except OSError: pass\ndef f(n): return 0", 0.25),
    hack("forged-report-by-fork", FORGER + "def f(n):\n  if os.fork()==0:\n    os.setsid(); forge(2*3+1); os._exit(0)\n  return 0", 0.0),
    hack("forged-by-daemon", FORGER + "import time\ndef f(n):\n  if n==3 and os.fork()==0:\n    os.setsid()\n    while 1: forge(21); time.sleep(.001)\n  time.sleep(.02)\n  return 0", said="case 0"),
    hack("frames-and-garbage", "import gc,sys,os\ndef f(n):\n  fr=sys._getframe()\n  while fr:\n    for v in list(fr.f_locals.values()):\n      if isinstance(v,int) and v>2:\n        try: os.write(v,b'V\\0\\0\\0\\0\\0\\0\\0\\x017'*4)\n        except (OSError,OverflowError): pass\n    fr=fr.f_back\n  os._exit(0)", said="case 0"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "score", "said", "settings"), HACKS)
def test_an_answer_gets_the_score_of_its_work(
    judge: Judge, source: str, score: float, said: str, settings: dict[str, Any]
) -> None:
    verdict = judge(source, **settings)
    assert (verdict.outcome, verdict.score) == ("scored", score), verdict
    assert not verdict.passed
    assert said in verdict.parts[1].evidence
    assert judge(HONEST).score == 1.0


LOOKS = """
import gc, os, sys
found = set()
seen = set()
def look(value, depth=6):
    if depth == 0 or id(value) in seen: return
    seen.add(id(value))
    if isinstance(value, int) and 900000 < value < 900100: found.add(value)
    elif isinstance(value, (bytes, bytearray)):
        for n in range(900000, 900100):
            if n.to_bytes(4, 'little') in value: found.add(n)
    elif isinstance(value, (list, tuple, set)): [look(v, depth - 1) for v in list(value)]
    elif isinstance(value, dict): [look(v, depth - 1) for v in list(value.items())]
def f(n):
    frame = sys._getframe()
    while frame:
        look(dict(frame.f_locals)); look([v for k, v in list(frame.f_globals.items()) if k not in ('found', 'seen')]); frame = frame.f_back
    for each in gc.get_objects():
        if each is not found and each is not seen: look(each, 3)
    for name in os.listdir('/proc'):
        if name.isdigit():
            for what in ('mem', 'maps', 'environ', 'fd'):
                try:
                    os.listdir(f'/proc/{name}/fd') if what == 'fd' else open(f'/proc/{name}/{what}', 'rb').read(1)
                except OSError: continue
                if int(name) == os.getppid(): found.add(-1)
    for fd in range(3, 99):
        try:
            os.set_blocking(fd, False)
            look(os.read(fd, 1 << 16))
        except OSError: pass
        finally:
            try: os.set_blocking(fd, True)
            except OSError: pass
    look(sys.stdin.read())
    return sorted(found - {n})
"""


@pytest.mark.parametrize("isolate", ["process", "none", "jail"])
def test_what_other_cases_are_given_is_out_of_reach(judge: Judge, isolate: str) -> None:
    """No frame, object, descriptor or process that a case can see holds the input of a case still to come."""
    given = [900_001, 900_017, 900_033]
    spec = {**SPEC, "cases": [{"args": [n], "want": []} for n in given]}
    verdict = judge(LOOKS, spec, isolate=isolate)
    if isolate == "none":  # cases share a process by the card's word, so that what is past may be known
        later = {**SPEC, "cases": [{"args": [n], "want": given[:at]} for at, n in enumerate(given)]}
        verdict = verdict if verdict.score == 1.0 else judge(LOOKS, later, isolate=isolate)
    assert verdict.score == 1.0, verdict


# Reads all memory of its own process that lies near where objects are, freed or not, for the whole numbers of other cases as an
# order holds them: the byte of their kind and four more. The pattern does not match itself. Addresses are asked for by mincore.
MEMORY = """
import ctypes, re
libc = ctypes.CDLL(None)
number = re.compile(rb"[i\\xe9]([\\xa0-\\xdf])[\\xbb][\\x0d]\\x00")
def f(n):
    found, told = set(), ctypes.create_string_buffer(1)
    near = {id(found) >> 21, id(f) >> 21, id(type) >> 21, ctypes.addressof(told) >> 21, ctypes.cast(libc.malloc, ctypes.c_void_p).value >> 21}
    for region in {region + step for region in near for step in range(-24, 25)}:
        for page in range(region << 21, (region + 1) << 21, 4096):
            if libc.mincore(ctypes.c_void_p(page), ctypes.c_size_t(4096), told) == 0:
                part = ctypes.string_at(page, 4096) if readable(page) else b""
                found.update(0x0dbb00 + match[1][0] for match in number.finditer(part))
    return sorted(found - {n})
import os
read_end, write_end = os.pipe()
def readable(page):
    if libc.write(write_end, ctypes.c_void_p(page), ctypes.c_size_t(1)) != 1:
        return False
    os.read(read_end, 1)
    return True
"""


@pytest.mark.parametrize("isolate", ["process", "jail"])
def test_what_other_cases_were_given_is_not_even_in_freed_memory(judge: Judge, isolate: str) -> None:
    given = [900_001, 900_017, 900_033]
    assert [n >> 8 for n in given] == [0x0DBB] * 3
    spec = {**SPEC, "cases": [{"args": [n], "want": []} for n in given]}
    verdict = judge(MEMORY, spec, isolate=isolate, case_s=4.0, case_cpu_s=3.0)
    assert verdict.score == 1.0, verdict
    # It does find what is there: a copy of its own, made as an order makes it.
    own = MEMORY + "import marshal\nkept = marshal.dumps([0x0dbb00 + 0xb1])\n"
    spec = {**SPEC, "cases": [{"args": [900_001], "want": [900_017]}]}
    assert judge(own, spec, isolate=isolate, case_s=4.0, case_cpu_s=3.0).score == 1.0


def test_nothing_is_carried_from_case_to_case(judge: Judge) -> None:
    """A process that left its group and its parent is dead before the next case begins."""
    # Asked for by signal 0: /proc hides processes of its own user from it, too.
    source = (
        "import os,time\ndef alive():\n  found=0\n  for p in range(2,300):\n    try: os.kill(p,0)\n    except OSError: continue\n"
        "    found+=p!=os.getpid()\n  return found\n"
        "def f(n):\n  before=alive()\n"
        "  if os.fork()==0:\n    os.setsid()\n    if os.fork()==0: time.sleep(60)\n    os._exit(0)\n"
        "  os.wait()\n  return [before,alive()]"
    )
    spec = {**SPEC, "cases": [{"args": [n], "want": [0, 1]} for n in range(4)]}
    verdict = judge(source, spec)
    assert verdict.score == 1.0, verdict


def test_state_of_the_answer_is_new_for_each_case_unless_the_card_says_otherwise(judge: Judge) -> None:
    source = "seen=[]\ndef f(n):\n  seen.append(n)\n  return len(seen)"
    fresh = {**SPEC, "cases": [{"args": [n], "want": 1} for n in range(3)]}
    shared = {**SPEC, "cases": [{"args": [n], "want": n + 1} for n in range(3)]}
    assert judge(source, fresh).score == 1.0
    assert judge(source, shared, isolate="none").score == 1.0
    assert judge(source, fresh, isolate="jail").score == 1.0


def test_a_shared_process_that_dies_costs_its_case_only(judge: Judge) -> None:
    source = "import os,time\ndef f(n):\n  if n==10: os._exit(0)\n  if n==21: time.sleep(60)\n  return 2*n+1"
    assert judge(source, isolate="none", case_s=0.5).score == 0.5


def test_time_is_counted_by_processor(judge: Judge) -> None:
    spin = "def f(n):\n  if n==10:\n    while 1: pass\n  return 2*n+1"
    assert judge(spin, case_cpu_s=0.3).score == 0.75
    late = "import time\ndef f(n):\n  t=time.process_time()\n  while n==10 and time.process_time()<t+.35: pass\n  return 2*n+1"
    assert judge(late, case_cpu_s=0.3).score == 0.75
    assert judge(late, case_cpu_s=0.3, isolate="none").score == 0.75
    children = "import os\ndef f(n):\n  if os.fork()==0:\n    while 1: pass\n  os.wait()"
    assert judge(children, limits=Limits(wall_s=12.0, cpu_s=0.5)).score == 0.0


def test_large_arguments_arrive_whole(judge: Judge) -> None:
    text = "ab" * 300_000
    spec = {**SPEC, "cases": [{"args": [text + str(n)], "want": len(text) + 1} for n in range(3)]}
    for isolate in ("process", "none"):
        assert judge("def f(n): return len(n)", spec, isolate=isolate).score == 1.0
    assert judge("import os\nos._exit(1)", spec).score == 0.0
