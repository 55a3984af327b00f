"""Deterministic identities. Invariant: the same effect has the same id, so a duplicate changes nothing."""

from __future__ import annotations

import hashlib


def digest(data: bytes) -> str:
    """SHA-256 of `data` in hexadecimal: the content hash used for blobs, answers and checkpoints."""
    return hashlib.sha256(data).hexdigest()


def derive(kind: str, *parts: str | int) -> str:
    """A 24-digit id for `kind` made from `parts`; parts are length-prefixed, so no two lists of parts collide."""
    joined = kind
    for part in parts:
        text = str(part)
        joined += f"\n{len(text) if text.isascii() else len(text.encode())}:{text}"
    return hashlib.sha256(joined.encode()).hexdigest()[:24]


def group_id(task_id: str, attempt: int) -> str:
    """Id of the group of samples drawn for one attempt at a task."""
    return derive("group", task_id, attempt)


def lease_id(task_id: str, attempt: int) -> str:
    """Id of the lease under which an attempt is worked on; a new dispatch is a new attempt, hence a new lease."""
    return derive("lease", task_id, attempt)


def trajectory_id(task_id: str, attempt: int, index: int) -> str:
    """Id of sample `index` (from 0) of an attempt."""
    return derive("trajectory", task_id, attempt, index)


def event_id(type_name: str, *parts: str | int) -> str:
    """Id of an event whose content is determined by `parts`."""
    return derive("event:" + type_name, *parts)
