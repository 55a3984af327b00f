from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from services.runtime.stack import Stack, StackError
from services.runtime.stack.kafka import complaint
from services.runtime.stack.ports import free_ports, require_free
from services.runtime.stack.probe import kafka_addresses, redis_answers

if TYPE_CHECKING:
    from pathlib import Path


def test_addresses() -> None:
    assert kafka_addresses("a:1, [::1]:9092", "X") == [("a", 1), ("::1", 9092)]


@pytest.mark.parametrize(
    "bad", ["", "host", "host:", ":9092", "host:0", "host:65536", "host:x", "a:1,,b:2", "http://h:1"]
)
def test_bad_kafka_address_names_the_variable(bad: str) -> None:
    with pytest.raises(StackError, match=r"TEMPER_KAFKA"):
        kafka_addresses(bad, "TEMPER_KAFKA")


def test_nobody_at_the_kafka_address(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(StackError, match=r"TEMPER_KAFKA=.*no broker there.*refused.*unset it") as caught:
        Stack.start(tmp_path / "x", environ={"TEMPER_KAFKA": f"127.0.0.1:{port}"})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x").exists()


def test_something_else_at_the_kafka_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.runtime.stack.stack._OUTSIDE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StackError, match="no broker there"):
            Stack.start(tmp_path, environ={"TEMPER_KAFKA": f"127.0.0.1:{port}"})


@pytest.mark.parametrize("bad", ["127.0.0.1:6379", "http://127.0.0.1:1", "redis://127.0.0.1:x/0"])
def test_bad_redis_address(tmp_path: Path, bad: str) -> None:
    with pytest.raises(StackError, match=r"TEMPER_REDIS=.*no Redis there") as caught:
        Stack.start(tmp_path, environ={"TEMPER_REDIS": bad})
    assert "\n" not in str(caught.value)


def test_nobody_at_the_redis_address() -> None:
    (port,) = free_ports(1)
    reason = redis_answers(f"redis://127.0.0.1:{port}/0", 1.0)
    assert reason is not None
    assert "refused" in reason


def test_ports_differ_and_a_taken_one_is_refused() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port}"):
            require_free(port, "Kafka")
    require_free(port, "Kafka")
    with pytest.raises(StackError, match="70000"):
        require_free(70000, "Kafka")


def test_complaint_is_the_first_exception_not_a_stack_frame() -> None:
    text = (
        "2026 ERROR Fatal error during startup\norg.a.KafkaException: Class x cannot be found\n"
        "\tat a.B.c(B.java:1)\nCaused by: java.lang.Error: y\n\t... 12 more\n2026 ERROR Exiting\n"
    )
    assert complaint(text) == "Class x cannot be found"
    assert complaint("one\ntwo\n\tat a.b\n") == "two"
    assert complaint("") == "no reason given"
