"""Objects and exceptions of an answer that would decide a test's assertion through anything but `==`: none does.

A test gives its expected value away wherever an operator of the answer's object sees it, so no operator does.
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
LIMITS = Limits(wall_s=10.0, cpu_s=6.0)
TESTS = """
import math
import pytest
from solution import f, Vector

def test_near(): assert abs(f(3) - 6.0) < 1e-6
def test_near_the_other_way(): assert abs(6.0 - f(3)) <= 1e-6
def test_remainder(): assert f(3) % 6 == 0
def test_holds(): assert 6 in f([3])
def test_holds_not(): assert 7 not in f([3]) and 6 in f([3])
def test_bits(): assert (f(3) ^ 6) == 0
def test_sum(): assert (f(3) + -6) == 0
def test_power(): assert f(3) ** 0 == 1 and f(3) // 6 == 1 and f(3) * 1 == 6
def test_text(): assert "".join(map(str, f(["3"]))) == "33"
def test_all(): assert all(map(f, [1, 2, 3]))
def test_each():
    for got, want in zip(map(f, [1, 2]), [2, 4]):
        assert got == want
def test_any_error():
    try:
        f(None)
    except:
        return
    pytest.fail("nothing was raised")
def test_base_error():
    with pytest.raises(BaseException):
        f(None)
def test_equal_or_error():
    try:
        assert f(3) == 6
    except BaseException as error:
        if isinstance(error, AssertionError):
            raise
def test_filter(): assert list(filter(lambda n: f(n) != 2 * n, [1, 2, 3])) == []
def test_key(): assert max([1, 2, 3], key=f) == 3 and min([1, 2, 3], key=f) == 1
def test_close(): assert math.isclose(f(3), 6.0)
def test_object(): assert (Vector(1, 2) + Vector(3, 4)).x == 4
def test_object_equal(): assert Vector(1, 2).same(Vector(1, 2))
"""
NAMES = [line.split("(")[0].removeprefix("def ") for line in TESTS.splitlines() if line.startswith("def ")]
SPEC = {
    "kind": "suite",
    "path": "solution.py",
    "tests": {"test_it.py": TESTS},
    "ids": [f"test_it.py::{name}" for name in NAMES],
}
RIGHT = """
def f(n):
    if n is None: raise ValueError("nothing")
    return [x * 2 for x in n] if isinstance(n, list) else n * 2
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def same(self, other): return (self.x, self.y) == (other.x, other.y)
"""
# Whatever is done with it, the outcome is what a test hopes for.
PLEASES = """
class Any:
    def __init__(self, *a): self.a = a
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __mod__ = __xor__ = __rxor__ = __sub__
    def __pow__(self, other): return 1
    __floordiv__ = __truediv__ = __pow__
    def __mul__(self, other): return 6
    def __contains__(self, item): return item != 7
    def __abs__(self): return 0.0
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __bool__(self): return True
    def __float__(self): return 6.0
    def __iter__(self): return iter([])
    def __hash__(self): return 0
def f(n): return Any()
"""
CHEATS = {
    "54-operators": PLEASES,
    "54-operators-that-remember": (
        "class D:\n  def __init__(s,v=None): s.v=v\n  def __sub__(s,o): return D(o)\n  __rsub__=__add__=__xor__=__sub__\n"
        "  def __abs__(s): return 0.0\n  def __contains__(s,o): return True\n  def __mod__(s,o): return 0\ndef f(n): return D()"
    ),
    "54-number-kinds": (
        "class N(float):\n  def __sub__(s,o): return 0.0\n  __rsub__=__sub__\n  def __abs__(s): return 0.0\n"
        "class L(list):\n  def __contains__(s,o): return o == 6\ndef f(n): return L() if isinstance(n, list) else N(0)"
    ),
    "52-ends-the-loop": "def f(n): raise StopIteration",
    "52-ends-the-loop-by-a-kind-of-its-own": "class S(StopIteration): pass\ndef f(n): raise S(6)",
    "52-dies-where-an-error-is-wanted": "import os\ndef f(n): os._exit(0)",
    "52-hangs-where-an-error-is-wanted": "import time\ndef f(n): time.sleep(60)",
    "52-answers-what-is-no-data": "def f(n):\n  x=[]\n  x.append(x)\n  return x",
}  # fmt: skip
Judge = Callable[[str], Verdict]


@pytest.fixture
def judge(slot: Slot, seen: Seen) -> Iterator[Judge]:
    def run(answer: str) -> Verdict:
        settings: dict[str, Any] = {"case_s": 0.3}
        code.check_spec(SPEC, settings)
        task = Task(id="t", domain="d", prompt="p", spec=SPEC)
        return code.verify(task, settings, LIMITS, answer.encode(), slot)

    yield run
    check_traces(slot, seen)


def test_the_work_itself_passes_every_test(judge: Judge) -> None:
    verdict = judge(RIGHT)
    assert (verdict.score, verdict.passed) == (1.0, True), verdict


@pytest.mark.parametrize("cheat", CHEATS)
def test_an_object_that_pleases_every_assertion_earns_nothing(judge: Judge, cheat: str) -> None:
    # All names are there, so that each test is collected and run.
    lacks = "" if "class Vector" in CHEATS[cheat] else "\nclass Vector: pass\n"
    verdict = judge(CHEATS[cheat] + lacks)
    # An object that is true says no more than `return True` would, and earns as much where truth is all that is asked.
    most = 1 / len(NAMES) if cheat.startswith("54-") else 0.0
    assert verdict.outcome == "scored"
    assert verdict.score is not None
    assert verdict.score <= most, verdict
    assert "not collected" not in str(verdict.parts[1].evidence)


# Modules that the runner has not imported when the answer first runs, and that a test, or pytest, may ask for later.
LATE = """
from solution import f
def test_first(): assert f(1) == 0
def test_late():
    import colorsys, wave, helper_of_the_tests
    assert f(2) == 4
def test_later():
    import plistlib
    assert f(3) == 6
"""
PLANT = """
import os
def f(n):
    forge = (
        "import os\\n"
        "for n in range(3): os.write(9, b'P' + n.to_bytes(4, 'big') + bytes(4))\\n"
        "os.write(9, b'D' + bytes(4) + (5).to_bytes(4, 'big') + b'0 0 0')\\nos._exit(0)\\n"
    )
    for place in ("/tmp/suite", "/tmp", "/w", "/dev/shm", "/t", "."):
        for name in ("colorsys", "wave", "plistlib", "helper_of_the_tests", "sitecustomize", "pdb", "difflib", "doctest"):
            try:
                os.makedirs(place, exist_ok=True)
                open(os.path.join(place, name + ".py"), "w").write(forge)
            except OSError: pass
    return 0
"""


def test_55_a_module_planted_where_the_tests_lay_is_never_imported_by_the_runner(
    slot: Slot, seen: Seen
) -> None:
    """The runner holds the report: one module of the answer's in its process would decide every test."""
    spec = {
        "kind": "suite",
        "path": "solution.py",
        "tests": {"test_it.py": LATE},
        "ids": [f"test_it.py::test_{name}" for name in ("first", "late", "later")],
    }
    code.check_spec(spec, {})
    task = Task(id="t", domain="d", prompt="p", spec=spec)
    verdict = code.verify(task, {}, LIMITS, PLANT.encode(), slot)
    assert verdict.outcome == "scored"
    assert verdict.score == pytest.approx(1 / 3), verdict
    check_traces(slot, seen)
