"""PLY files. Invariant: header and length agree before a byte of the body is read; the loader gets a header of ours.

Taken: elements `vertex` and `face` in this order and no other; scalar properties of vertices with x, y and z among them;
one list of whole-numbered indices first among a face's properties. In a binary file every face is a triangle and has
nothing beside its list.
"""

from __future__ import annotations

from typing import NamedTuple

from services.verifier.families.mesh_text import Caps, MeshError, Soup, lines, whole

MAX_HEADER = 8192
FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
SCALARS = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"}
SCALARS |= {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
SCALARS |= {"float": "f4", "double": "f8", "float32": "f4", "float64": "f8"}
INDICES = ("vertex_index", "vertex_indices")


class _Header(NamedTuple):
    order: str
    vertices: int
    faces: int
    columns: list[tuple[str, str]]
    counts: str
    indices: str
    more: int
    """Scalar properties of a face after its list."""


def clean(data: bytes, caps: Caps) -> bytes:
    """`data` with nothing but coordinates and triangles. Raises MeshError."""
    end = data.find(b"end_header")
    line_end = data.find(b"\n", end)
    if end < 0 or line_end < 0 or line_end > MAX_HEADER:
        raise MeshError("a PLY file has no header, or one that does not end")
    header = _header(data[:end])
    caps.check(header.vertices, header.faces)
    body = data[line_end + 1 :]
    return _text(header, body, caps) if not header.order else _binary(header, body)


def _header(raw: bytes) -> _Header:
    rows = [words for words in lines(raw) if words[0] not in ("comment", "obj_info")]
    if len(rows) < 2 or rows[0] != ["ply"] or rows[1][0] != "format":  # noqa: PLR2004
        raise MeshError("a PLY file starts with ply and its format")
    if rows[1][1:] not in [[name, "1.0"] for name in FORMATS]:
        raise MeshError(f"PLY format {' '.join(rows[1][1:])[:40]!r} is unknown")
    counts: dict[str, int] = {}
    columns: list[tuple[str, str]] = []
    listed: list[str] = []
    more = 0
    for words in rows[2:]:
        match (*counts, *words):
            case ["element", "vertex", count]:
                counts["vertex"] = whole(count)
            case ["vertex", "property", kind, name] if kind in SCALARS:
                columns.append((name, SCALARS[kind]))
            case ["vertex", "element", "face", count]:
                counts["face"] = whole(count)
            case ["vertex", "face", "property", "list", count_kind, kind, name] if not listed and not more:
                listed = [count_kind, kind, name]
            case ["vertex", "face", "property", kind, _] if listed and kind in SCALARS:
                more += 1
            case _:
                raise MeshError(f"a PLY header line that is not taken: {' '.join(words)[:60]!r}")
    names = [name for name, _ in columns]
    if len(counts) != 2 or any(names.count(axis) != 1 for axis in "xyz"):  # noqa: PLR2004
        raise MeshError("a PLY file needs vertices with x, y, z, and faces")
    if not listed or listed[2] not in INDICES:
        raise MeshError("the faces of a PLY file need one list vertex_indices")
    kinds = [SCALARS.get(word, "f") for word in listed[:2]]
    if any(kind[0] == "f" for kind in kinds):
        raise MeshError("the indices of a PLY file must be whole numbers")
    return _Header(FORMATS[rows[1][1]], counts["vertex"], counts["face"], columns, kinds[0], kinds[1], more)


def _text(header: _Header, body: bytes, caps: Caps) -> bytes:
    soup = Soup(caps)
    names = [name for name, _ in header.columns]
    places = [names.index(axis) for axis in "xyz"]
    for at, words in enumerate(lines(body)):
        if at < header.vertices:
            if len(words) != len(names):
                raise MeshError(f"a vertex has {len(words)} numbers, {len(names)} are announced")
            soup.vertex([words[place] for place in places], 3)
        elif at < header.vertices + header.faces:
            corners = whole(words[0])
            if len(words) != 1 + corners + header.more:
                raise MeshError("a face has not the numbers that it announces")
            soup.face([whole(word) for word in words[1 : 1 + corners]])
        else:
            raise MeshError("more lines than the PLY file announces")
    if len(soup.points) != header.vertices or soup.faces != header.faces:
        raise MeshError("fewer lines than the PLY file announces")
    soup.end()
    rows = [
        f"ply\nformat ascii 1.0\nelement vertex {len(soup.points)}",
        *(f"property double {axis}" for axis in "xyz"),
        f"element face {len(soup.triangles)}\nproperty list uchar int vertex_indices\nend_header",
        *soup.points,
        *(f"3 {a} {b} {c}" for a, b, c in soup.triangles),
    ]
    return ("\n".join(rows) + "\n").encode("ascii")


def _binary(header: _Header, body: bytes) -> bytes:
    import numpy as np

    order = header.order
    vertex = np.dtype([(f"a{n}", order + kind) for n, (_, kind) in enumerate(header.columns)])
    face = np.dtype([("count", order + header.counts), ("index", order + header.indices, (3,))])
    split = header.vertices * vertex.itemsize
    if header.more or len(body) != split + header.faces * face.itemsize:
        raise MeshError("a binary PLY must hold triangles only, and exactly as much as it announces")
    if not header.vertices or not header.faces:
        raise MeshError("the mesh is empty")
    rows = np.frombuffer(body[split:], dtype=face)
    if (rows["count"] != 3).any():  # noqa: PLR2004
        raise MeshError("a binary PLY must hold triangles only")
    points = np.frombuffer(body[:split], dtype=vertex)
    names = [name for name, _ in header.columns]
    made = np.empty(header.vertices, dtype=[(axis, "<f8") for axis in "xyz"])
    for axis in "xyz":
        made[axis] = points[f"a{names.index(axis)}"]
    packed = np.empty(header.faces, dtype=[("count", "u1"), ("index", "<i8", (3,))])
    packed["count"], packed["index"] = 3, rows["index"]
    if packed["index"].max() >= header.vertices or packed["index"].min() < 0:
        raise MeshError("a face names a vertex that is not there")
    head = [
        f"ply\nformat binary_little_endian 1.0\nelement vertex {header.vertices}",
        *(f"property double {axis}" for axis in "xyz"),
        f"element face {header.faces}\nproperty list uchar int64 vertex_indices\nend_header\n",
    ]
    return "\n".join(head).encode("ascii") + made.tobytes() + packed.tobytes()
