"""Tasks as they are kept. Invariant: decoding gives the very task; what it leaves at its defaults takes no room.

A backlog of a million tasks is mostly such bytes, and names of fields that say nothing would be a fifth of them.
"""

from __future__ import annotations

import msgspec

from schemas.tasks import Task

_FIELDS = msgspec.structs.fields(Task)
_Compact = msgspec.defstruct(
    "_Compact",
    [
        (field.name, object)
        if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
        else (field.name, object, field.default)
        if field.default is not msgspec.NODEFAULT
        else (field.name, object, msgspec.field(default_factory=field.default_factory))
        for field in _FIELDS
    ],
    omit_defaults=True,
    kw_only=True,
)
# msgspec leaves out what is the default object itself; an equal number that was decoded is another object.
_DEFAULTS = tuple((field.name, field.default) for field in _FIELDS)
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def encode_body(task: Task) -> bytes:
    """Canonical bytes of a task, for any decoder of `Task`."""
    given = {name: value for name, default in _DEFAULTS if (value := getattr(task, name)) != default}
    return _encoder.encode(_Compact(**given))
