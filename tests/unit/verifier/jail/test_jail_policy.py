"""The policy file means one thing: to the filter compiled here, to the C library's numbers, and to nsjail."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from services.verifier.jail import policy
from services.verifier.jail.policy import (
    ALLOW,
    ARCHITECTURE,
    ERROR,
    FOREIGN,
    INSTRUCTION,
    KILL,
    NUMBERS,
    TELL,
    PolicyError,
)

TEXT = policy.POLICY.read_text()
RULES = {rule.number: rule for rule in policy.parse(TEXT)}
PROGRAM = list(INSTRUCTION.iter_unpack(policy.compiled()))
SOCKETS = {NUMBERS["socket"], NUMBERS["socketpair"]}
SMALL = "POLICY p { ERRNO(1) { mount, %s } } USE p DEFAULT ALLOW"


def answer(
    number: int,
    argument: int = 0,
    architecture: int = ARCHITECTURE,
    *,
    second: int = 0,
    third: int = 0,
    fourth: int = 0,
) -> int:
    """What the kernel's interpreter would return."""
    at = accumulator = 0
    loaded = {policy.AT_NUMBER: number, policy.AT_ARCHITECTURE: architecture}
    loaded |= {16: argument & 0xFFFFFFFF, 24: second, 32: third & 0xFFFFFFFF, 40: fourth}
    while True:
        code, yes, no, value = PROGRAM[at]
        at += 1
        match code:
            case policy.LOAD:
                accumulator = loaded[value]
            case policy.AND:
                accumulator &= value
            case policy.EQUAL:
                at += yes if accumulator == value else no
            case policy.ABOVE:
                at += yes if accumulator > value else no
            case policy.AT_LEAST:
                at += yes if accumulator >= value else no
            case policy.RETURN:
                return int(value)
            case _:
                raise AssertionError(code)


def expected(number: int, argument: int) -> int:
    rule = RULES.get(number)
    if number >= FOREIGN:
        return ERROR | policy.ENOSYS
    if rule is None or (rule.tests and not any(holds(test, (argument, 0, 0, 0)) for test in rule.tests)):
        return TELL if number in SOCKETS else ALLOW
    return ERROR | rule.error


def holds(test: policy.Check, arguments: tuple[int, ...]) -> bool:
    masked = arguments[test.argument] & test.mask
    return masked > test.value if test.how == policy.ABOVE else masked == test.value


@pytest.mark.parametrize("argument", [0, 1, 2, 17, 38, 40, 40 | 1 << 32, 0x10000000, 0x10000011, 0x7FFFFFFF])
def test_every_number_is_answered_as_the_file_says(argument: int) -> None:
    for number in (*range(1200), FOREIGN - 1, FOREIGN, FOREIGN + 41, 0x7FFFFFFF, 0xFFFFFFFF):
        assert answer(number, argument) == expected(number, argument), number


def test_another_architecture_ends_the_process() -> None:
    assert answer(20, architecture=0x40000003) == KILL
    assert answer(20, architecture=0xC00000B7) == KILL


def test_the_file_says_what_is_known_to_be_needed() -> None:
    refused = {name for name, number in NUMBERS.items() if number in RULES}
    assert refused == set(NUMBERS)
    assert {"clone3", "unshare", "setns", "mount", "ptrace", "bpf", "io_uring_setup", "keyctl"} <= refused
    assert RULES[NUMBERS["clone3"]].error == policy.ENOSYS
    refused_families = {domain for domain in range(-2, 60) if answer(NUMBERS["socket"], domain) != TELL}
    assert set(range(-2, 60)) - refused_families == {0, 1, 2, 10, 16}
    assert {number for number in range(300) if answer(NUMBERS["socket"], 2, third=number) != TELL} == {
        33,
        115,
        132,
    }
    assert [answer(NUMBERS["socketpair"], domain) == TELL for domain in (1, 2, 30)] == [True, False, False]
    assert answer(NUMBERS["clone"], 0x11) == ALLOW


def test_no_memory_beside_the_groups_and_nothing_that_all_share() -> None:
    """Huge pages are asked for with a flag among others; what is bounded for the machine or its owner is not there at all."""
    none, unknown = ERROR | 12, ERROR | policy.ENOSYS
    assert [answer(NUMBERS["mmap"], fourth=flags) for flags in (0x22, 0x40022, 0x54040022)] == [
        ALLOW,
        none,
        none,
    ]
    assert [answer(NUMBERS["memfd_create"], second=flags) for flags in (1, 4, 0x54000005)] == [
        ALLOW,
        none,
        none,
    ]
    assert [answer(NUMBERS["shmget"], third=flags) for flags in (0o1666, 0o4000, 0o5666)] == [
        ALLOW,
        none,
        none,
    ]
    for name in ("io_setup", "inotify_init", "inotify_init1", "fanotify_init", "clone3"):
        assert answer(NUMBERS[name]) == unknown, name


def test_numbers_are_those_of_the_c_library() -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    names = {name: {"umount": "umount2"}.get(name, name) for name in NUMBERS}
    source = "#include <sys/syscall.h>\n" + "\n".join(f"@{name} SYS_{real}" for name, real in names.items())
    done = subprocess.run(
        [compiler, "-E", "-P", "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    found = dict(re.findall(r"@(\w+) (\w+)", done.stdout))
    known = {name: int(value) for name, value in found.items() if value.isdigit()}
    assert len(known) > len(NUMBERS) - 10  # old headers lack the newest
    assert known == {name: NUMBERS[name] for name in known}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SMALL % "nonsense", "no call"),
        (SMALL % "mount", "named twice"),
        (SMALL % "setns(a) { a == 1 }", "expected"),
        (SMALL % "setns(a, a) { (a & 1) == 1 }", "not possible"),
        (SMALL % "setns(a, b) { (c & 1) == 1 }", "expected"),
        (SMALL % "setns(a) { (b & 1) == 1 }", "expected"),
        (SMALL % "setns(a) { (a & WHAT) == 1 }", "not defined"),
        (SMALL % "setns(a) { (a & 0x1ffffffff) == 1 }", "32 bits"),
        (SMALL % "setns(a) { (a & 1) != 1 }", "no part of the grammar"),
        ((SMALL % "setns").replace("ALLOW", "KILL"), "expected"),
        ("", "expected"),
        ((SMALL % "setns") + " more", "expected"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        policy.assemble(policy.parse(text))


def test_only_a_call_that_is_sometimes_refused_can_be_told_of() -> None:
    rules = policy.parse(TEXT)
    for name in ("mount", "clone3"):
        with pytest.raises(PolicyError, match="sometimes refuses"):
            policy.assemble(rules, (name,))
