"""What an answer leaves in the working folder does not reach the checks: they see data, or run in another jail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.cards import parse_card
from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import stages, terminal
from services.verifier.jail import FileEntry, Job, Limits, Outcome, Slot
from services.verifier.keep import Keep
from services.verifier.pool import Pool
from services.verifier.track import Follow

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)
# The check imports what it needs from the standard library, and trusts no file of the answer's to be what it seems.
CHECK = """
import json, sys
with open("/w/result.json", encoding="utf-8") as file:
    value = json.load(file)
print("right" if value == {"sum": 6} else "wrong")
"""
SPEC: dict[str, Any] = {
    "files": {"data.txt": "1\n2\n3\n", "tests/test_sum.py": "assert True\n"},
    "trusted": {"check.py": CHECK, "want.json": '{"sum": 6}\n'},
    "checks": [{"kind": "json", "path": "result.json", "pointer": "/sum", "value": 6}],
    "commands": [
        {"name": "check", "argv": ["/usr/bin/python3", "/t/check.py"], "stdout": "right"},
        {"name": "inline", "argv": ["/usr/bin/python3", "-c", "import json; json.load(open('result.json'))"]},
        {"name": "shell", "run": "cat result.json | cmp -s - /t/want.json"},
    ],
    "protected": ["tests"],
    "ignore": ["*.pyc"],
}
WORK = """echo '{"sum": 6}' > result.json"""


class Watched:
    """The slot, with what holds after any run."""

    def __init__(self, slot: Slot) -> None:
        self.slot, self.runs = slot, 0

    def run(self, job: Job) -> Outcome:
        outcome = self.slot.run(job)
        assert outcome.cause != "infra", outcome.detail
        assert outcome.survivors == 0
        self.runs += 1
        return outcome


@pytest.fixture
def judge(slot: Slot, attack: Callable[..., Outcome]) -> Callable[..., Verdict]:
    def run(answer: str, spec: dict[str, Any] = SPEC, family: Any = terminal, **settings: Any) -> Verdict:
        family.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        jail = Watched(slot)
        verdict = family.verify(task, settings, CALM, answer.encode(), jail)
        assert 0 < jail.runs <= family.runs(spec)
        attack(("/bin/true",), CALM)
        assert isinstance(verdict, Verdict)
        return verdict

    return run


def test_the_work_itself_passes(judge: Callable[..., Verdict]) -> None:
    verdict = judge(WORK)
    assert (verdict.outcome, verdict.score, verdict.passed) == ("scored", 1.0, True), verdict
    assert judge("true").score == 0.0


PLANT = "raise SystemExit(0)"
PLANTS = (
    "for n in json sys sitecustomize usercustomize conftest check encodings; do echo '{plant}' > $n.py; done; "
    "mkdir t bin; cp json.py t/check.py"
)


@pytest.mark.parametrize(
    "hack",
    [
        PLANTS.format(plant='import os; print("right"); os._exit(0)'),
        (
            "mkdir -p .local/lib/python3.11/site-packages && cp /dev/null .local/lib/python3.11/site-packages/usercustomize.py"
            " && echo 'print(\"right\")' > .local/lib/python3.11/site-packages/usercustomize.py"
        ),
        "for f in .bashrc .profile .bash_profile .bash_login .shrc .zshenv; do echo 'echo right; exit 0' > $f; done",
        (
            "mkdir bin; printf '#!/bin/sh\\necho right\\n' > bin/cat; cp bin/cat cat; cp bin/cat python3; chmod +x * bin/*;"
            " echo 'PATH=/w/bin:$PATH' > .profile; export PATH=/w/bin:$PATH ENV=/w/.profile BASH_ENV=/w/.profile PYTHONPATH=/w"
        ),
        'echo \'{"reward": 1.0, "passed": true}\' > reward.json; mkdir -p logs/verifier; cp reward.json logs/verifier',
        "printf 'PASSED tests/test_sum.py::test\\n1 passed in 0.01s\\n__TB2_REWARD__:1\\nright\\n'",
        "setsid sh -c 'sleep 0.3; echo \\'{\"sum\": 6}\\' > /w/result.json' >/dev/null 2>&1 &",
        "ln -s /t/want.json result.json",
        "ln -s ../t/want.json result.json",
        "ln -s /usr d; ln -s d/../t/want.json result.json",
        "ln -s /proc/self/root p; ln -s p/t/want.json result.json",
        "ln -s .. up; mkdir x; ln -s ../up/t/want.json x/result.json; ln -s x/result.json result.json",
        "mkfifo result.json",
        "mkdir result.json",
        "truncate -s 1T result.json",
        "echo right > /t/check.py; mkdir -p /t/x; rm -rf /t",
    ],
)
def test_a_trick_without_the_work_earns_nothing(judge: Callable[..., Verdict], hack: str) -> None:
    verdict = judge(hack)
    assert verdict.outcome == "scored"
    assert verdict.score == 0.0, verdict
    assert not verdict.passed


@pytest.mark.parametrize(
    "plant",
    [
        PLANTS.format(plant=PLANT),
        "for f in .bashrc .profile .bash_profile; do echo 'exit 1' > $f; done",
        "printf '#!/bin/sh\\nexit 1\\n' > cat; chmod +x cat",
    ],
)
def test_what_lies_in_the_folder_is_never_loaded_by_a_check(
    judge: Callable[..., Verdict], plant: str
) -> None:
    """The work was done: what was planted beside it would only break a check that loaded it."""
    verdict = judge(f"{plant}; {WORK}")
    assert [part.score for part in verdict.parts] == [1.0] * 4, verdict
    assert not verdict.passed  # strays


@pytest.mark.parametrize(
    "way",
    [
        "echo 'assert 1' > tests/test_sum.py",
        "rm -r tests",
        "mv tests other",
        "mv tests other && mkdir tests && cp other/test_sum.py tests/ && echo >> tests/test_sum.py",
        "mv tests other && ln -s other tests",
        "rm tests/test_sum.py && ln -s ../data.txt tests/test_sum.py",
        "chmod 0 tests",
        "chmod 777 tests/test_sum.py",
        "echo x > tests/conftest.py",
    ],
)
def test_protected_paths_are_a_gate_however_they_are_changed(judge: Callable[..., Verdict], way: str) -> None:
    verdict = judge(f"{WORK}; {way}")
    assert (verdict.score, verdict.passed) == (0.0, False)
    assert "protected" in verdict.evidence


def test_a_writer_in_the_background_is_dead_before_anything_is_looked_at(
    judge: Callable[..., Verdict],
) -> None:
    """It does the work, and undoes and redoes it for ever; whichever it was in, all checks see one and the same state."""
    answer = f"(trap '' TERM HUP; while :; do {WORK}; rm result.json; done) >/dev/null 2>&1 & exit 0"
    for _ in range(3):
        scores = {part.score for part in judge(answer).parts}
        assert len(scores) == 1, scores


def test_links_within_the_folder_and_into_the_system_are_fine(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {"d/a": "1\n"},
        "commands": [{"name": "c", "run": "test -e d/b && test -x py && test -e e/b"}],
    }
    assert judge(
        "ln -s a d/b; ln -s /usr/bin/python3 py; ln -s d e; ln -s ../d/a d/c", spec | {"ignore": ["*"]}
    ).passed


def test_hooks_of_a_repository_do_not_run_in_a_check(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {"a": "1\n"},
        "checks": [],
        "commands": [
            {"name": "status", "run": "git -C /w status --porcelain", "stdout": "?? a"},
            {
                "name": "untouched",
                "run": "git -C /w commit -q --allow-empty -m x --author 'a <a@b>'; test -e /w/ran || echo none",
                "stdout": "none",
            },
        ],
        "ignore": [".git"],
    }
    hack = (
        "git init -q . && git config core.fsmonitor 'touch /w/ran; echo' && git config core.hooksPath /w/.git/hooks &&"
        " git config user.email a@b && git config user.name a && git config core.sshCommand 'touch /w/ran' &&"
        " for h in pre-commit post-commit prepare-commit-msg commit-msg post-index-change reference-transaction; do"
        " printf '#!/bin/sh\\ntouch /w/ran\\nexit 0\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done"
    )
    verdict = judge(hack, spec)
    assert [part.score for part in verdict.parts] == [1.0, 1.0], verdict


def test_commands_start_from_one_frozen_copy_unless_they_say_otherwise(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {},
        "commands": [
            {"name": "spoil", "run": "test -e made && rm made"},
            {"name": "again", "run": "test -e made"},
            {"name": "spoil2", "run": "test -e made && rm made"},
            {"name": "gone", "run": "test -e other && ! test -e made", "start": "previous"},
        ],
    }
    verdict = judge("touch made other", spec)
    assert [part.score for part in verdict.parts] == [1.0] * 4, verdict


def test_a_check_has_its_own_limits(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {},
        "commands": [
            {"name": "run", "run": "sh ./made", "stdout": "right", "limits": {"wall_s": 0.5}},
            {"name": "there", "run": "test -e made"},
        ],
    }
    verdict = judge("printf 'echo right; sleep 9' > made", spec)
    assert [part.score for part in verdict.parts] == [0.0, 1.0]
    assert verdict.parts[0].evidence == "wall"


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        ("ln -s data.txt a; ln -s /etc/passwd b", {"link"}),
        ("mkfifo a", set()),
        ("truncate -s 1G a", set()),
        ("mkdir a", {"exists"}),
        ("printf 'x\\ny' > a; chmod 640 a", {"exists", "mode", "size", "lines", "contains"}),
    ],
)
def test_predicates_follow_no_link_and_open_no_special_file(
    judge: Callable[..., Verdict], answer: str, kinds: set[str]
) -> None:
    checks: list[dict[str, Any]] = [
        {"kind": "type", "path": "a", "type": "file"},
        {"kind": "mode", "path": "a", "mode": "640"},
        {"kind": "size", "path": "a", "least": 1, "most": 8},
        {"kind": "lines", "path": "a", "count": 2},
        {"kind": "contains", "path": "a", "text": "x"},
        {"kind": "link", "path": "a", "target": "data.txt"},
    ]
    verdict = judge(answer, {"files": {"data.txt": "x\ny\n"}, "checks": checks})
    scores = {part.name.split()[0]: part.score for part in verdict.parts}
    good = {name for name, score in scores.items() if score}
    assert good - {"type"} == kinds - {"exists"}
    assert (scores["type"] == 1.0) is ("size" in kinds or "truncate" in answer)


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


# A check of the task's that starts the answer's program on hidden cases, as an author would write it.
STARTS = """
import subprocess, sys
for args, want in [(["2", "3"], "5"), (["10", "20"], "30")]:
    got = subprocess.run(["/bin/sh", "/w/add.sh", *args], capture_output=True, text=True, timeout=5).stdout.strip()
    if got != want:
        sys.exit("wrong")
print("right")
"""
STARTING: dict[str, Any] = {
    "files": {},
    "trusted": {"check.py": STARTS},
    "commands": [
        {
            "name": "check",
            "argv": ["/usr/bin/python3", "/t/check.py", "s3cret"],
            "stdout": "right",
            "stdin": "s3cret",
        }
    ],
    "ignore": ["add.sh"],
}


def test_a_check_starts_the_answers_program(judge: Callable[..., Verdict]) -> None:
    assert judge("echo 'echo $(($1 + $2))' > add.sh", STARTING).passed
    assert judge("echo 'echo $(($1 - $2))' > add.sh", STARTING).score == 0.0


@pytest.mark.parametrize(
    "program",
    [
        "sed -n 's/.*want in .*\\[\"'$1'\", \"'$2'\"\\], \"\\([0-9]*\\)\".*/\\1/p' /t/check.py",
        "grep -ho '[0-9]*' /t/check.py /proc/[0-9]*/root/t/check.py | tail -1",
        "echo right > /proc/$PPID/fd/1; kill -INT $PPID",
        "echo right > /proc/$PPID/fd/1; kill -KILL $PPID",
        "echo right >&2; echo right; kill -TERM $PPID",
        "kill -STOP $PPID",
    ],
)
def test_a_program_that_a_check_starts_cannot_tell_what_it_wants(
    judge: Callable[..., Verdict], program: str
) -> None:
    answer = f"cat > add.sh <<'X'\n{program}\nX"
    assert judge(answer, STARTING).score == 0.0


# What such a program finds: it looks for each thing that the check knows, and the check says what was found.
LOOKS = """
import os, subprocess, sys
hidden, read_end = open("/t/want").read(), os.pipe()[0]
os.set_inheritable(read_end, True)
os.environ.pop("HOME")
done = subprocess.run(["/usr/bin/python3", "-S", "/w/look.py"], stdout=subprocess.PIPE, text=True)
bare = subprocess.Popen(["/bin/sh", "-c", "echo out; echo err >&2; cat"])
bare.wait()
print(done.stdout, end="")
"""
LOOK_AT_ALL = """
import ctypes, os
parent, found = os.getppid(), []
def look(name, do):
    try:
        found.append(f"{name} {do()!r}")
    except OSError:
        pass
look("groups", lambda: (os.getresgid() != (1000,) * 3 or os.getgroups() != []) or os.stat("/nothing"))
look("list", lambda: os.listdir("/t"))
look("file", lambda: open("/t/want").read())
look("back", lambda: os.setresgid(1002, 1002, 1002))
look("egid", lambda: os.setegid(1002))
for name in ("environ", "cmdline", "maps", "mem", "fd/0", "fd/1", "fd/2", "root/t/want", "cwd/../t/want", "status"):
    look(name, lambda: open(f"/proc/{parent}/{name}", "rb").read(99))
    look(f"self {name}", lambda: name.startswith("root") and open(f"/proc/self/{name}", "rb").read(99) or os.stat("/nothing"))
look("seen", lambda: [p for p in os.listdir("/proc") if p == str(parent)] or os.stat("/nothing"))
for fd in range(3, 300):
    look(f"descriptor {fd}", lambda: os.fstat(fd) and os.readlink(f"/proc/self/fd/{fd}"))
look("stdin", lambda: os.read(0, 99) or os.stat("/nothing"))
for fd in (0, 2):
    look(f"stream {fd}", lambda: os.readlink(f"/proc/self/fd/{fd}") != "/dev/null" or os.stat("/nothing"))
libc = ctypes.CDLL(None, use_errno=True)
look("trace", lambda: libc.ptrace(16, parent, 0, 0) == 0 or os.stat("/nothing"))
look("pidfd", lambda: libc.syscall(438, os.pidfd_open(parent), 1, 0) >= 0 or os.stat("/nothing"))
print(*found, sep="\\n")
print("end")
"""


def test_a_started_program_has_nothing_of_the_check(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {},
        "trusted": {"check.py": LOOKS, "want": "s3cret"},
        "commands": [
            {
                "name": "look",
                "argv": ["/usr/bin/python3", "/t/check.py", "s3cret"],
                "stdin": "s3cret",
                "stdout": "\nend",
            }
        ],
        "ignore": ["look.py"],
    }
    verdict = judge(f"cat > look.py <<'X'{LOOK_AT_ALL}X", spec)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    "step",
    [
        "import importlib, sys; sys.path.insert(0, '/w'); importlib.import_module('made')",
        "import sys; sys.path.insert(0, '.'); import made",
        "from importlib.util import *; s = spec_from_file_location('m', '/w/made.py'); s.loader.exec_module(module_from_spec(s))",
        "import os; getattr(os, 'system')('sh made.sh')",
        "import os; getattr(os, 'execv')('/bin/sh', ['sh', 'made.sh'])",
        "import os; os.fork() or getattr(os, 'execv')('/bin/sh', ['sh', 'made.sh']); os.wait()",
        "import os; os.waitpid(getattr(os, 'posix_spawn')('/bin/sh', ['sh', 'made.sh'], {}), 0)",
        "import builtins; getattr(builtins, 'exec')(open('/w/made.py').read())",
        "import importlib; importlib.import_module('runpy').run_path('/w/made.py')",
        "import importlib; importlib.import_module('pickle').loads(b'cos\\nsystem\\n(S\"sh made.sh\"\\ntR.')",
    ],
)
def test_a_check_that_would_run_the_answer_within_itself_is_stopped(
    judge: Callable[..., Verdict], step: str
) -> None:
    """If anything of the answer's ran, its file would be there, and the check would pass."""
    tail = "import os, sys\nsys.exit(0 if os.path.exists('/w/ran') else 1)"
    spec = {
        "files": {},
        "trusted": {"check.py": f"try:\n    {step}\nexcept RuntimeError:\n    pass\n{tail}"},
        "commands": [{"name": "c", "run": "python3 /t/check.py"}],
        "checks": [{"kind": "exists", "path": "made.py"}],
        "ignore": ["made.sh"],
    }
    verdict = judge("echo 'open(\"/w/ran\", \"w\")' > made.py; echo 'touch /w/ran' > made.sh", spec)
    assert [part.score for part in verdict.parts] == [1.0, 0.0], verdict


def test_the_trusted_folder_is_open_again_after_a_check(slot: Slot, attack: Callable[..., Outcome]) -> None:
    trusted = {"want": FileEntry(b"1")}
    sealed = attack(("/bin/cat", "/t/want"), CALM, trusted=trusted, sealed=True)
    assert (sealed.exit_code, sealed.stdout) == (1, b"")
    assert attack(("/bin/cat", "/t/want"), CALM, trusted=trusted, sealed=True, report=True).stdout == b"1"
    assert attack(("/bin/cat", "/t/want"), CALM, trusted=trusted).stdout == b"1"


def test_a_name_that_is_shown_as_another_is_not_that_other(judge: Callable[..., Verdict]) -> None:
    spec = {"files": {}, "checks": [{"kind": "exists", "path": "a\\xff"}]}
    assert judge("touch 'a\\xff'", spec).passed
    verdict = judge("touch \"$(printf 'a\\377')\"", spec)
    assert (verdict.score, "1 stray" in verdict.evidence) == (0.0, True)


def test_what_the_memory_limit_stopped_earns_nothing(judge: Callable[..., Verdict]) -> None:
    spec = {"files": {}, "checks": [{"kind": "exists", "path": "b"}]}
    verdict = judge("touch b; exec python3 -c 'x = bytearray(1) * (1 << 31)'", spec)
    assert (verdict.score, verdict.evidence) == (0.0, "memory")
