"""The verifier's own commands on what an answer left. Invariant: they run in another jail, on a copy that is frozen.

By then every process of the answer is dead. The command's own files lie read-only under /t; the environment names nothing in
/w: no start-up file, no module and no hook of the answer's is taken by the shell, Python or git. Where a link leads out of
/w, other than into the system's folders, no command passes: it could show a check the check's own files as the answer's
work. A command that runs what the answer wrote never sees /t, and has to compare output, since its exit code alone proves
nothing; a check of the task's, in Python, may start such a program, and is kept apart from it (invoked.py). Exit code and
output are compared out here. The network of the card is for the answer, not for a command that does not ask for it.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.verifier import specs
from services.verifier.families import invoked, state
from services.verifier.families.driven import ended
from services.verifier.inside import source
from services.verifier.jail import FileEntry, Jail, Job, JobError, Limits, Outcome, Snapshot

MAX_COMMANDS = 32
RUNNER = ".temper.check.py"
"""Under /t: what runs a check apart (inside/check.py)."""
KEYS = ("name", "run", "argv", "exit", "stdout", "exact", "weight", "stdin", "start", "limits", "network")
BOUNDS = {
    "wall_s": 1,
    "cpu_s": 1,
    "memory_mib": 1 << 20,
    "pids": 1,
    "output_kib": 1 << 10,
    "disk_mib": 1 << 20,
}
"""Limits that a command may lower, and what one of each is."""
FIELDS = {"memory_mib": "memory_bytes", "output_kib": "output_bytes", "disk_mib": "disk_bytes"}
SYSTEM = ("/w/", "/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/", "/dev/null/")
GIT = {"core.fsmonitor": "false", "core.hooksPath": "/dev/null", "core.pager": "cat", "safe.directory": "*"}
ENV = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/t",
    "LC_ALL": "C",
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_COUNT": str(len(GIT)),
    **{f"GIT_CONFIG_KEY_{n}": name for n, name in enumerate(GIT)},
    **{f"GIT_CONFIG_VALUE_{n}": value for n, value in enumerate(GIT.values())},
}


class JailFaultError(RuntimeError):
    """A run failed by our fault: the whole verdict is `infra`. The message is one line."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one command went: whether it is as wanted, and how it ended, in words."""

    passed: bool
    evidence: str


def count(commands: Any) -> int:
    """Jail runs that a spec's `commands` take, once; of anything malformed none."""
    return min(MAX_COMMANDS, len(commands)) if isinstance(commands, list) else 0


def check_commands(commands: Any, where: str, trusted: Mapping[str, str] | None = None) -> None:
    """[{`name`, `run` (shell) or `argv`, `exit` 0, `stdout`, `exact`, `weight`, `stdin`, `start`, `limits`, `network`}].

    Raises SpecError.

    `start`: "frozen" (what the answer left, the default) or "previous" (what the command before left). `limits` lower the
    card's: wall_s, cpu_s, memory_mib, pids, output_kib, disk_mib. `network`: true to have the card's. `trusted`: the files of
    /t, path to text.
    """
    laid = trusted or {}
    if RUNNER in laid:
        raise specs.SpecError(f"trusted must not hold {RUNNER}")
    if len(specs.items(commands, where)) > MAX_COMMANDS:
        raise specs.SpecError(f"{where} has {len(commands)} commands, {MAX_COMMANDS} are allowed")
    for index, command in enumerate(commands):
        here = f"{where}[{index}]"
        specs.keys(specs.table(command, here), KEYS, here)
        specs.text(command.get("name"), f"{here}.name")
        if ("run" in command) == ("argv" in command):
            raise specs.SpecError(f"{here} needs exactly one of run and argv")
        if "argv" in command:
            specs.texts(command["argv"], f"{here}.argv", least=1)
        else:
            specs.text(command["run"], f"{here}.run")
        argv = vector(command, laid)
        for name in ("stdout", "stdin"):
            specs.text(command.get(name, ""), f"{here}.{name}", empty=True)
        specs.whole(command.get("exit", 0), f"{here}.exit")
        specs.number(command.get("weight", 1.0), f"{here}.weight", low=1e-6, high=1e6)
        specs.choice(command.get("start", "frozen"), ("frozen", "previous"), f"{here}.start")
        if not isinstance(command.get("network", False), bool):
            raise specs.SpecError(f"{here}.network must be true or false")
        invoked.check(command, laid, here)
        check_limits(command.get("limits", {}), f"{here}.limits")
        try:
            Job(argv=argv)
        except JobError as error:
            raise specs.SpecError(f"{here}: {error}") from error


def check_limits(limits: Any, where: str) -> None:
    """Raises SpecError unless `limits` lower the card's in known ways."""
    specs.keys(specs.table(limits, where), tuple(BOUNDS), where)
    for name, value in limits.items():
        if name in ("wall_s", "cpu_s"):
            specs.number(value, f"{where}.{name}", low=1e-3, high=86_400.0)
        else:
            specs.whole(value, f"{where}.{name}", least=2 if name == "pids" else 1)
    try:
        lowered(Limits(), limits)
    except JobError as error:
        raise specs.SpecError(f"{where}: {error}") from error


def vector(command: Mapping[str, Any], trusted: Mapping[str, str]) -> tuple[str, ...]:
    """The argument vector."""
    return invoked.vector(command, trusted, f"/t/{RUNNER}")


def lowered(limits: Limits, own: Mapping[str, Any]) -> Limits:
    """`limits` with those of a command where they are lower."""
    lower: dict[str, Any] = {}
    for name, value in own.items():
        field = FIELDS.get(name, name)
        given = value * BOUNDS[name]
        lower[field] = min(getattr(limits, field), given)
    return dataclasses.replace(limits, **lower)


def run(
    commands: Sequence[Mapping[str, Any]],
    start: Snapshot | Mapping[str, str],
    trusted: Mapping[str, str],
    limits: Limits,
    jail: Jail,
) -> list[Result]:
    """All commands in order, on a snapshot or on the spec's files. Raises JailFaultError."""
    results: list[Result] = []
    previous: Snapshot | None = None
    laid = state.entry_files(trusted, 0o555)
    try:
        for index, command in enumerate(commands):
            carried = command.get("start") == "previous" and index > 0
            keep = index + 1 < len(commands) and commands[index + 1].get("start") == "previous"
            base = previous if carried else start if isinstance(start, Snapshot) else None
            if carried:
                out = leading_out(previous) if previous is not None else "the command before left too much"
            else:
                out = leading_out(start) if isinstance(start, Snapshot) else ""
            if out:
                results.append(Result(passed=False, evidence=f"not run: {out}"))
                previous = None
                continue
            kind = invoked.kind(command, trusted)
            files = {**laid, RUNNER: FileEntry(source("check.py"), 0o444)} if kind == "check" else laid
            job = Job(
                argv=vector(command, trusted),
                stdin=command.get("stdin", "").encode("utf-8"),
                files={} if base is not None or isinstance(start, Snapshot) else state.entry_files(start),
                trusted={} if kind == "run" else files,
                report=kind == "check",
                sealed=kind == "check",
                offline=not command.get("network", False),
                env=ENV,
                limits=lowered(limits, command.get("limits", {})),
                base=base,
                keep=keep,
            )
            outcome = jail.run(job)
            if outcome.cause == "infra":
                raise JailFaultError(f"the jail failed in command {command['name']}: {outcome.detail}")
            previous = outcome.snapshot if keep else None
            results.append(_judged(command, outcome))
    finally:
        if previous is not None:
            previous.close()
    return results


def leading_out(snapshot: Snapshot) -> str:
    """The first link that leads out of /w and not into SYSTEM, as a reason; "" if there is none.

    By its text: a target may go up only at its start, so that no link on the way can turn the rest of it elsewhere.
    """
    for path, entry in sorted(snapshot.tree.items()):
        if entry.kind != "symlink":
            continue
        target = entry.content.decode("utf-8", "surrogateescape")
        steps = [step for step in target.split("/") if step not in ("", ".")]
        ups = [n for n, step in enumerate(steps) if step == ".."]
        above = posixpath.dirname("/w/" + path.decode("utf-8", "surrogateescape"))
        end = posixpath.normpath(posixpath.join(above, target)) + "/"
        if ups != list(range(len(ups))) or not end.startswith(SYSTEM):
            return f"the link {path.decode('utf-8', 'backslashreplace')} leads out of the working folder"
    return ""


def _judged(command: Mapping[str, Any], outcome: Outcome) -> Result:
    how = ended(outcome)
    if outcome.cause != "exit" or outcome.exit_code != command.get("exit", 0):
        return Result(passed=False, evidence=how)
    if "stdout" not in command:
        return Result(passed=True, evidence=how)
    want, got = command["stdout"].encode("utf-8"), outcome.stdout
    if not command.get("exact"):
        want, got = want.rstrip(b"\n"), got.rstrip(b"\n")
    same = want == got and not outcome.stdout_truncated
    return Result(passed=same, evidence=how if same else f"{how}, with another output")
