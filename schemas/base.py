"""What every event is: a frozen keyword-only struct with a type name and a version. Invariant: additive change only."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events.

    A new field needs a default; removing, renaming or narrowing one needs a new `VERSION`, whose predecessor stays decodable.
    """

    VERSION: ClassVar[int] = 1
    """Version of the struct's contract; the envelope carries it beside the type name."""

    @classmethod
    def type_name(cls) -> str:
        """The name the envelope carries: the class name."""
        return cls.__name__


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts that events are made of."""
