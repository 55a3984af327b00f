"""Kafka and Redis for one run or one test session: ours and gone with us, or others' and never touched.

`TEMPER_KAFKA` (host:port[,host:port]) and `TEMPER_REDIS` (redis://...) each replace one embedded server;
these keep their data under one folder. One stack at a time may use it; a later one finds the same data.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from services.runtime.stack.errors import StackError
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.probe import kafka_addresses, kafka_answers, redis_answers
from services.runtime.stack.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

_OUTSIDE_S = 10.0
# A predecessor that was killed leaves its servers to their keepers, which need their grace period.
_LOCK_S = 20.0
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Stack:
    """The addresses of a running stack.

    Attributes:
        kafka: bootstrap address for clients.
        redis: Redis URL.
        kafka_server: the embedded broker, or None when TEMPER_KAFKA names one.
        redis_server: the embedded Redis, or None when TEMPER_REDIS names one.
    """

    kafka: str
    redis: str
    kafka_server: KafkaServer | None
    redis_server: RedisServer | None

    @classmethod
    def start(
        cls,
        root: Path,
        *,
        environ: Mapping[str, str] | None = None,
        kafka_port: int | None = None,
        redis_port: int | None = None,
        kafka_config: Mapping[str, str] | None = None,
    ) -> Self:
        """Start what the environment does not name, and wait until both answer.

        Args:
            root: folder for data and logs; made if absent; the same folder again means the same data.
            environ: where TEMPER_KAFKA and TEMPER_REDIS are looked up; None means the process's environment.
            kafka_port: loopback port of the embedded broker; None takes a free one.
            redis_port: loopback port of the embedded Redis; None takes a free one.
            kafka_config: broker settings for the embedded broker only.

        Raises:
            StackError: one line that says what is wrong and what to do.
        """
        environment = os.environ if environ is None else environ
        outside_kafka = environment.get("TEMPER_KAFKA", "").strip()
        outside_redis = environment.get("TEMPER_REDIS", "").strip()
        # Addresses first: a wrong one is told at once, before anything is started.
        if outside_kafka:
            _check_kafka(outside_kafka)
        if outside_redis:
            _check_redis(outside_redis)
        kafka: KafkaServer | None = None
        redis: RedisServer | None = None
        if outside_kafka and outside_redis:
            return cls(kafka=outside_kafka, redis=outside_redis, kafka_server=None, redis_server=None)
        root = root.resolve()
        lock = _lock(root)
        try:
            if not outside_redis:
                redis = RedisServer.start(root, port=redis_port, held=(lock,))
            if not outside_kafka:
                kafka = KafkaServer.start(root, port=kafka_port, config=kafka_config, held=(lock,))
        except BaseException:
            if redis is not None:
                redis.stop()
            raise
        finally:
            # From here the keepers hold it, until their servers are gone.
            os.close(lock)
        return cls(
            kafka=kafka.bootstrap if kafka is not None else outside_kafka,
            redis=redis.url if redis is not None else outside_redis,
            kafka_server=kafka,
            redis_server=redis,
        )

    def stop(self) -> None:
        """End the servers that `start` started; idempotent; the data stay."""
        try:
            if self.kafka_server is not None:
                self.kafka_server.stop()
        finally:
            if self.redis_server is not None:
                self.redis_server.stop()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()


def _check_kafka(bootstrap: str) -> None:
    kafka_addresses(bootstrap, "TEMPER_KAFKA")
    reason = kafka_answers(bootstrap, _OUTSIDE_S)
    if reason is not None:
        raise StackError(f"TEMPER_KAFKA={bootstrap!r}: no broker there ({reason}): correct it, or unset it")


def _check_redis(url: str) -> None:
    reason = redis_answers(url, _OUTSIDE_S)
    if reason is not None:
        raise StackError(f"TEMPER_REDIS={url!r}: no Redis there ({reason}): correct it, or unset it")


def _lock(root: Path) -> int:
    """An open, locked descriptor of `<root>/stack.lock`."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StackError(
            f"{root}: cannot hold the stack's data ({error.strerror}): name another folder"
        ) from error
    end = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(descriptor)
                raise StackError(
                    f"{root}: another stack runs on this data: stop it, or name another folder"
                ) from None
            # A lock has no descriptor to poll; the wait is bounded above.
            time.sleep(_PAUSE_S)
        else:
            return descriptor
