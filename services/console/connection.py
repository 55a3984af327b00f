"""Finds the installation that a command talks to. Invariant: the environment wins; else the newest live run of this folder."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from services.console.errors import WRONG_USE, ConsoleError

RUNS = Path("runs")
FILE = "connection.json"


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of a running installation."""

    kafka: str
    redis: str
    prefix: str = ""
    run_dir: str = ""
    config: str = ""
    """Path of the resolved configuration."""
    pid: int = 0
    """Process that keeps it up."""
    started: str = ""
    """When that process started, in the kernel's ticks: its id may be another's by now."""

    def environment(self) -> dict[str, str]:
        """Environment for a service or a helper command of this installation."""
        return os.environ | {
            "TEMPER_KAFKA": self.kafka,
            "TEMPER_REDIS": self.redis,
            "TEMPER_PREFIX": self.prefix,
            "TEMPER_RUN_DIR": self.run_dir,
            "TEMPER_CONFIG": self.config,
            "TEMPER_BLOBS": os.environ.get("TEMPER_BLOBS", str(Path(self.run_dir) / "blobs")),
        }


def write(connection: Connection) -> None:
    """Leave the addresses in the run's folder, for commands in other terminals."""
    path = Path(connection.run_dir) / FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(connection))
    temporary.replace(path)


def remove(run_dir: Path) -> None:
    """Forget the addresses: the installation is going down."""
    (run_dir / FILE).unlink(missing_ok=True)


def find(run: str | None = None, runs: Path = RUNS) -> Connection:
    """The installation of `run`, of the environment, or the newest live one below `runs`.

    Raises:
        ConsoleError: there is none.
    """
    kafka, redis = os.environ.get("TEMPER_KAFKA"), os.environ.get("TEMPER_REDIS")
    if kafka and redis and run is None:
        return Connection(
            kafka=kafka,
            redis=redis,
            prefix=os.environ.get("TEMPER_PREFIX", ""),
            run_dir=os.environ.get("TEMPER_RUN_DIR", ""),
            config=os.environ.get("TEMPER_CONFIG", ""),
        )
    pattern = f"{run}/{FILE}" if run else f"*/{FILE}"
    for path in sorted(runs.glob(pattern), key=lambda found: found.stat().st_mtime, reverse=True):
        try:
            connection = msgspec.json.decode(path.read_bytes(), type=Connection)
        except (OSError, msgspec.MsgspecError):
            continue
        if alive(connection):
            return connection
    wanted = f"run {run!r}" if run else "a stack"
    raise ConsoleError(
        f"{wanted} is not up here: start one with `temper up`, or set TEMPER_KAFKA and TEMPER_REDIS",
        WRONG_USE,
    )


def started(pid: int) -> str:
    """Start time of a process in clock ticks since boot (field 22 of `/proc/PID/stat`), empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def alive(connection: Connection) -> bool:
    """Whether the process that keeps it up still runs."""
    return connection.pid > 0 and connection.started != "" and started(connection.pid) == connection.started
