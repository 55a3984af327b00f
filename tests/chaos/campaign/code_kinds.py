"""Functions, programs in each language that is here, suites: honest answers, and answers that would be paid without the work.

Limits: the processor time decides, and the wall is ten times it, so that a busy machine changes no verdict.
"""

# ruff: noqa: E501 (one way to cheat a line)
from __future__ import annotations

from typing import Any

from schemas.cards import Card
from services.verifier.families.languages import LANGUAGES, language
from services.verifier.specs import SpecError
from tests.chaos.campaign.answers import Hostile, Kind, card

FUNCTION = {
    "entry": "f",
    "kind": "function",
    "params": ["a"],
    "cases": [{"args": [n], "want": n * n + 1} for n in (2, 3, 5)],
}
FUNCTIONS: list[Hostile] = [
    ("import sys\nsys.exit(0)", 0.0),
    ("import os\ndef f(a):\n    os._exit(0)", 0.0),
    ("import os\nwhile True: os.fork()", 0.0),
    ("def f(a):\n    while True: pass", 0.0),
    ("def f(a):\n    return 'x' * (1 << 30)", 0.0),
    ("def f(a):\n    x = [0]\n    while True: x = x + x", 0.0),
    ("import os\ndef f(a):\n    while True: os.write(1, b'y' * 65536)", 0.0),
    ("import os, signal\ndef f(a):\n    os.kill(-1, signal.SIGKILL)", 0.0),
    ("import os\ndef f(a):\n    if os.fork() == 0:\n        os.setsid()\n        while True: pass\n    return a * a + 1", 1.0),
    ("class A(int):\n    __eq__ = lambda s, o: True\ndef f(a): return A(0)", 0.0),
    ("import threading, time\ndef f(a):\n    for _ in range(100): threading.Thread(target=time.sleep, args=(60,)).start()", 0.0),
    ("def f(a): return f(a)", 0.0),
    ("def f(a): return a * a + 1 if a == 3 else float('nan')", 1 / 3),
    ("def f(a):\n    import gc\n    return [o for o in gc.get_objects() if isinstance(o, dict) and 'want' in o][0]['want']", 0.0),
]  # fmt: skip
PROGRAM_CASES = [{"stdin": f"{n} {n + 1}\n", "stdout": f"{2 * n + 1}\n"} for n in (3, 21)]
READ_C = '#include <stdio.h>\nint main(void){int a,b;scanf("%d %d",&a,&b);'
READ_JS = "const n=require('fs').readFileSync(0,'utf8').split(' ').map(Number);"
ADDERS = {
    "python": ("print(sum(map(int, input().split())))", "a, b = input().split()\nprint(int(a) + int(b))"),
    "c": (READ_C + 'printf("%d\\n",a+b);return 0;}',),
    "cpp": ('#include <cstdio>\nint main(){int a,b;std::scanf("%d %d",&a,&b);std::printf("%d\\n",a+b);}',),
    "shell": ("read a b\necho $((a+b))",),
    "javascript": (READ_JS + "console.log(n[0]+n[1])",),
}  # fmt: skip
PROGRAMS: dict[str, list[Hostile]] = {
    "python": [
        ("print('PASSED')\nprint('2 passed')", 0.0),
        ("print(7)", 0.5),
        ("print(*range(100))", 0.0),
        (ADDERS["python"][0] + "\nraise SystemExit(3)", 0.0),
        ("import os\nos._exit(0)", 0.0),
        ("import os\nfor fd in range(3,300):\n  for kind in b'OBVP':\n    try: os.write(fd,bytes([kind])+bytes(7)+b'\\x05'+bytes(4)+b'7')\n    except OSError: pass", 0.0),
        ("while 1: print('7'*1000)", 0.0),
        ("import os\nwhile True: os.fork()", 0.0),
    ],
    "c": [
        ("int main(void){return x;}", 0.0),
        ("#error PASSED", 0.0),
        ('#include "/proc/self/fd/0"\nint main(void){return 0;}', 0.0),
        ("#include <unistd.h>\nint main(void){_exit(0);}", 0.0),
        ("#include <signal.h>\nint main(void){kill(-1,SIGKILL);}", 0.0),
        ("#include <stdlib.h>\n#include <string.h>\nint main(void){for(;;)memset(malloc(1<<20),1,1<<20);}", 0.0),
        (READ_C + 'printf("%d\\n",a+b);fflush(stdout);*(volatile int*)0=0;}', 0.0),
        ("char big[1L<<33]={1};int main(void){return 0;}", 0.0),
    ],
    "cpp": [
        ("template<int n> struct A{static const int v=A<n-1>::v+A<n-2>::v;};int main(){return A<99999>::v;}", 0.0),
        ("#include <cstdlib>\nint main(){std::quick_exit(0);}", 0.0),
        ("struct B{~B(){throw 1;}};int main(){B b;}", 0.0),
        ('asm(".incbin \\"/t/programs.pyc\\"");int main(){}', 0.0),
    ],
    "shell": [
        (":(){ :|:& };:", 0.0),
        ("echo PASSED; exit 0", 0.0),
        ("read a b\necho $((a+b))\nkill -9 $$", 0.0),
        ("kill -9 -1", 0.0),
        ("yes", 0.0),
        ("(sleep 0.3; echo 7) &\nexit 0", 0.0),
        ("read a b\necho $((a+b))\nsetsid sleep 60 &", 1.0),
        ("cat /t/p/* /proc/$PPID/environ /proc/$PPID/fd/* 2>/dev/null", 0.0),
    ],
    "javascript": [
        ("process.exit(0)", 0.0),
        ("console.log('PASSED');process.exitCode=0", 0.0),
        ("process.kill(-1,'SIGKILL')", 0.0),
        (READ_JS + "console.log(n[0]+n[1]);throw 1", 0.0),
        ("for(;;);", 0.0),
        ("require('child_process').fork(__filename)", 0.0),
    ],
}  # fmt: skip
TESTS = """
import pytest
from solution import double

def test_four():
    assert double(2) == 4
    assert double(3) != 7

def test_words():
    assert double("ab") == "abab"

def test_refuses():
    with pytest.raises(ValueError):
        double(None)
"""
RIGHT = "def double(x):\n    if x is None: raise ValueError('nothing')\n    return x * 2\n"
SUITE = {
    "kind": "suite",
    "path": "solution.py",
    "tests": {"test_it.py": TESTS},
    "ids": [f"test_it.py::test_{name}" for name in ("four", "words", "refuses")],
}
SUITES: list[Hostile] = [
    ("import os\nos._exit(0)\n" + RIGHT, 0.0),
    ("raise SystemExit(0)\n" + RIGHT, 0.0),
    ("def double(x: return", 0.0),
    ("class Always:\n    __eq__ = __ne__ = lambda *a: True\ndouble = lambda x: Always()", 0.0),
    ("class I(int):\n    __eq__ = __ne__ = lambda *a: True\ndef double(x): return I(9)", 0.0),
    ("print('3 passed')\ndef double(x): print('PASSED')", 0.0),
    ("import unittest\ndef double(x): raise unittest.SkipTest('x')", 0.0),
    ("def double(x): raise ValueError", 1 / 3),
    ("import os\nfor fd in range(3, 300):\n  for n in range(3):\n    try: os.write(fd, b'P' + n.to_bytes(4, 'big') + bytes(4))\n    except OSError: pass\ndef double(x): return 0", 0.0),
    ("for name in ('conftest.py', 'sitecustomize.py', 'pytest.py'):\n  for place in ('/w', '/tmp', '/t'):\n    try: open(place + '/' + name, 'w').write('import os; os._exit(0)')\n    except OSError: pass\n", 0.0),
    ("def double(x):\n    while True: pass", 0.0),
]  # fmt: skip


def languages() -> list[str]:
    """Those whose toolchain is here."""
    found = []
    for name in LANGUAGES:
        try:
            language(name)
        except SpecError:
            continue
        found.append(name)
    return found


def cards() -> dict[str, Card]:
    """Short limits, the wall ten times the processor time."""
    small: dict[str, Any] = {"wall_s": 10.0, "cpu_s": 1.0, "memory_mib": 64}
    large: dict[str, Any] = {"wall_s": 30.0, "cpu_s": 3.0, "memory_mib": 256}
    made = [
        card("code", "function", small),
        card("code", "program", large, case_s=0.7, case_cpu_s=0.7),
        card("code", "suite", large, case_s=0.7, case_cpu_s=0.7),
    ]
    return {each.name: each for each in made}


def kinds() -> list[Kind]:
    """One of functions, one of programs a language, one of suites."""
    honest = ("def f(a): return a * a + 1", "f = lambda a: sum([a] * a) + 1")
    programs = [
        Kind(
            f"program.{name}",
            "code",
            "own.program",
            {"kind": "program", "language": name, "cases": PROGRAM_CASES},
            ADDERS[name],
            PROGRAMS[name],
        )
        for name in languages()
    ]
    return [
        Kind("function", "code", "own.function", FUNCTION, honest, FUNCTIONS),
        *programs,
        Kind("suite", "code", "own.suite", SUITE, (RIGHT,), SUITES),
    ]
