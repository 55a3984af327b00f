"""Settings from files, overrides and the environment. Invariant: an unknown key is an error that names its nearest known one."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import inspect

from schemas import plain
from schemas.run import RunConfig
from services.runtime.errors import BadInput

LAST_PORT = 65535
Table = dict[str, Any]


class SettingsError(BadInput):
    """A setting that cannot be used; the message names the dotted key or the environment variable."""


@dataclass(frozen=True)
class Process:
    """What one service process is told by its environment."""

    kafka: str
    """Bootstrap servers, `host:port[,host:port]`."""
    redis: str
    """Redis address, `redis://host:port/db`; empty where the environment names none."""
    prefix: str
    """Put in front of every topic and group name."""
    blobs: str
    """fsspec address or folder of the blob store."""
    run_dir: Path
    config: RunConfig
    worker: str
    health_port: int
    """Port of the health endpoint on the loopback interface; 0 takes a free one."""


def merge(*tables: Mapping[str, Any]) -> Table:
    """`tables` laid over each other from left to right; nested tables are merged, everything else is replaced."""
    merged: Table = {}
    for table in tables:
        for key, value in table.items():
            below = merged.get(key)
            if isinstance(value, Mapping):
                merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
            else:
                merged[key] = value
    return merged


def parse_overrides(argv: Sequence[str], schema: type[msgspec.Struct] | None = None) -> Table:
    """The table that `--a.b value` and `--a.b=value` arguments spell.

    Values are TOML (`3`, `true`, `[1, 2]`, `"text"`) and plain text otherwise; where `schema` says that the key holds text,
    the value is taken as it stands. `-` and `_` mean the same in keys.

    Raises:
        SettingsError: an argument that is no override, or one without its value.
    """
    table: Table = {}
    for key, raw in _pairs(argv):
        path = key.replace("-", "_").split(".")
        if not all(path):
            raise SettingsError(f"--{key}: not a setting; write --section.key value")
        value: Any = raw if schema is not None and _is_text(schema, path) else _parse_value(raw)
        for part in reversed(path):
            value = {part: value}
        table = merge(table, value)
    return table


def resolve(argv: Sequence[str]) -> RunConfig:
    """The run's configuration: `@file.toml` arguments from left to right, then the overrides, over the defaults.

    Raises:
        SettingsError: an unreadable file, an unknown key, or a value out of its range.
    """
    files = [argument[1:] for argument in argv if argument.startswith("@")]
    overrides = parse_overrides([argument for argument in argv if not argument.startswith("@")], RunConfig)
    tables = []
    for name in files:
        table = _load(Path(name))
        convert(table, RunConfig, where=f"{name}: ")
        tables.append(table)
    return convert(merge(*tables, overrides), RunConfig)


def convert[T: msgspec.Struct](table: Mapping[str, Any], schema: type[T], *, where: str = "") -> T:
    """`table` as a `schema` struct; `where` stands in front of errors.

    Raises:
        SettingsError: an unknown key (with the nearest known one), or a value that does not fit.
    """
    for key in _unknown(table, schema, ()):
        parent, _, last = key.rpartition(".")
        known = _known(schema, parent.split(".") if parent else [])
        near = difflib.get_close_matches(last, known, n=1, cutoff=0.5)
        prefix = parent + "." if parent else ""
        hint = (
            f"did you mean {prefix}{near[0]}?"
            if near
            else f"known here: {', '.join(prefix + name for name in known)}"
        )
        raise SettingsError(f"{where}unknown setting {key}; {hint}")
    for name, value in table.items():
        # What no event could carry: infinities and whole numbers beyond 64 bits are numbers to TOML.
        if said := plain.fault(value, name):
            raise SettingsError(f"{where}{said}")
    try:
        return msgspec.convert(dict(table), schema)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        key = path.rstrip("`").lstrip(".")
        raise SettingsError(f"{where}{key + ': ' if key else ''}{message[0].lower()}{message[1:]}") from error


def to_json(config: msgspec.Struct) -> bytes:
    """The configuration as readable JSON, every default spelled out; `load_json` reads it back."""
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"


def load_json[T: msgspec.Struct](path: Path, schema: type[T]) -> T:
    """A configuration that `to_json` wrote.

    Raises:
        SettingsError: unreadable, not JSON, or not such a configuration.
    """
    try:
        table = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as a configuration: {error}") from error
    return convert(table, schema, where=f"{path}: ")


def process(service: str = "worker", environ: Mapping[str, str] | None = None) -> Process:
    """Settings of this process from the TEMPER_* variables.

    Raises:
        SettingsError: TEMPER_KAFKA is missing, or a variable does not hold what it should.
    """
    env = os.environ if environ is None else environ
    kafka = env.get("TEMPER_KAFKA", "")
    if not kafka:
        raise SettingsError(
            "TEMPER_KAFKA is not set; give the broker as host:port, or start everything with `temper up`"
        )
    path = env.get("TEMPER_CONFIG", "")
    config = load_json(Path(path), RunConfig) if path else RunConfig()
    run_dir = Path(env.get("TEMPER_RUN_DIR") or Path("runs") / config.name)
    port = env.get("TEMPER_HEALTH_PORT") or "0"
    if not port.isdecimal() or int(port) > LAST_PORT:
        raise SettingsError(f"TEMPER_HEALTH_PORT is {port!r}; give a port number, or 0 for a free one")
    prefix = env.get("TEMPER_PREFIX", "")
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", prefix):
        raise SettingsError(
            f"TEMPER_PREFIX is {prefix!r}; topic names take letters, digits, '.', '_' and '-' only"
        )
    return Process(
        kafka=kafka,
        redis=env.get("TEMPER_REDIS", ""),
        prefix=prefix,
        blobs=env.get("TEMPER_BLOBS") or str(run_dir / "blobs"),
        run_dir=run_dir,
        config=config,
        worker=env.get("TEMPER_WORKER") or f"{service}-{os.getpid()}",
        health_port=int(port),
    )


def _pairs(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith("--") or argument == "--":
            raise SettingsError(f"{argument!r} is neither @file.toml nor --section.key value")
        key, equals, value = argument[2:].partition("=")
        if not equals:
            following = next(arguments, None)
            if following is None or following.startswith("--"):
                raise SettingsError(f"--{key} has no value; write --{key} value")
            value = following
        yield key, value


def _parse_value(raw: str) -> Any:
    try:
        table = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        return raw
    return table["value"] if len(table) == 1 else raw


def _load(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error


def _fields(schema: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    info = cast("inspect.StructType", inspect.type_info(schema))
    return {field.encode_name: field.type for field in info.fields}


def _unknown(table: Mapping[str, Any], schema: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[str]:
    fields = _fields(schema)
    for key, value in table.items():
        kind = fields.get(key)
        if kind is None:
            yield ".".join((*path, key))
        elif isinstance(kind, inspect.StructType) and isinstance(value, Mapping):
            yield from _unknown(value, kind.cls, (*path, key))


def _known(schema: type[msgspec.Struct], path: Sequence[str]) -> list[str]:
    for part in path:
        schema = cast("inspect.StructType", _fields(schema)[part]).cls
    return list(_fields(schema))


def _is_text(schema: type[msgspec.Struct], path: Sequence[str]) -> bool:
    for index, part in enumerate(path):
        kind = _fields(schema).get(part)
        if isinstance(kind, inspect.StructType):
            schema = kind.cls
        else:
            last = index == len(path) - 1
            return last and isinstance(kind, inspect.StrType)
    return False
