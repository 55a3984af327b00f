"""The system call policy `policy.kafel`, compiled to the filter that the kernel takes.

Invariant: the file is the only place where a call is named; whatever in it is not understood is an error, never left
out. The grammar read here is a small part of kafel's, so that nsjail understands the same file: `#define NAME NUMBER`,
`ERRNO(n) { call, call(a, b) { (a & NUMBER) == NUMBER || (b & NUMBER) > NUMBER ... } }`, default allow; the names
are those of the call's first arguments.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

POLICY = Path(__file__).parent / "policy.kafel"
ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
FOREIGN = 0x40000000  # numbers from here on are x32's
ENOSYS = 38
LOW_WORD = 0xFFFFFFFF
# x86-64 numbers by kafel's names (umount is umount2 to others); they never change. A test asks the C library.
NUMBERS = {
    "mmap": 9, "shmget": 29, "socket": 41, "socketpair": 53, "clone": 56, "ptrace": 101, "syslog": 103,
    "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163,
    "settimeofday": 164, "mount": 165, "umount": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172,
    "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179, "io_setup": 206,
    "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "inotify_init": 253, "unshare": 272, "inotify_init1": 294, "perf_event_open": 298,
    "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305,
    "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
    "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438, "mount_setattr": 442,
    "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip

# struct seccomp_data: the number at 0, the architecture at 4, the low words of the arguments from 16, 8 bytes apart.
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENTS, APART = 0, 4, 16, 8
LOAD, AND, EQUAL, ABOVE, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x25, 0x35, 0x06
COMPARISONS = {"==": EQUAL, ">": ABOVE}
MAX_ARGUMENTS = 6
ALLOW, KILL, ERROR, TELL = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
# Where these are not refused the job's init is told of them before they happen (job.c): a network namespace in which no
# socket was ever made is as new and serves the next job as well.
TOLD = ("socket", "socketpair")
MAX_JUMP = 255
INSTRUCTION = struct.Struct("=HBBI")
TOKEN = re.compile(r"0x[0-9a-fA-F]+|\w+|==|\|\||[{}(),&>]")


class PolicyError(ValueError):
    """A policy that this module does not understand; the message is one line."""


@dataclass(frozen=True, slots=True)
class Check:
    """True when (argument & mask) compares so with the value; `how` is EQUAL or ABOVE (both without sign)."""

    argument: int
    mask: int
    how: int
    value: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One refused call: answered with `error` always, or when one of the checks is true."""

    number: int
    error: int
    tests: tuple[Check, ...] = ()


def parse(text: str) -> list[Rule]:
    """The rules of a policy, by number. Raises PolicyError."""
    lines = [line.split("//")[0] for line in text.splitlines()]
    names = {w[1]: int(w[2], 0) for w in (line.split() for line in lines) if w and w[0] == "#define"}
    body = " ".join(line for line in lines if not line.startswith("#define"))
    tokens = TOKEN.findall(body)
    if "".join(tokens) != "".join(body.split()):
        raise PolicyError("a sign that is no part of the grammar")
    rules = _Reader(tokens, names).policy()
    numbers = [rule.number for rule in rules]
    if len(set(numbers)) != len(numbers):
        raise PolicyError("a call is named twice")
    return sorted(rules, key=lambda rule: rule.number)


class _Reader:
    """Reads tokens from the front; every method raises PolicyError at what it does not expect."""

    def __init__(self, tokens: list[str], names: dict[str, int]) -> None:
        self.tokens, self.names = tokens[::-1], names

    def take(self, *expected: str) -> str:
        token = self.tokens.pop() if self.tokens else "the end"
        if expected and token not in expected:
            raise PolicyError(f"{token!r} where {' or '.join(expected)} was expected")
        return token

    def number(self) -> int:
        token = self.take()
        try:
            value = self.names[token] if token in self.names else int(token, 0)
        except ValueError as error:
            raise PolicyError(f"{token!r} is no number and not defined") from error
        if not 0 <= value <= LOW_WORD:
            raise PolicyError(f"{token!r} does not fit in 32 bits")
        return value

    def policy(self) -> list[Rule]:
        self.take("POLICY")
        name = self.take()
        self.take("{")
        rules = []
        more = True
        while more:
            self.take("ERRNO")
            self.take("(")
            error = self.number()
            self.take(")")
            self.take("{")
            while True:
                rules.append(self.rule(error))
                if self.take(",", "}") == "}":
                    break
            more = self.take(",", "}") == ","
        for word in ("USE", name, "DEFAULT", "ALLOW", "the end"):
            self.take(word)
        return rules

    def rule(self, error: int) -> Rule:
        name = self.take()
        if name not in NUMBERS:
            raise PolicyError(f"{name!r} is no call that this program knows the number of")
        if self.tokens[-1:] != ["("]:
            return Rule(NUMBERS[name], error)
        self.take("(")
        arguments = [self.take()]
        while self.take(",", ")") == ",":
            arguments.append(self.take())
        if len(set(arguments)) != len(arguments) or len(arguments) > MAX_ARGUMENTS:
            raise PolicyError(f"{name}: {len(arguments)} arguments, of different names, are not possible")
        self.take("{")
        tests = []
        while True:
            self.take("(")
            argument = arguments.index(self.take(*arguments))
            self.take("&")
            mask = self.number()
            self.take(")")
            how = COMPARISONS[self.take(*COMPARISONS)]
            tests.append(Check(argument, mask, how, self.number()))
            if self.take("||", "}") == "}":
                return Rule(NUMBERS[name], error, tuple(tests))


class _Program:
    """Instructions with jumps to labels, resolved at the end; all jumps go forward."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, str]] = []
        self.labels: dict[str, int] = {}

    def add(self, code: int, value: int, yes: str = "", no: str = "") -> None:
        self.rows.append((code, value, yes, no))

    def label(self, name: str) -> None:
        self.labels[name] = len(self.rows)

    def assemble(self) -> bytes:
        out = bytearray()
        for at, (code, value, yes, no) in enumerate(self.rows):
            jumps = [self.labels[name] - at - 1 if name else 0 for name in (yes, no)]
            if not all(0 <= jump <= MAX_JUMP for jump in jumps):
                raise PolicyError("the policy is too long for one filter")
            out += INSTRUCTION.pack(code, *jumps, value)
        return bytes(out)


def assemble(rules: list[Rule], told: Collection[str] = ()) -> bytes:
    """The filter: architecture, then a binary search over the numbers (the kernel tries all of them at each start).

    `told`: calls that are not simply allowed where no rule refuses them, but told to whoever listens to the filter.
    """
    answers = {NUMBERS[name]: TELL for name in told}
    if answers.keys() - {rule.number for rule in rules if rule.tests}:
        raise PolicyError("a call that is to be told of must be one that the policy sometimes refuses")
    program = _Program()
    program.add(LOAD, AT_ARCHITECTURE)
    program.add(EQUAL, ARCHITECTURE, "", "kill")
    program.add(LOAD, AT_NUMBER)
    # From each of these numbers on, up to the next, this label holds.
    steps = [(0, "allow")]
    for rule in rules:
        if rule.number == steps[-1][0]:
            steps.pop()
        steps += [(rule.number, f"call {rule.number}" if rule.tests else f"error {rule.error}")]
        steps += [(rule.number + 1, "allow")]
    steps.append((FOREIGN, f"error {ENOSYS}"))
    merged = [step for i, step in enumerate(steps) if i == 0 or steps[i - 1][1] != step[1]]
    _search(program, merged)
    for rule in rules:
        if rule.tests:
            program.label(f"call {rule.number}")
            for test in rule.tests:
                program.add(LOAD, AT_ARGUMENTS + APART * test.argument)
                program.add(AND, test.mask)
                program.add(test.how, test.value, f"error {rule.error}")
            program.add(RETURN, answers.get(rule.number, ALLOW))
    for error in sorted({rule.error for rule in rules} | {ENOSYS}):
        program.label(f"error {error}")
        program.add(RETURN, ERROR | error)
    program.label("allow")
    program.add(RETURN, ALLOW)
    program.label("kill")
    program.add(RETURN, KILL)
    return program.assemble()


def _search(program: _Program, steps: list[tuple[int, str]]) -> None:
    """Jump to the label of the last step whose number is not above the accumulator."""
    half = len(steps) // 2
    low, high = steps[:half], steps[half:]
    far = f"from {high[0][0]}"
    yes = high[0][1] if len(high) == 1 else far
    program.add(AT_LEAST, high[0][0], yes, low[0][1] if len(low) == 1 else "")
    if len(low) > 1:
        _search(program, low)
    if len(high) > 1:
        program.label(far)
        _search(program, high)


def compiled() -> bytes:
    """The filter of `policy.kafel` with TOLD, as the array that the kernel takes. Raises PolicyError."""
    return assemble(parse(POLICY.read_text()), TOLD)
