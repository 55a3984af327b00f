"""What Temper is compared with. Invariant: the same limits and the same work, started by a program that costs next to nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.verifier.bench import cases
from services.verifier.bench.groups import Groups
from services.verifier.jail import JailUnavailable, Limits
from services.verifier.jail.binaries import BUILD, compile_to
from services.verifier.jail.config import POLICY
from services.verifier.jail.hierarchy import V2
from services.verifier.jail.machine import find_nsjail

SOURCE = Path(__file__).with_name("floor.c")
NSJAIL = "nsjail"
DEVICES = ("null", "zero", "full", "random", "urandom")
BINDS = ("/usr", "/bin", "/lib", "/lib64")
CAP_S = 120.0
DIE_S = 10.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A system that does a case's work with one or more commands a verdict. `spaces`: the driver makes the namespaces."""

    system: str
    case: str
    commands: tuple[tuple[str, ...], ...]
    count: int
    spaces: bool = False


def floor() -> Path:
    """The compiled driver. Raises JailUnavailable."""
    target = BUILD / f"floor-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if not target.exists():
        compile_to(SOURCE, target)
    return target


def nsjail(groups: Groups, limits: Limits) -> tuple[str, ...]:
    """Its command line up to the `--`: the limits of a job, what a job sees, and the jail's own system call policy."""
    memory, pids = groups.tree("memory"), groups.tree("pids")
    if V2 in (memory.version, pids.version):
        control: tuple[str, ...] = ("--use_cgroupv2", "--cgroupv2_mount", f"{groups.folder(memory, NSJAIL)}")
    else:
        parts = []
        for name, tree in (("mem", memory), ("pids", pids)):
            folder = groups.folder(tree, NSJAIL)
            parts += [f"--cgroup_{name}_mount", f"{folder.parent}", f"--cgroup_{name}_parent", folder.name]
        control = tuple(parts)
    tmpfs = f"tmpfs:size={limits.disk_bytes},nr_inodes={limits.inodes}"
    return (
        *(f"{find_nsjail()}", "-Mo", "-Q", "--user", "1000:100000:1", "--group", "1000:100000:1"),
        *(word for bind in BINDS if Path(bind).exists() for word in ("-R", bind)),
        *(word for name in DEVICES for word in ("-R", f"/dev/{name}")),
        *(word for name in ("w", "tmp", "dev/shm") for word in ("-m", f"none:/{name}:{tmpfs}")),
        *("--cwd", "/w", "--hostname", "temper"),
        *(
            "--time_limit",
            f"{max(1, round(limits.wall_s))}",
            "--rlimit_cpu",
            f"{max(1, round(limits.cpu_s))}",
        ),
        *("--rlimit_as", "inf", "--rlimit_fsize", f"{limits.file_bytes >> 20}"),
        *("--rlimit_nofile", f"{limits.open_files}", "--persona_addr_no_randomize", "--nice_level", "0"),
        *("--cgroup_mem_max", f"{limits.memory_bytes}", "--cgroup_pids_max", f"{limits.pids}", *control),
        *("--seccomp_policy", f"{POLICY}", "--"),
    )


def bubblewrap() -> tuple[str, ...] | None:
    """Its command line up to the command, None where it is not installed. It has no limits."""
    found = shutil.which("bwrap")
    if found is None:
        return None
    binds = (word for bind in BINDS if Path(bind).exists() for word in ("--ro-bind", bind, bind))
    more = ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--die-with-parent", "--new-session")  # noqa: S108
    return (found, "--unshare-all", *binds, *more)


def all_peers(groups: Groups, limits: Limits) -> list[Peer]:
    """Every peer that this machine has."""
    jail = nsjail(groups, limits)
    true, script = ("/bin/true",), cases.all_at_once()
    peers = [
        Peer("floor", cases.TRUE, (true,), 100, spaces=True),
        Peer(NSJAIL, cases.TRUE, ((*jail, *true),), 25),
        Peer("floor", "python20", (script,), 12, spaces=True),
        Peer(NSJAIL, "python20", tuple((*jail, *command) for command in cases.one_by_one()), 1),
    ]
    wrap = bubblewrap()
    if wrap is not None:
        peers.append(Peer("bubblewrap", cases.TRUE, ((*wrap, *true),), 25))
    return peers


def start(peer: Peer, groups: Groups, driver: Path) -> subprocess.Popen[bytes]:
    """Start a process that does `count` verdicts one after the other."""
    mode = "spaces" if peer.spaces else "plain"
    words = [f"{driver}", f"{peer.count}", mode, *groups.procs(peer.system)]
    for command in peer.commands:
        words += ["++", *command]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)


def finish(peer: Peer, process: subprocess.Popen[bytes]) -> list[float]:
    """Seconds of each verdict. Raises JailUnavailable when a command failed or they took too long."""
    try:
        output, _ = process.communicate(timeout=CAP_S)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)  # what it started holds its output open, too
        process.communicate(timeout=DIE_S)
        raise JailUnavailable(f"benchmark peer {peer.system} took over {CAP_S:.0f} s") from error
    if process.returncode:
        said = output.decode(errors="replace").strip() or f"status {process.returncode}"
        raise JailUnavailable(f"benchmark peer {peer.system} does not run here: {said}")
    return [int(line) / 1e9 for line in output.split()]
