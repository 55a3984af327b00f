from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from services.runtime.stack import StackError, jars

if TYPE_CHECKING:
    from pathlib import Path


def _lock(path: Path, content: dict[str, bytes]) -> Path:
    groups = {artifact: group for group, artifact in jars.ROOTS}
    lines = [
        f'[[dependencies]]\ngroupId = "{groups.get(artifact, "g")}"\nartifactId = "{artifact}"\n'
        f'version = "1"\nsha256 = "{hashlib.sha256(data).hexdigest()}"\n'
        for artifact, data in content.items()
    ]
    path.write_text("\n".join(lines))
    return path


def test_committed_lock_holds_one_consistent_broker() -> None:
    names = jars.locked()
    assert "kafka_2.13-4.3.1.jar" in names
    # The trap of resolving the binding together with Kafka: older clients beside the broker.
    assert "kafka-clients-4.3.1.jar" in names
    assert [name for name in names if name.startswith("log4j-slf4j-impl-")]
    assert "://" not in jars.LOCK_FILE.read_text()


def test_every_difference_is_found(tmp_path: Path) -> None:
    lock = _lock(tmp_path / "lock.toml", {"same": b"1", "changed": b"2", "missing": b"3"})
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "same-1.jar").write_bytes(b"1")
    (folder / "changed-1.jar").write_bytes(b"x")
    (folder / "extra-1.jar").write_bytes(b"x")
    assert jars.problems(folder, lock) == [
        "missing-1.jar is missing",
        "extra-1.jar is not in the lock file",
        "changed-1.jar differs from the lock file",
    ]


@pytest.mark.parametrize("text", ["", "not toml", "[[dependencies]]\nversion = '1'", "dependencies = 3"])
def test_damaged_lock_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock.toml"
    path.write_text(text)
    with pytest.raises(StackError, match="restore it") as caught:
        jars.locked(path)
    assert "\n" not in str(caught.value)


def test_unreachable_repository_says_to_set_temper_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nConnectionError: no route")

    monkeypatch.setattr(jars.subprocess, "run", fail)  # type: ignore[attr-defined]
    with pytest.raises(StackError, match=r"no route.*TEMPER_KAFKA=host:port") as caught:
        jars.ensure(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "jars").exists()


def test_other_bytes_than_locked_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = _lock(tmp_path / "lock.toml", {artifact: b"good" for _, artifact in jars.ROOTS})

    def resolve(scratch: Path, group: str, artifact: str, into: Path, lock_file: Path) -> None:
        (into / f"{artifact}-1.jar").write_bytes(b"evil" if artifact == "kafka_2.13" else b"good")

    monkeypatch.setattr(jars, "_resolve", resolve)
    with pytest.raises(StackError, match=r"kafka_2\.13-1\.jar differs.*TEMPER_KAFKA"):
        jars.ensure(tmp_path / "cache", lock)
    assert not (tmp_path / "cache" / "jars").exists()
