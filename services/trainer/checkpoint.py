"""Checkpoints on disk. Invariant: a folder named `v000012` is complete, or it is not what its own record says and is passed over.

A checkpoint is written under another name, synced, and renamed; `state/trainer.json` holds the digests of the files beside it.
Weights and configuration make it a Hugging Face folder of its own, so a resumed run needs nothing but the newest one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from schemas.tasks import PolicyRef
from services.runtime import faults
from services.runtime.errors import Unavailable
from services.trainer.assemble import Saved
from services.trainer.canary import Canary

FOLDER = re.compile(r"v(\d{6,})")
WEIGHTS, OPTIMISER, RECORD, CANARY = (
    "model.safetensors",
    "state/optimizer.safetensors",
    "state/trainer.json",
    "canary.json",
)
log = logging.getLogger(__name__)


class CheckpointError(Unavailable):
    """A checkpoint cannot be written."""


class DamagedError(ValueError):
    """A folder is not a complete checkpoint."""


class TrainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a resumed trainer needs beside tensors."""

    run: str
    version: int
    step: int
    final: bool = False
    digest: str = ""
    """SHA-256 of the weight file."""
    optimiser_digest: str = ""
    used_s: float = 0.0
    """Wall seconds of the training budget used so far."""
    offsets: dict[str, int] = {}
    """`topic/partition` -> offset to go on reading from."""
    assembly: Saved = msgspec.field(default_factory=Saved)
    scales: dict[str, float] = {}
    """Running deviation by domain."""
    python_rng: Any = None
    groups: tuple[str, ...] = ()
    """Ids of the groups that the step consumed."""
    metrics: dict[str, float] = {}
    """Figures of the step that led here, saving time excepted."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a folder holds."""

    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    """Optimiser tensors and torch's random state."""
    config: str
    """config.json."""
    assets: dict[str, bytes]
    """Tokenizer and other small files that engines want beside the weights."""
    canary: Canary
    record: TrainerRecord


class Store:
    """The checkpoints of one run."""

    def __init__(self, root: Path, keep: int) -> None:
        self.root = root
        self._keep = keep

    def folder(self, version: int) -> Path:
        """Where a version lies."""
        return self.root / f"v{version:06d}"

    def versions(self) -> list[int]:
        """Versions with a folder, complete or not, ascending."""
        if not self.root.is_dir():
            return []
        names = (FOLDER.fullmatch(path.name) for path in self.root.iterdir())
        return sorted(int(name[1]) for name in names if name is not None)

    def policy(self, record: TrainerRecord) -> PolicyRef:
        """The reference that events carry."""
        return PolicyRef(
            version=record.version, uri=str(self.folder(record.version).resolve()), digest=record.digest
        )

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint; damaged ones are named in the log and passed over."""
        for version in reversed(self.versions()):
            try:
                return self.load(version)
            except DamagedError as error:
                log.warning("%s: passed over: %s", self.folder(version), error)
        return None

    def load(self, version: int) -> Checkpoint:
        """A version, its digests checked.

        Raises:
            DamagedError: a file is missing, unreadable, or not the one that was written.
        """
        folder = self.folder(version)
        try:
            record = msgspec.json.decode((folder / RECORD).read_bytes(), type=TrainerRecord)
            if record.version != version:
                raise DamagedError(f"its record is of version {record.version}")
            for name, expected in ((WEIGHTS, record.digest), (OPTIMISER, record.optimiser_digest)):
                if _digest(folder / name) != expected:
                    raise DamagedError(f"{name} is not the file that was written")
            return Checkpoint(
                weights=load_file(folder / WEIGHTS),
                optimiser=load_file(folder / OPTIMISER),
                config=(folder / "config.json").read_text(encoding="utf-8"),
                assets=assets(folder),
                canary=msgspec.json.decode((folder / CANARY).read_bytes(), type=Canary),
                record=record,
            )
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, SafetensorError) as error:
            raise DamagedError(f"incomplete: {' '.join(str(error).split())[:200]}") from error

    def write(self, checkpoint: Checkpoint) -> TrainerRecord:
        """Write a version, durable when this returns; returns its record with the digests filled in.

        Versions other than 0, the newest `keep` and final ones are removed afterwards.

        Raises:
            CheckpointError: the disk refuses.
        """
        version = checkpoint.record.version
        target, scratch = self.folder(version), self.root / f".writing-v{version:06d}"
        try:
            _remove(scratch)
            (scratch / "state").mkdir(parents=True)
            save_file(checkpoint.weights, scratch / WEIGHTS, metadata={"format": "pt"})
            save_file(checkpoint.optimiser, scratch / OPTIMISER)
            record = msgspec.structs.replace(
                checkpoint.record,
                digest=_digest(scratch / WEIGHTS),
                optimiser_digest=_digest(scratch / OPTIMISER),
            )
            small = {
                **checkpoint.assets,
                "config.json": checkpoint.config.encode(),
                CANARY: msgspec.json.encode(checkpoint.canary),
                RECORD: msgspec.json.encode(record),
            }
            for name, data in small.items():
                (scratch / name).write_bytes(data)
            for path in (
                *(path for path in scratch.rglob("*") if path.is_file()),
                scratch / "state",
                scratch,
            ):
                _sync(path)
            # A folder of that name is one that was passed over: a version that loads is never written again.
            _remove(target)
            faults.at("trainer:before-rename")
            scratch.rename(target)
            faults.at("trainer:after-rename")
            _sync(self.root)
            self._prune(version)
        except OSError as error:
            raise CheckpointError(f"{target}: cannot be written: {error}") from error
        return record

    def finish(self, record: TrainerRecord) -> TrainerRecord:
        """Mark the version of `record`, already written, as the last of the run.

        Raises:
            CheckpointError: the disk refuses.
        """
        record = msgspec.structs.replace(record, final=True)
        path = self.folder(record.version) / RECORD
        scratch = path.with_name(".trainer.json")
        try:
            scratch.write_bytes(msgspec.json.encode(record))
            _sync(scratch)
            scratch.rename(path)
            _sync(path.parent)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be written: {error}") from error
        return record

    def _prune(self, newest: int) -> None:
        older = [version for version in self.versions() if 0 < version < newest]
        for version in older[: max(0, len(older) - self._keep + 1)]:
            # Renamed first, so that a removal cut short leaves no half a checkpoint under a good name.
            gone = self.root / f".removing-v{version:06d}"
            _remove(gone)
            self.folder(version).rename(gone)
            _remove(gone)


def assets(folder: Path) -> dict[str, bytes]:
    """The small files beside a model's weights, by name: tokenizer, chat template, generation settings."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file()
        and (
            path.suffix in {".json", ".jinja"} or path.name in {"tokenizer.model", "merges.txt", "vocab.txt"}
        )
        and path.name not in {"config.json", CANARY}
        and not path.name.endswith(".index.json")
    }


def special_tokens(config: Mapping[str, Any], small: Mapping[str, bytes]) -> frozenset[int]:
    """Ids that stand for no text: those the configuration names and those the tokenizer marks as special."""
    found: set[int] = set()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    tokenizer = msgspec.json.decode(small["tokenizer.json"]) if "tokenizer.json" in small else {}
    found.update(entry["id"] for entry in tokenizer.get("added_tokens", []) if entry.get("special"))
    return frozenset(found)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
