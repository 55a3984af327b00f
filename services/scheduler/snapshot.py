"""State as bytes. Invariant: equal states have equal bytes, and `restore(snapshot(state))` folds on exactly like `state`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from schemas.ids import digest
from services.scheduler.forget import line_of
from services.scheduler.keys import keep
from services.scheduler.records import Claim, Domain, Ended, Meta, Pending, TaskEntry, Worker
from services.scheduler.state import State, place

FOLD_VERSION = 8
"""Raised when the fold or its records change meaning; a snapshot of another version is discarded and rebuilt from the log."""

PORTION = 10_000
"""Entries that are placed in one go."""

Record = TaskEntry | Ended | Domain | Worker | Claim | Pending

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_tasks = msgspec.msgpack.Decoder(TaskEntry | Ended)
_domains = msgspec.msgpack.Decoder(Domain)
_workers = msgspec.msgpack.Decoder(Worker)
_claims = msgspec.msgpack.Decoder(Claim)
_pending = msgspec.msgpack.Decoder(Pending)


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
    """All fields: `task:<id>`, `domain:<name>`, `worker:<name>`, `key:<key>`, `asked:<task id>`, `meta`."""
    fields = {"task:" + entry.id: encode(entry) for entry in state.live.values()}
    fields |= {"task:" + ended.id: encode(ended) for ended in state.ended.values()}
    fields |= {"domain:" + domain.name: encode(domain) for domain in state.domains.values()}
    fields |= {"worker:" + worker.name: encode(worker) for worker in state.workers.values()}
    fields |= {"key:" + claim.key: encode(claim) for claim in state.claims.values()}
    fields |= {"asked:" + pending.id: encode(pending) for pending in state.pending.values()}
    fields["meta"] = encode_meta(state)
    return fields


def encode_fields(state: State, names: Iterable[str]) -> dict[str, bytes | None]:
    """These fields as they are now, None where one is gone."""
    changes: dict[str, bytes | None] = {}
    for field in names:
        kind, _, name = field.partition(":")
        record: Record | None
        if kind == "task":
            record = state.live.get(name) or state.ended.get(name)
        elif kind == "domain":
            record = state.domains.get(name)
        elif kind == "key":
            record = state.claims.get(name)
        elif kind == "asked":
            record = state.pending.get(name)
        else:
            record = state.workers.get(name)
        changes[field] = None if record is None else encode(record)
    return changes


def names_of_keys(state: State) -> list[str]:
    """Fields of keys that are at home here, and of submissions that wait for word on theirs."""
    return ["key:" + key for key in state.claims] + ["asked:" + name for name in state.pending]


class Restorer:
    """Puts a state together from portions of the fields that `snapshot` wrote, in any order."""

    def __init__(self) -> None:
        self._state = State()
        self._live: list[TaskEntry] = []
        self._header = self._placed = False

    def add(self, fields: Mapping[str, bytes]) -> None:
        """Take some fields in; each field once.

        Raises:
            SnapshotError: another fold version, or a field that does not decode.
        """
        state = self._state
        try:
            for field, value in fields.items():
                if field.startswith("task:"):
                    record = _tasks.decode(value)
                    if isinstance(record, Ended):
                        _restore_ended(state, record)
                    else:
                        self._live.append(record)
                elif field.startswith("domain:"):
                    domain = _domains.decode(value)
                    state.domains[domain.name] = domain
                elif field.startswith("worker:"):
                    worker = _workers.decode(value)
                    state.workers[worker.name] = worker
                elif field.startswith("key:"):
                    claim = _claims.decode(value)
                    state.claims[claim.key] = claim
                elif field.startswith("asked:"):
                    keep(state, _pending.decode(value))
                elif field == "meta":
                    self._take_header(value)
        except msgspec.MsgspecError as error:
            raise SnapshotError(f"snapshot does not decode: {error}") from error

    def placing(self) -> Iterator[None]:
        """Put the entries under their indexes; yields now and then, for who has to look after something else meanwhile.

        Raises:
            SnapshotError: no meta field was among what was added.
        """
        if not self._header:
            raise SnapshotError("snapshot has no meta field")
        if self._placed:
            return
        self._placed = True
        state = self._state
        state.domains = dict(sorted(state.domains.items()))
        state.workers = dict(sorted(state.workers.items()))
        state.claims = dict(sorted(state.claims.items(), key=lambda item: item[1].number))
        state.claimed.extend(state.claims)
        for ended in sorted(state.ended.values(), key=lambda found: found.number):
            line_of(state, ended).append(ended.id)
        self._live.sort(key=lambda entry: entry.order)
        for number, entry in enumerate(self._live):
            place(state, entry)
            if entry.key:
                state.keys[entry.key] = entry.id
            if number % PORTION == 0:
                yield
        self._live.clear()
        state.changed.clear()

    def finish(self) -> State:
        """The state.

        Raises:
            SnapshotError: no meta field was among what was added.
        """
        for _ in self.placing():
            pass
        return self._state

    def _take_header(self, value: bytes) -> None:
        header = _header.decode(value)
        if header.fold != FOLD_VERSION:
            raise SnapshotError(
                f"snapshot is of fold version {header.fold}, this scheduler has {FOLD_VERSION}"
            )
        self._state.meta = header.meta
        self._header = True


def restore(fields: Mapping[str, bytes]) -> State:
    """The state that `snapshot` wrote.

    Raises:
        SnapshotError: no meta field, another fold version, or a field that does not decode.
    """
    if "meta" not in fields:
        raise SnapshotError("snapshot has no meta field")
    restorer = Restorer()
    restorer.add(fields)
    return restorer.finish()


def _restore_ended(state: State, record: Ended) -> None:
    state.ended[record.id] = record
    if record.key and record.state != "rejected":
        state.keys[record.key] = record.id


def state_digest(state: State) -> str:
    """Digest of all fields."""
    return digest(_encoder.encode(sorted(snapshot(state).items())))
