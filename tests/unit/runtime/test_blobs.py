from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from services.runtime.blobs import BlobError, Blobs


@pytest.mark.parametrize("scheme", ["folder", "memory"])
def test_round_trip_and_idempotence(tmp_path: Path, scheme: str) -> None:
    url = str(tmp_path / "blobs") if scheme == "folder" else f"memory://{tmp_path.name}"
    store = Blobs(url)
    ref = store.put(b"payload")
    assert store.put(b"payload") == ref
    assert ref.size == 7
    assert Blobs(url).get(ref) == b"payload"
    assert Blobs(url).get(store.put(b"")) == b""


def test_damage_is_found(tmp_path: Path) -> None:
    store = Blobs(str(tmp_path))
    ref = store.put(b"payload")
    path = Path(ref.uri)
    path.write_bytes(b"PAYLOAD")
    with pytest.raises(BlobError, match="another digest"):
        store.get(ref)
    path.write_bytes(b"short")
    with pytest.raises(BlobError, match="damaged"):
        store.get(ref)
    path.unlink()
    with pytest.raises(BlobError, match="missing"):
        store.get(ref)


@pytest.mark.parametrize("damage", [b"PAYLOAD", b"short", b""])
@pytest.mark.parametrize("scheme", ["folder", "memory"])
def test_storing_again_mends_what_was_damaged(tmp_path: Path, scheme: str, damage: bytes) -> None:
    url = str(tmp_path / "blobs") if scheme == "folder" else f"memory://{tmp_path.name}"
    store = Blobs(url)
    ref = store.put(b"payload")
    store._fs.pipe_file(store._path(ref.digest), damage)
    with pytest.raises(BlobError, match="damaged"):
        store.get(ref)
    assert store.put(b"payload") == ref
    assert store.get(ref) == b"payload"


def test_storing_again_writes_nothing_when_all_is_well(tmp_path: Path) -> None:
    store = Blobs(str(tmp_path))
    path = Path(store.put(b"payload").uri)
    before = path.stat().st_ino
    store.put(b"payload")
    assert path.stat().st_ino == before


def test_no_partial_file_is_left(tmp_path: Path) -> None:
    ref = Blobs(str(tmp_path)).put(b"x" * 100_000)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [Path(ref.uri)]


def test_address_in_an_event_cannot_point_elsewhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s")
    store = Blobs(str(tmp_path / "blobs"))
    ref = msgspec.structs.replace(store.put(b"payload"), uri=str(secret))
    assert store.get(ref) == b"payload"
    with pytest.raises(BlobError, match="no SHA-256"):
        store.get(msgspec.structs.replace(ref, digest="../../secret"))


def test_unknown_scheme_is_one_line() -> None:
    with pytest.raises(BlobError, match="TEMPER_BLOBS"):
        Blobs("nowhere://x")


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BlobError, match="cannot write"):
        Blobs(str(tmp_path / "file" / "blobs")).put(b"x")


def test_a_driver_that_hangs_or_has_errors_of_its_own_fails_in_one_line(tmp_path: Path) -> None:
    class DriverError(Exception):
        """As those of object stores' clients: no OSError."""

    class Driver(MemoryFileSystem):  # type: ignore[misc]
        cachable = False
        gate = threading.Event()

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
            raise DriverError("403\nforbidden")

        def size(self, path: str) -> int:
            self.gate.wait(30.0)
            raise DriverError("gone")

        def glob(self, path: str, **_: object) -> dict[str, object]:
            raise DriverError("no such bucket")

    store = Blobs(f"memory://{tmp_path.name}", deadline_s=0.2)
    ref = store.put(b"payload")
    store._fs = Driver()
    with pytest.raises(BlobError, match="no such bucket; look at TEMPER_BLOBS"):
        store.listed()
    for call in (lambda: store.get(ref), lambda: store.find(ref.digest), lambda: store.put(b"payload")):
        with pytest.raises(BlobError, match=r"no answer within 0\.2 s") as caught:
            call()
        assert isinstance(caught.value.__cause__, OSError), "a store that is out of reach, for who asks"
    Driver.gate.set()
    with pytest.raises(BlobError, match="DriverError: gone") as caught:
        store.get(ref)
    assert isinstance(caught.value.__cause__, OSError), "out of reach, not damaged"
    assert "\n" not in str(caught.value)
