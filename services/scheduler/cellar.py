"""Which snapshots stay in the blob store. Invariant: the newest whole ones stay, whoever dies where, and nothing young goes.

The snapshots of one shard lie in a store of their own, and no two share a part (each part carries a mark of its snapshot). So a
blob may go when it is of no snapshot from the oldest of the last `kept` whole ones on: those before it, those that are of
another fold version, and parts of a snapshot that was never announced because its writer died. What is younger than GRACE_S
stays: it may be of a snapshot that is being written, or read. Blobs go one by one, in any order, by any number of processes:
whoever is killed, the next round takes what is left. Fewer whole ones than `kept`: nothing that was announced goes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import msgspec

from schemas.snapshots import SnapshotStored
from schemas.trajectories import BlobRef
from services.runtime import faults
from services.runtime.blobs import BlobError, Blobs
from services.scheduler.snapshot import FOLD_VERSION

GRACE_S = 900.0
log = logging.getLogger(__name__)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one snapshot, oldest first."""

    parts: tuple[BlobRef, ...]


_manifests = msgspec.json.Decoder(Manifest)


def store_of(blobs: Blobs, prefix: str, shard: int) -> Blobs:
    """Where the snapshots of a shard of an installation lie."""
    return blobs.under("scheduler", prefix, str(shard))


def manifest_of(blobs: Blobs, event: SnapshotStored) -> Manifest:
    """The parts of a snapshot.

    Raises:
        BlobError: missing, damaged or no manifest.
    """
    try:
        return _manifests.decode(blobs.get(event.manifest))
    except msgspec.MsgspecError as error:
        raise BlobError(f"blob {event.manifest.uri}: is no list of parts: {error}") from error


def whole(blobs: Blobs, event: SnapshotStored) -> frozenset[str]:
    """Digests of all blobs of a snapshot that this version can go on from and that is all there; empty if it is not."""
    if event.fold != FOLD_VERSION:
        return frozenset()
    try:
        parts = manifest_of(blobs, event).parts
        for part in parts:
            found = blobs.find(part.digest)
            if found is None or found.size != part.size:
                return frozenset()
    except BlobError as error:
        log.debug("the snapshot at seq %d is not whole: %s", event.seq, error)
        return frozenset()
    return frozenset({event.manifest.digest, *(part.digest for part in parts)})


def tidy(
    blobs: Blobs,
    events: Sequence[SnapshotStored],
    kept: int,
    *,
    grace_s: float = GRACE_S,
    now: float | None = None,
) -> int:
    """Remove what may go from `blobs`, the store of one shard, given all its announced snapshots, oldest first.

    Returns how many blobs went. `now`: of the store's clock; the wall's unless given.

    Raises:
        BlobError: the store cannot be asked, or does not remove.
    """
    there = blobs.listed()  # first: what is written after this is not looked at
    needed: set[str] = set()
    good = 0
    for event in reversed(events):
        needed.add(event.manifest.digest)
        digests = whole(blobs, event)
        needed |= digests
        if not digests:
            needed |= _parts(
                blobs, event
            )  # another version's, or damaged: as long as it is among the last ones
        good += bool(digests)
        if good >= kept:
            break
    else:
        return 0
    before = (time.time() if now is None else now) - grace_s
    gone = [name for name, written in sorted(there.items()) if name not in needed and written < before]
    for name in gone:
        faults.at("scheduler:before-tidy")
        blobs.remove(name)
    return len(gone)


def _parts(blobs: Blobs, event: SnapshotStored) -> set[str]:
    try:
        return {part.digest for part in manifest_of(blobs, event).parts}
    except BlobError:
        return set()
