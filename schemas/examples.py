"""Complete example instances. Invariant: every field of an example is set, to a value other than its default where one exists."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

TEXT = "example"


def example[T: msgspec.Struct](struct: type[T]) -> T:
    """The example of `struct`: a function of its definition alone."""
    value: T = msgspec.convert(_value(inspect.type_info(struct)), struct)
    return value


def _value(kind: inspect.Type) -> Any:
    match kind:
        case inspect.StructType(fields=fields):
            return {field.encode_name: _field(field) for field in fields}
        case inspect.UnionType(types=types):
            return _value(next(option for option in types if not isinstance(option, inspect.NoneType)))
        case inspect.LiteralType(values=values):
            return values[-1]
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [_value(item)]
        case inspect.DictType(value_type=value):
            return {TEXT: _value(value)}
        case _:
            return _scalar(kind)


def _field(field: inspect.Field) -> Any:
    if isinstance(field.type, inspect.BoolType):
        return field.default is not True
    return _value(field.type)


def _scalar(kind: inspect.Type) -> str | int | float | bool | None:
    match kind:
        case inspect.StrType(max_length=limit):
            return TEXT if limit is None else TEXT[:limit]
        case inspect.BoolType():
            return True
        case inspect.IntType(ge=low, le=high):
            return min(max(3, low or 3), 3 if high is None else high)
        case inspect.FloatType(ge=low, le=high, gt=above):
            return min(max(0.75, low or 0.75, above or 0.75), 0.75 if high is None else high)
        case inspect.AnyType():
            return TEXT
        case _:
            raise TypeError(f"no example for {kind}")
