"""The contract in files: JSON Schema and historic bytes. Invariant: what was once exported is never changed incompatibly.

`python -m schemas.export` brings `schemas/jsonschema/` and `schemas/golden/` up to date, and refuses to where an event
changed incompatibly: that needs a new VERSION, with the old struct kept in the registry. Golden bytes are only ever
added (`Type.v1.json`, `Type.v1.1.json`, ...). `--fresh` starts both folders anew; for the time before a first release.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from schemas.base import Event
from schemas.compat import incompatibilities
from schemas.envelope import JSON, MSGPACK, Envelope, encode
from schemas.events import REGISTRY
from schemas.examples import example

HERE = Path(__file__).resolve().parent
SUFFIX = {JSON: "json", MSGPACK: "msgpack"}


def schema_files() -> dict[str, bytes]:
    """File name -> JSON Schema, of every event version and of the envelope."""
    files = {f"{name}.v{version}.json": _schema(struct) for (name, version), struct in REGISTRY.items()}
    return files | {"Envelope.json": _schema(Envelope)}


def golden_files() -> dict[str, bytes]:
    """File name -> bytes of today's complete example, of every event version in both encodings."""
    files = {}
    for (name, version), struct in REGISTRY.items():
        for content_type, suffix in SUFFIX.items():
            files[f"{name}.v{version}.{suffix}"] = golden_bytes(example(struct), content_type)
    return files


def golden_bytes(event: Event, content_type: Any) -> bytes:
    """A record value with `event`; the same each time."""
    return encode(
        event,
        id="0123456789abcdef01234567",
        key="example",
        occurred_at=1767225600.5,
        producer="example",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        content_type=content_type,
    )


def broken(folder: Path = HERE / "jsonschema") -> Iterator[str]:
    """One line for each way in which today's structs break what `folder` promises."""
    today = schema_files()
    for path in sorted(folder.glob("*.json")):
        if path.name not in today:
            yield f"{path.name}: no longer in the registry"
            continue
        for problem in incompatibilities(
            msgspec.json.decode(path.read_bytes()), msgspec.json.decode(today[path.name])
        ):
            yield f"{path.name}: {problem}"


def export(root: Path = HERE, *, fresh: bool = False) -> list[str]:
    """Bring the exported files up to date; returns the names of those written.

    Raises:
        ValueError: an event changed incompatibly; nothing is written then.
    """
    schemas, golden = root / "jsonschema", root / "golden"
    problems = [] if fresh else list(broken(schemas))
    if problems:
        raise ValueError("; ".join(problems))
    written = []
    for folder, files in ((schemas, schema_files()), (golden, golden_files())):
        folder.mkdir(parents=True, exist_ok=True)
        if fresh:
            for path in folder.iterdir():
                path.unlink()
        for name, content in files.items():
            path = folder / name
            if folder == golden:
                path = _free(path, content)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
                written.append(path.name)
    return written


def _free(path: Path, content: bytes) -> Path:
    """`path`, or its next edition, whichever holds `content` or does not exist yet."""
    edition = 0
    candidate = path
    while candidate.exists() and candidate.read_bytes() != content:
        edition += 1
        candidate = path.with_name(f"{path.stem}.{edition}{path.suffix}")
    return candidate


def _schema(struct: type[msgspec.Struct]) -> bytes:
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(struct)}
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def main(argv: list[str]) -> int:
    """Command line; see the module."""
    if set(argv) - {"--fresh"}:
        sys.stderr.write("usage: python -m schemas.export [--fresh]\n")
        return 2
    try:
        written = export(fresh="--fresh" in argv)
    except ValueError as error:
        sys.stderr.write(
            f"incompatible change; give the event a new VERSION and keep the old struct: {error}\n"
        )
        return 1
    sys.stdout.write(f"{len(written)} files written\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
