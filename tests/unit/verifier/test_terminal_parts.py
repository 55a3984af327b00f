from __future__ import annotations

import dataclasses
from hashlib import sha256
from typing import Any

import pytest

from services.verifier.families import commands, invoked, predicates, runs, state, terminal, tree_f1
from services.verifier.jail import Change, Diff, FileEntry, Outcome, Snapshot
from services.verifier.jail.snapshot import Layer
from services.verifier.jail.tree import Entry, change, from_files
from services.verifier.specs import SpecError

JSON = '{"a": {"b/c": [1, 2.0, null, true]}, "~": "x"}'
FILES = {"run.sh": "#!/bin/sh\n", "data.json": JSON, "lines": "1\n2\n3", "empty": ""}
BEFORE = state.initial(FILES)


def kept(files: dict[str, str], links: dict[str, str] | None = None) -> Snapshot:
    tree: dict[bytes, Entry] = from_files({path: FileEntry(text.encode()) for path, text in files.items()})
    for path, target in (links or {}).items():
        tree[path.encode()] = Entry("symlink", 0o777, len(target), "", target.encode())
    return Snapshot((Layer(tree),))


@pytest.mark.parametrize(
    ("check", "wanted"),
    [
        ({"kind": "exists", "path": "run.sh"}, True),
        ({"kind": "exists", "path": "no"}, False),
        ({"kind": "type", "path": "run.sh", "type": "file"}, True),
        ({"kind": "type", "path": "run.sh", "type": "dir"}, False),
        ({"kind": "mode", "path": "run.sh", "mode": "644"}, True),
        ({"kind": "mode", "path": "run.sh", "mode": "0755"}, False),
        ({"kind": "size", "path": "lines", "bytes": 5}, True),
        ({"kind": "size", "path": "lines", "least": 6}, False),
        ({"kind": "size", "path": "lines", "least": 1, "most": 5}, True),
        ({"kind": "sha256", "path": "empty", "sha256": sha256(b"").hexdigest()}, True),
        ({"kind": "sha256", "path": "lines", "sha256": sha256(b"").hexdigest()}, False),
        ({"kind": "contains", "path": "lines", "text": "2\n3"}, True),
        ({"kind": "contains", "path": "lines", "text": ".*"}, False),
        ({"kind": "lines", "path": "lines", "count": 3}, True),
        ({"kind": "lines", "path": "empty", "count": 0}, True),
        ({"kind": "lines", "path": "no", "count": 0}, False),
        ({"kind": "json", "path": "data.json", "pointer": "/a/b~1c/0", "value": 1}, True),
        ({"kind": "json", "path": "data.json", "pointer": "/a/b~1c/0", "value": True}, False),
        ({"kind": "json", "path": "data.json", "pointer": "/a/b~1c/1", "value": 2}, False),
        ({"kind": "json", "path": "data.json", "pointer": "/a/b~1c/2", "value": None}, True),
        ({"kind": "json", "path": "data.json", "pointer": "/a/b~1c/9", "value": None}, False),
        ({"kind": "json", "path": "data.json", "pointer": "/a/b~1c/01", "value": 2.0}, False),
        ({"kind": "json", "path": "data.json", "pointer": "/~0", "value": "x"}, True),
        ({"kind": "json", "path": "data.json", "pointer": "/no", "value": None}, False),
        ({"kind": "json", "path": "lines", "pointer": "", "value": 1}, False),
    ],
)
def test_predicates(check: dict[str, Any], *, wanted: bool) -> None:
    predicates.check_checks([check], "checks")
    assert predicates.holds(check, BEFORE) is wanted


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"a": NaN}', "[" * 5000, '{"a": 1} x', "\ud800"])
def test_json_is_strict(text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    entry = Change("f", "file", 0o644, len(raw), sha256(raw).hexdigest())
    at = state.State({"f": entry}, read=lambda _: raw)
    assert not predicates.holds({"kind": "json", "path": "f", "pointer": "/a", "value": 1}, at)


def test_a_link_is_told_by_its_target_and_never_read() -> None:
    target = Change("l", "symlink", 0o777, 4, sha256(b"data").hexdigest())
    at = state.State({"l": target}, read=lambda _: b"1\n")
    assert predicates.holds({"kind": "link", "path": "l", "target": "data"}, at)
    assert not predicates.holds({"kind": "link", "path": "l", "target": "date"}, at)
    assert not predicates.holds({"kind": "lines", "path": "l", "count": 1}, at)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"kind": "mode", "path": "a", "mode": "rwx"}, "octal"),
        ({"kind": "mode", "path": "a", "mode": 493}, "mode"),
        ({"kind": "size", "path": "a"}, "bytes, least or most"),
        ({"kind": "size", "path": "a", "bytes": -1}, "bytes"),
        ({"kind": "sha256", "path": "a", "sha256": "00"}, "64 hex"),
        ({"kind": "type", "path": "a", "type": "socket"}, "type"),
        ({"kind": "json", "path": "a", "pointer": "a.b", "value": 1}, "RFC 6901"),
        ({"kind": "json", "path": "a", "pointer": "/a"}, "value"),
        ({"kind": "lines", "path": "a", "count": "3"}, "count"),
        ({"kind": "contains", "path": "a", "text": ""}, "text"),
        ({"kind": "link", "path": "a", "target": ""}, "target"),
        ({"kind": "exists", "path": "../a"}, "path"),
    ],
)
def test_a_broken_check_is_named(check: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        predicates.check_checks([check], "checks")


TREE = {"want": {"new/a": {"text": "1"}, "lines": {"absent": True}, "run.sh": {"text": FILES["run.sh"]}}}


@pytest.mark.parametrize(
    ("created", "deleted", "wanted"),
    [
        ({"new": None, "new/a": "1"}, ("lines",), 1.0),
        ({}, (), 0.0),
        ({"new": None, "new/a": "2"}, ("lines",), 0.5),
        ({"new": None, "new/a": "1"}, (), 2 / 3),
        ({"new": None, "new/a": "1", "x": "", "y": ""}, ("lines",), 2 * 2 / (4 + 2)),
        ({"new": None, "new/a": "1", "x.pyc": "", "cache/": "", "cache/z": ""}, ("lines",), 1.0),
    ],
)
def test_tree_f1(exited: Any, created: dict[str, Any], deleted: tuple[str, ...], wanted: float) -> None:
    tree_f1.check_tree(TREE, BEFORE, "tree")
    made = {path.rstrip("/"): None if path.endswith("/") else text for path, text in created.items()}
    final = state.after(BEFORE, exited(made, deleted=deleted))
    value, said = tree_f1.score(TREE, BEFORE, final, ["*.pyc", "cache"])
    assert value == pytest.approx(wanted)
    assert bool(said) is (wanted < 1.0)


def test_a_tree_that_is_there_already_is_refused() -> None:
    for want in ({}, {"empty": {"text": ""}}, {"no": {"absent": True}}):
        with pytest.raises(SpecError, match="before any command"):
            tree_f1.check_tree({"want": want}, BEFORE, "tree")
    with pytest.raises(SpecError, match="exactly one of"):
        tree_f1.check_tree({"want": {"a": {"text": "", "dir": True}}}, BEFORE, "tree")


COMMANDS = [
    {"name": "c", "argv": ["/usr/bin/test", "-e", "/w/a"]},
    {"name": "d", "run": "cat a", "stdout": "1"},
]
SPEC: dict[str, Any] = {"files": {}, "commands": COMMANDS, "trusted": {"x": "y"}}


def test_commands_run_on_the_untouched_and_on_the_frozen_files(
    make_task: Any, limits: Any, scripted: Any, exited: Any
) -> None:
    terminal.check_spec(SPEC, {})
    assert runs("terminal", SPEC) == 5
    snapshot = kept({"a": "1"})
    bad = exited(exit_code=1)
    jail = scripted(exited({"a": "1"}, snapshot=snapshot), bad, bad, exited(), exited(stdout=b"1\n"))
    verdict = terminal.verify(make_task(SPEC), {}, limits, b"echo 1 > a", jail)
    assert verdict.parts[0].score == verdict.parts[1].score == 1.0
    assert [job.base for job in jail.jobs] == [None, None, None, snapshot, snapshot]
    assert [bool(job.trusted) for job in jail.jobs] == [False, True, True, True, True]
    assert all(job.env["PYTHONSAFEPATH"] == "1" and job.env["HOME"] == "/t" for job in jail.jobs[1:])
    assert verdict.score == pytest.approx(2 / 3)  # `a` is a stray: no check speaks of it
    jail = scripted(exited({"a": "1"}, snapshot=snapshot), bad, bad, exited(), exited(stdout=b"2\n"))
    assert (
        terminal.verify(make_task(SPEC), {}, limits, b"x", jail).parts[1].evidence
        == "exit 0, with another output"
    )


def test_a_command_that_held_before_is_a_gate_and_all_such_are_the_specs_fault(
    make_task: Any, limits: Any, scripted: Any, exited: Any
) -> None:
    ok, bad, snapshot = exited(), exited(exit_code=1), kept({})
    spec = SPEC | {"commands": [COMMANDS[0], COMMANDS[0]]}
    jail = scripted(exited(snapshot=snapshot), ok, bad, bad, ok)
    verdict = terminal.verify(make_task(spec), {}, limits, b"x", jail)
    assert verdict.score == 0.0
    with pytest.raises(SpecError, match="all checks and commands hold"):
        terminal.verify(
            make_task(spec), {}, limits, b"x", scripted(exited(snapshot=snapshot), ok, ok, ok, ok)
        )


def test_a_jail_fault_in_a_command_is_no_score(
    make_task: Any, limits: Any, scripted: Any, exited: Any
) -> None:
    gone = Outcome(cause="infra", detail="gone")
    for outcomes in ([gone], [exited(exit_code=1)] * 2 + [gone]):
        jail = scripted(exited({"a": "1"}, snapshot=kept({"a": "1"})), *outcomes)
        verdict = terminal.verify(make_task(SPEC), {}, limits, b"x", jail)
        assert (verdict.outcome, verdict.score) == ("infra", None)


def test_without_a_snapshot_no_command_passes(
    make_task: Any, limits: Any, scripted: Any, exited: Any
) -> None:
    jail = scripted(exited({"a": "1"}), exited(exit_code=1), exited(exit_code=1))
    assert terminal.verify(make_task(SPEC), {}, limits, b"x", jail).score == 0.0


@pytest.mark.parametrize(
    ("target", "at", "out"),
    [
        ("a", "l", False),
        ("../a", "d/l", False),
        ("/w/a", "l", False),
        ("/usr/bin/python3", "l", False),
        ("/t/want", "l", True),
        ("../t/want", "l", True),
        ("..", "l", True),
        ("/", "l", True),
        ("/proc/self/root", "l", True),
        ("d/../a", "l", True),
        ("/usr/../t/want", "l", True),
        ("/tmp/x", "l", True),
        ("../../t", "d/l", True),
        ("//t/want", "l", True),
    ],
)
def test_links_that_lead_out(target: str, at: str, *, out: bool) -> None:
    assert bool(commands.leading_out(kept({"d/f": ""}, {at: target}))) is out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"name": "c"}, "run and argv"),
        ({"name": "c", "run": "a", "argv": ["a"]}, "run and argv"),
        ({"name": "c", "argv": []}, "argv"),
        ({"name": "c", "argv": "ls"}, "argv"),
        ({"name": "c", "argv": ["./made"]}, "its own"),
        ({"name": "c", "argv": ["/w/made"]}, "its own"),
        ({"name": "c", "argv": ["/usr/bin/python3", "/w/made.py"]}, "its own"),
        ({"name": "c", "argv": ["python3", "made.py"]}, "its own"),
        ({"name": "c", "argv": ["/t/../w/made"]}, "its own"),
        ({"name": "c", "run": "true", "limits": {"wall_s": 0}}, "wall_s"),
        ({"name": "c", "run": "true", "limits": {"pids": 1.5}}, "pids"),
        ({"name": "c", "run": "true", "limits": {"gpu": 1}}, "gpu"),
        ({"name": "c", "run": "a", "start": "later"}, "start"),
        ({"name": "c", "run": "echo a\0"}, "NUL"),
        ({"name": "c", "run": "true", "network": 1}, "network"),
    ],
)
def test_a_broken_command_is_named(command: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        commands.check_commands([command], "commands")


def test_limits_of_a_command_only_lower_the_cards(limits: Any) -> None:
    lowered = commands.lowered(limits, {"wall_s": 0.5, "cpu_s": 99, "memory_mib": 64, "pids": 4096})
    assert (lowered.wall_s, lowered.cpu_s, lowered.memory_bytes) == (0.5, limits.cpu_s, 64 << 20)
    assert lowered.pids == limits.pids


def test_an_interpreter_with_a_trusted_script_needs_no_output() -> None:
    for argv in (
        ["/usr/bin/python3", "-I", "/t/c.py"],
        ["/bin/sh", "/t/c.sh"],
        ["cmp", "a", "/t/b"],
        ["sh", "-c", "test -e x"],
    ):
        commands.check_commands(
            [{"name": "c", "argv": argv}], "commands", {"c.py": "pass", "c.sh": "test -e /w/a"}
        )


@pytest.mark.parametrize(
    "run",
    [
        "./prog",
        "/w/prog",
        "sub/prog --x",
        "python3 made.py",
        "cd sub && python3 -m made",
        "sh made.sh",
        "test -e made && ./made",
        "X=1 ./made",
        "timeout 5 ./made",
        "if ./made; then exit 0; fi",
        "! ./made",
        "cat in | ./made",
        "(./made)",
        'test "$(./made)" = 3',
        "make test",
        "python3 -m pytest -q",
        "pytest",
        ". ./made",
        "sh -c ./prog",
        "nohup ./prog",
        "setsid ./prog",
        "stdbuf -oL ./prog",
        "echo 1 | xargs ./prog",
        "find . -name prog -exec {} ;",
        "PATH=/w:$PATH; prog",
        "PATH=/w:$PATH cat",
        "LD_PRELOAD=/w/a.so cat a",
        "eval $(cat prog)",
        "while read l; do ./prog; done < in",
        "case x in x) ./prog;; esac",
        "gcc -o p p.c && ./p",
        "cargo test",
        "go test ./...",
        "ctest",
        "node --test",
        "java -jar x.jar",
        "lua x.lua",
        "gdb -x x",
        "sqlite3 db < x.sql",
        "/lib64/ld-linux-x86-64.so.2 ./prog",
        "git -C /w status --porcelain",
        "sort --compress-program=./prog in",
        'test "$(echo "$(./made)")" = 3',
        "test `./made` = 3",
        "cat <(./made)",
        "cat() { ./made; }; cat a",
    ],
)
def test_a_shell_text_that_runs_what_the_answer_wrote_must_compare_output(run: str) -> None:
    """`exit(0)` is all that such a program needs; what it prints it would have to know."""
    spec = {"files": {}, "commands": [{"name": "c", "run": run}]}
    with pytest.raises(SpecError, match="runs what the answer wrote"):
        terminal.check_spec(spec, {})
    terminal.check_spec({"files": {}, "commands": [{"name": "c", "run": run, "stdout": "3"}]}, {})


@pytest.mark.parametrize(
    "run",
    [
        "test -e a && rm a",
        "cat result.json | cmp -s - /t/want.json",
        "python3 /t/check.py made.py",
        "python3 -c 'import json; json.load(open(\"a/b\"))'",
        "sort in > out; cmp out want",
        "grep -q 'a; ./b' in",
        "/usr/bin/diff a b",
        'test "$(cat a/b)" = 1',
        "sh /t/look.sh && cmp a /t/want 2>&1",
        "! test -e /w/ran",
        "for f in a b; do test -e $f; done",
    ],
)  # fmt: skip
def test_a_shell_text_of_the_systems_programs_needs_no_output(run: str) -> None:
    trusted = {"check.py": "import json", "look.sh": "#!/bin/sh\ntest -e a && cat a\n"}
    terminal.check_spec({"files": {}, "trusted": trusted, "commands": [{"name": "c", "run": run}]}, {})


TRUSTED = {
    "check.py": "import subprocess\nsubprocess.run(['/w/prog'])\n",
    "look.sh": "cmp /w/a /t/want\n",
    "run.sh": "/w/prog\n",
}


@pytest.mark.parametrize(
    "run",
    [
        "./prog < /t/want",
        "./prog | cmp - /t/want",
        "cd sub && python3 /t/check.py",
        "sh /t/run.sh",
        "PYTHONPATH=/w python3 /t/check.py",
        "./prog //t/want",
        "./prog ../t/want",
        "./prog /w/../t/want",
        "./prog $(cat /t/want)",
    ],
)
def test_a_command_that_runs_what_the_answer_wrote_may_not_name_the_trusted_files(run: str) -> None:
    with pytest.raises(SpecError, match="names /t"):
        commands.check_commands([{"name": "c", "run": run, "stdout": "1"}], "commands", TRUSTED)


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (["/usr/bin/python3", "-I", "/t/check.py", "a b"], "check"),
        (["python3.11", "-c", "import json"], "check"),
        (["/usr/bin/python3", "/t/missing.py"], "run"),
        (["/w/python3", "/t/check.py"], "run"),
        (["python3", "-X", "importtime", "/t/check.py"], "run"),
        (["python3", "-m", "pytest"], "run"),
        (["/bin/sh", "/t/look.sh"], "read"),
        (["/bin/sh", "/t/run.sh"], "run"),
        (["/w/cat", "a"], "run"),
    ],
)
def test_three_kinds_of_commands(argv: list[str], kind: str) -> None:
    assert invoked.kind({"argv": argv}, TRUSTED) == kind


def test_only_a_check_is_sealed_and_a_run_has_no_trusted_files(
    limits: Any, scripted: Any, exited: Any
) -> None:
    own: list[dict[str, Any]] = [
        {"name": "check", "run": "python3 -I /t/check.py 'a b'"},
        {"name": "read", "run": "cmp a /t/want", "network": True},
        {"name": "run", "run": "./prog", "stdout": "1"},
    ]
    commands.check_commands(own, "commands", TRUSTED)
    jail = scripted(exited(), exited(), exited())
    commands.run(own, {}, TRUSTED, limits, jail)
    check, read, run = jail.jobs
    assert check.argv == ("python3", "-I", "/t/.temper.check.py", "/t/check.py", "a b")
    assert [(job.sealed, job.report) for job in jail.jobs] == [(True, True), (False, False), (False, False)]
    assert (set(read.trusted), run.trusted) == (set(TRUSTED), {})
    assert [job.offline for job in jail.jobs] == [True, False, True]


@pytest.mark.parametrize(
    "text",
    [
        "import os; os.system('/w/prog')",
        "import os; os.execv('/w/prog', ['x'])",
        "exec(open('/w/a.py').read())",
        "import runpy",
        "from multiprocessing import Process",
        "import pickle",
        "def f(:",
    ],
)
def test_a_check_that_cannot_be_kept_apart_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="the check"):
        commands.check_commands([{"name": "c", "run": "python3 /t/c.py"}], "commands", {"c.py": text})


def test_names_that_are_shown_alike_are_kept_apart(exited: Any) -> None:
    odd, plain = change(b"a\xff", Entry("file", 0o644, 1, "1" * 64, b"")), "a\\xff"
    assert (odd.path, odd.key) == (plain, "a\udcff")
    outcome = dataclasses.replace(exited(), diff=Diff(created=(odd,)))
    final = state.after(BEFORE, outcome)
    assert not predicates.holds({"kind": "exists", "path": plain}, final)
    assert predicates.holds({"kind": "absent", "path": plain}, final)
    assert state.touched(outcome) == ["a\udcff"]
    assert state.shown("a\udcff") == plain
    both = Snapshot(
        (
            Layer(
                {
                    b"a\xff": Entry("file", 0o644, 1, "1" * 64, b"x"),
                    b"a\\xff": Entry("dir", 0o755, 0, "", b""),
                }
            ),
        )
    )
    standing = state.standing(both)
    assert {path: each.type for path, each in standing.entries.items()} == {"a\udcff": "file", plain: "dir"}
    assert (standing.read(plain), standing.read("a\udcff")) == (None, b"x")


def test_a_command_that_the_memory_limit_stopped_did_no_work(
    make_task: Any, limits: Any, scripted: Any, exited: Any
) -> None:
    spec = {"files": {}, "checks": [{"kind": "exists", "path": "b"}]}
    done = exited({"b": ""})
    for cause, score in (("exit", 1.0), ("memory", 0.0)):
        jail = scripted(dataclasses.replace(done, cause=cause))
        assert terminal.verify(make_task(spec), {}, limits, b"x", jail).score == score
