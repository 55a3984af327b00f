"""State as bytes. Invariant: equal states have equal bytes, and `restore(snapshot(state))` folds on exactly like `state`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from schemas.ids import digest
from services.scheduler.state import Domain, Ended, Meta, State, TaskEntry, Worker, place

FOLD_VERSION = 3
"""Raised when the fold or its records change meaning; a snapshot of another version is discarded and rebuilt from the log."""

Record = TaskEntry | Ended | Domain | Worker

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_tasks = msgspec.msgpack.Decoder(TaskEntry | Ended)
_domains = msgspec.msgpack.Decoder(Domain)
_workers = msgspec.msgpack.Decoder(Worker)


class _Header(msgspec.Struct, kw_only=True):
    fold: int
    meta: Meta


_header = msgspec.msgpack.Decoder(_Header)


class SnapshotError(ValueError):
    """Stored fields are no snapshot of this fold version; the message says what is wrong."""


def encode(record: Record) -> bytes:
    """Canonical bytes of one record."""
    return _encoder.encode(record)


def encode_meta(state: State) -> bytes:
    """Canonical bytes of the meta field."""
    return _encoder.encode(_Header(fold=FOLD_VERSION, meta=state.meta))


def snapshot(state: State) -> dict[str, bytes]:
    """All fields: `task:<id>`, `domain:<name>`, `worker:<name>`, `meta`."""
    fields = {"task:" + entry.id: encode(entry) for entry in state.live.values()}
    fields |= {"task:" + ended.id: encode(ended) for ended in state.ended.values()}
    fields |= {"domain:" + domain.name: encode(domain) for domain in state.domains.values()}
    fields |= {"worker:" + worker.name: encode(worker) for worker in state.workers.values()}
    fields["meta"] = encode_meta(state)
    return fields


def take_changes(state: State) -> dict[str, bytes | None]:
    """Fields that changed since the last call, None where a field is gone; `meta` is always among them."""
    changes: dict[str, bytes | None] = {}
    for field in sorted(state.changed):
        kind, _, name = field.partition(":")
        record: Record | None
        if kind == "task":
            record = state.live.get(name) or state.ended.get(name)
        elif kind == "domain":
            record = state.domains.get(name)
        else:
            record = state.workers.get(name)
        changes[field] = None if record is None else encode(record)
    changes["meta"] = encode_meta(state)
    state.changed.clear()
    return changes


def restore(fields: Mapping[str, bytes]) -> State:
    """The state that `snapshot` wrote.

    Raises:
        SnapshotError: no meta field, another fold version, or a field that does not decode.
    """
    state = State()
    if "meta" not in fields:
        raise SnapshotError("snapshot has no meta field")
    try:
        header = _header.decode(fields["meta"])
        if header.fold != FOLD_VERSION:
            raise SnapshotError(
                f"snapshot is of fold version {header.fold}, this scheduler has {FOLD_VERSION}"
            )
        state.meta = header.meta
        for field in sorted(fields):
            kind, _, _ = field.partition(":")
            if kind == "task":
                _restore_task(state, _tasks.decode(fields[field]))
            elif kind == "domain":
                domain = _domains.decode(fields[field])
                state.domains[domain.name] = domain
            elif kind == "worker":
                worker = _workers.decode(fields[field])
                state.workers[worker.name] = worker
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"snapshot does not decode: {error}") from error
    state.changed.clear()
    return state


def _restore_task(state: State, record: TaskEntry | Ended) -> None:
    if isinstance(record, Ended):
        state.ended[record.id] = record
    else:
        place(state, record)
    if record.key and not (isinstance(record, Ended) and record.state == "rejected"):
        state.keys[record.key] = record.id


def state_digest(state: State) -> str:
    """Digest of all fields."""
    return digest(_encoder.encode(sorted(snapshot(state).items())))
