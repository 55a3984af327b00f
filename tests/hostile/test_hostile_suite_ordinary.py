"""What an author of ordinary pytest tests expects: the right answer passes each of these, the wrong one fails each.

Each test of the suite stands for one thing of pytest, unittest or a module; the wrong answer is of the same shape and differs
in what it does, so that a test which passes whatever the answer does would show.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import code
from services.verifier.jail import Limits, Slot
from tests.hostile.conftest import Seen, check_traces

pytestmark = pytest.mark.hostile
LIMITS = Limits(wall_s=30.0, cpu_s=20.0)
MANY = 19
RIGHT = '''
import collections, enum, os, sys, warnings
LIMIT = 5
TABLE = {"a": [1, 2.5, None]}
class Bad(ValueError):
    def __init__(self, code): super().__init__(f"code {code}"); self.code = code
class Worse(Bad): pass
class Color(enum.Enum):
    RED = 1
    GREEN = 2
class Shape:
    sides = 4
    def area(self): return 12
class Stack(Shape):
    """A stack."""
    def __init__(self): self.items = []; self.open = 0
    def push(self, x): self.items.append(x); return self
    def pop(self):
        if not self.items: raise IndexError("empty")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, at): return self.items[at]
    def __enter__(self): self.open = 1; return self
    def __exit__(self, *a): self.open = 0
    @classmethod
    def of(cls, *xs):
        made = cls()
        for x in xs: made.push(x)
        return made
    @property
    def top(self): return self.items[-1]
def double(x):
    """Twice."""
    return x * 2
def fail(code): raise Worse(code)
def say(x): print("said", x); print("err", file=sys.stderr)
def old(): warnings.warn("gone soon", DeprecationWarning); return 1
def color(x): return Color.RED if x else Color.GREEN
def gen(n):
    for i in range(n): yield i
def apply(f, xs): return [f(x) for x in xs]
def retry(f, n):
    for _ in range(n):
        try: return f()
        except ValueError: pass
    raise RuntimeError("no luck")
def save(path, text):
    with open(path, "w") as file: file.write(text)
def home(): return os.environ["HOME_OF"], os.getcwd()
def reverse(xs): xs.reverse()
async def later(x): return x + 1
def limit(): return LIMIT
def leave(): sys.exit(3)
def big(): return 10 ** 3000
_count = 0
def count():
    global _count
    _count += 1
    return _count
'''  # fmt: skip
# Names and kinds as they are; what is done is not.
WRONG = (
    RIGHT.replace("LIMIT = 5", "LIMIT = 6").replace('"a": [1, 2.5, None]', '"a": []').replace("x * 2", "x * 3 + 1")
    .replace("code {code}", "kode").replace("self.code = code", "pass").replace("RED if x", "GREEN if x")
    .replace("self.items.append(x)", "self.items[:0] = [x, x]").replace('raise IndexError("empty")', "return None")
    .replace("return self.items[-1]", "return None").replace("class Worse(Bad)", "class Worse(Exception)")
    .replace('"said", x', '"sad"').replace("DeprecationWarning", "UserWarning").replace("range(n): yield i", "range(n): yield n")
    .replace("[f(x) for x in xs]", "xs").replace("except ValueError", "except OSError").replace("file.write(text)", "pass")
    .replace('os.environ["HOME_OF"], os.getcwd()', '"", ""').replace("xs.reverse()", "pass").replace("x + 1", "x")
    .replace("return LIMIT", "return 0").replace("sys.exit(3)", "sys.exit(4)").replace("10 ** 3000", "1")
    .replace("_count += 1", "_count += 2").replace("class Stack(Shape)", "class Stack").replace("self.open = 1", "self.open = 2")
    .replace("sides = 4", "sides = 3").replace("return 12", "return 0")
)  # fmt: skip
TESTS = """
import os, sys, unittest
from unittest import mock
import pytest
import answer
from answer import Stack, Bad, Worse, double, LIMIT, Color

def test_constant(): assert LIMIT == 5 and answer.LIMIT == 5
def test_table(): assert answer.TABLE == {"a": [1, 2.5, None]}
def test_raises_own():
    with pytest.raises(Bad) as caught: answer.fail(7)
    assert caught.value.code == 7
def test_raises_match():
    with pytest.raises(ValueError, match="^code 8$"): answer.fail(8)
def test_raises_type():
    with pytest.raises(Worse) as caught: answer.fail(9)
    assert caught.type is Worse and issubclass(Worse, Bad) and str(caught.value) == "code 9" and caught.value.args == ("code 9",)
def test_index_error():
    with pytest.raises(IndexError): Stack().pop()
def test_isinstance():
    assert isinstance(Stack(), Stack) and isinstance(Stack(), answer.Shape) and not isinstance(5, Stack)
def test_subclass(): assert issubclass(Stack, answer.Shape) and Stack.sides == 4 and Stack().area() == 12
def test_object():
    made = Stack().push(1).push(2)
    assert len(made) == 2 and list(made) == [1, 2] and made[0] == 1 and made.top == 2 and made.items == [1, 2]
def test_classmethod(): assert list(Stack.of(3, 4)) == [3, 4]
def test_with():
    with Stack() as made: assert made.open == 1
    assert made.open == 0
def test_enum(): assert answer.color(1) == Color.RED and answer.color(0) is Color.GREEN and Color(1) is Color.RED
@pytest.mark.parametrize("given, want", [(1, 2), ("a", "aa")])
def test_parametrized(given, want): assert double(given) == want
def test_capsys(capsys):
    answer.say(1)
    out, err = capsys.readouterr()
    assert (out, err) == ("said 1\\n", "err\\n")
def test_capfd(capfd):
    answer.say(2)
    assert capfd.readouterr().out == "said 2\\n"
def test_warns():
    with pytest.warns(DeprecationWarning, match="gone"): assert answer.old() == 1
def test_recwarn(recwarn):
    answer.old()
    assert [each.category for each in recwarn] == [DeprecationWarning]
def test_tmp_path(tmp_path):
    answer.save(tmp_path / "x", "hello")
    assert (tmp_path / "x").read_text() == "hello"
def test_monkeypatch_env(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME_OF", "me")
    monkeypatch.chdir(tmp_path)
    assert answer.home() == ("me", str(tmp_path))
def test_child_writes(tmp_path):
    import os, subprocess
    subprocess.run("echo 4 > x; test -w x && id -u >> x", shell=True, cwd=tmp_path, check=True)
    assert [answer.double(2), answer.double(500)] == [int(line) for line in (tmp_path / "x").read_text().split()]
    assert os.system(f"echo 6 > {tmp_path}/y; exit 3") >> 8 == 3
    assert answer.double(3) == int((tmp_path / "y").read_text())
def test_owner_of_files(tmp_path):
    import os, shutil
    (tmp_path / "tool").write_text("x")
    (tmp_path / "tool").chmod(0o700)
    assert os.access(tmp_path / "tool", os.W_OK | os.X_OK) and shutil.which("tool", path=str(tmp_path))
    assert answer.double(os.stat(tmp_path / "tool").st_uid) == 2 * os.getuid()
def test_monkeypatch_attribute(monkeypatch):
    monkeypatch.setattr(answer, "LIMIT", 9)
    assert answer.limit() == 9
def test_monkeypatch_undone(): assert answer.limit() == 5
def test_caplog(caplog):
    import logging
    logging.getLogger("x").warning("double is %s", double(2))
    assert "double is 4" in caplog.text
def test_request(request): assert request.node.name == "test_request" and double(1) == 2
def test_record(record_property):
    record_property("a", double(1))
    assert double(1) == 2
def test_approx(): assert double(0.15) == pytest.approx(0.3)
def test_generator(): assert list(answer.gen(3)) == [0, 1, 2] and next(answer.gen(1)) == 0
def test_callback(): assert answer.apply(lambda x: x + 1, [1, 2]) == [2, 3]
def test_callback_raises():
    fake = mock.Mock(side_effect=[ValueError("a"), 5])
    assert answer.retry(fake, 3) == 5 and fake.call_count == 2
def test_changed_argument():
    given = [1, 2, 3]
    assert answer.reverse(given) is None and given == [3, 2, 1]
def test_async():
    import asyncio
    assert asyncio.run(answer.later(1)) == 2
def test_exit():
    with pytest.raises(SystemExit) as caught: answer.leave()
    assert caught.value.code == 3
def test_large(): assert answer.big() == 10 ** 3000
def test_names():
    assert callable(double) and double.__name__ == "double" and double.__doc__ == "Twice." and not hasattr(answer, "nothing")
    assert double(1) == 2
def test_count_one(): assert answer.count() == 1
def test_count_again(): assert answer.count() == 1
def test_subtests(subtests):
    for n in (1, 2):
        with subtests.test(n=n): assert double(n) == 2 * n
@pytest.fixture(scope="module")
def shared(): return Stack.of(1, 2)
def test_shared_one(shared): assert list(shared) == [1, 2]
def test_shared_two(shared): assert shared.pop() == 2
def test_shared_three(shared): assert list(shared) == [1]
class TestClass:
    @pytest.fixture(scope="class")
    def held(self): return Stack.of(5)
    def test_held(self, held): assert held.top == 5
    def test_held_again(self, held): assert held.pop() == 5 and list(held) == []
class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.stack = Stack.of(6)
    def setUp(self): self.one = Stack.of(1)
    def test_class(self): self.assertEqual(self.stack.top, 6)
    def test_equal(self): self.assertEqual(double(2), 4)
    def test_raises(self):
        with self.assertRaisesRegex(Bad, "code 4"): answer.fail(4)
    def test_sub(self):
        for n in (1, 2):
            with self.subTest(n=n): self.assertEqual(double(n), 2 * n)
    def test_own(self): self.assertEqual(self.one.pop(), 1); self.assertEqual(len(self.one), 0)
class Async(unittest.IsolatedAsyncioTestCase):
    async def test_await(self): self.assertEqual(await answer.later(1), 2)
"""  # fmt: skip
NEVER = """
import unittest
import pytest
from answer import double
@pytest.mark.skip
def test_skip(): assert double(1) == 2
@pytest.mark.xfail
def test_xfail(): assert double(1) == 2
@pytest.mark.xfail
def test_xfail_fails(): assert double(1) == 3
def test_skipping(): pytest.skip("no")
def test_last_good(subtests):
    for n in (3, 2):
        with subtests.test(n=n): assert n == 2
class Case(unittest.TestCase):
    @unittest.expectedFailure
    def test_expected(self): self.assertEqual(double(1), 3)
    def test_first_bad(self):
        for n in (3, 2, 2):
            with self.subTest(n=n): self.assertEqual(double(1), n)
    def test_last_bad(self):
        for n in (2, 2, 3):
            with self.subTest(n=n): self.assertEqual(double(1), n)
    def test_skipped_part(self):
        for n in (2, 3):
            with self.subTest(n=n):
                if n == 3: self.skipTest("no")
                self.assertEqual(double(1), n)
"""  # fmt: skip


def ids_of(text: str) -> list[str]:
    """The node ids of a suite's tests, in order."""
    found, inside, params = [], "", False
    for line in text.splitlines():
        if line[:1].strip():
            inside = (
                line.split("(")[0].split(":")[0].removeprefix("class ") + "::"
                if line.startswith("class ")
                else ""
            )
        named = re.match(r"\s*(?:async )?def (test_\w+)", line)
        if named and params:
            found += [f"test_it.py::{named[1]}[1-2]", f"test_it.py::{named[1]}[a-aa]"]
        elif named:
            found.append(f"test_it.py::{inside}{named[1]}")
        params = line.startswith("@pytest.mark.parametrize")
    return found


def passed(slot: Slot, tests: str, answer: str, **settings: Any) -> tuple[list[Verdict], set[str]]:
    """The verdicts, and which tests passed. Weights that are powers of two say in one score which: so a few at a time."""
    ids, verdicts, good = ids_of(tests), [], set()
    for start in range(0, len(ids), MANY):
        some = ids[start : start + MANY]
        spec = {
            "kind": "suite",
            "path": "answer.py",
            "tests": {"test_it.py": tests},
            "ids": [{"id": each, "weight": float(2**place)} for place, each in enumerate(some)],
        }
        code.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        verdict = code.verify(task, settings, LIMITS, answer.encode(), slot)
        assert verdict.outcome == "scored", verdict
        assert verdict.score is not None
        bits = round(verdict.score * (2 ** len(some) - 1))
        good |= {each for place, each in enumerate(some) if bits >> place & 1}
        verdicts.append(verdict)
    return verdicts, good


def test_the_right_answer_passes_every_ordinary_test(slot: Slot, seen: Seen) -> None:
    verdicts, good = passed(slot, TESTS, RIGHT)
    assert set(ids_of(TESTS)) - good == set(), verdicts
    check_traces(slot, seen)


def test_the_wrong_answer_passes_none(slot: Slot) -> None:
    assert passed(slot, TESTS, WRONG)[1] == set()


def test_what_is_skipped_or_expected_to_fail_or_fails_in_part_is_not_passed(slot: Slot) -> None:
    verdicts, good = passed(slot, NEVER, RIGHT)
    assert good == set(), verdicts
    assert [verdict.score for verdict in verdicts] == [0.0]
