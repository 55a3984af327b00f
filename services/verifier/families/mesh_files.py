"""Mesh files of a model's making, read as data. Invariant: what reaches a loader is small, finite and whole.

Four formats, named by the caller and never guessed from the bytes: STL (binary, ASCII), OBJ, OFF and PLY (ASCII, binary).
Each is checked here first, in one pass over bytes that are already in memory: announced counts against the length and the
caps, every number finite, every index in range. What the format knows beyond vertices and faces (materials, textures,
colours, normals, names, comments) is left out, so that no loader ever sees a reference to another file. A polygon becomes
a fan of triangles. The loader (trimesh) then gets a file of our own making.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from services.verifier.families import mesh_ply
from services.verifier.families.mesh_text import Caps, MeshError, Soup, lines, point, whole

if TYPE_CHECKING:
    from trimesh import Trimesh

FORMATS = ("stl", "obj", "off", "ply")
MAX_COORDINATE = 1e6
STL_HEAD, STL_FACET = 84, 50

__all__ = ["FORMATS", "Caps", "MeshError", "Read", "load", "sniff"]


@dataclass(frozen=True, slots=True)
class Read:
    """A mesh as it was read: vertices (n, 3) finite float64, faces (m, 3) int64 in range, neither empty."""

    vertices: Any
    faces: Any


def sniff(text: str) -> str:
    """The format of an answer that is itself a mesh text: `solid` opens an STL, `OFF` an OFF, anything else is an OBJ."""
    head = text.lstrip()[:5].lower()
    return "stl" if head == "solid" else "off" if head[:3] == "off" else "obj"


def load(data: bytes, kind: str, caps: Caps) -> Read:
    """The mesh in `data`, a file of format `kind`. Raises MeshError in one line; whatever the bytes are, nothing else."""
    if len(data) > caps.bytes:
        raise MeshError(f"the mesh has {len(data)} bytes, {caps.bytes} are allowed")
    if not data:
        raise MeshError("the mesh file is empty")
    return _checked(_parsed(_PARSERS[kind](data, caps), kind), caps)


def _parsed(clean: bytes, kind: str) -> Trimesh:
    import trimesh

    try:
        return trimesh.load_mesh(
            BytesIO(clean), file_type=kind, process=False, skip_materials=True, maintain_order=True
        )
    except MemoryError:
        raise
    except Exception as error:  # a loader on bytes from outside: whatever it raises, the bytes are at fault
        raise MeshError(f"the {kind} file cannot be read: {type(error).__name__}") from error


def _checked(mesh: Any, caps: Caps) -> Read:
    import numpy as np

    vertices = np.array(getattr(mesh, "vertices", ()), dtype=np.float64)
    faces = np.array(getattr(mesh, "faces", ()), dtype=np.int64)
    if vertices.size == 0 or faces.size == 0:
        raise MeshError("the mesh is empty")
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:  # noqa: PLR2004
        raise MeshError("the mesh is not made of triangles in space")
    caps.check(len(vertices), len(faces))
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise MeshError("a face names a vertex that is not there")
    largest = float(np.abs(vertices).max()) if np.isfinite(vertices).all() else math.inf
    if largest > MAX_COORDINATE:
        raise MeshError(f"a coordinate is not finite or beyond {MAX_COORDINATE:g}")
    return Read(vertices, faces)


def _stl(data: bytes, caps: Caps) -> bytes:
    if len(data) >= STL_HEAD:
        count = int.from_bytes(data[80:STL_HEAD], "little")
        if len(data) == STL_HEAD + STL_FACET * count:
            caps.check(3, count)
            return bytes(80) + data[80:]
    if data.lstrip()[:5].lower() != b"solid":
        raise MeshError(
            "neither an ASCII STL nor a binary one whose length is that of the triangles it announces"
        )
    made: list[str] = []
    opened = 0
    for words in lines(data):
        word = words[0].lower()
        if word == "vertex":
            made.append(" ".join(point(words[1:4], len(words) - 1)))
        elif word == "facet":
            if len(made) != 3 * opened:
                raise MeshError("a facet of the STL has no three vertices")
            opened += 1
            caps.check(len(made), opened)
        elif word not in ("solid", "endsolid", "outer", "endloop", "endfacet"):
            raise MeshError(f"an STL line starts with {word[:20]!r}")
    if len(made) != 3 * opened or not made:
        raise MeshError("a facet of the STL has no three vertices" if made else "the mesh is empty")
    return ("solid s\n" + "".join(f"vertex {each}\n" for each in made) + "endsolid s\n").encode("ascii")


def _obj(data: bytes, caps: Caps) -> bytes:
    soup = Soup(caps)
    for words in lines(data):
        if words[0] == "v":
            # An optional weight or colour follows the three coordinates.
            soup.vertex(words[1:4], 3 if len(words) in (5, 7) else len(words) - 1)
        elif words[0] == "f":
            soup.face([whole(word.partition("/")[0]) - 1 for word in words[1:]])
    soup.end()
    points = "".join(f"v {each}\n" for each in soup.points)
    corners = "".join(f"f {a + 1} {b + 1} {c + 1}\n" for a, b, c in soup.triangles)
    return (points + corners).encode("ascii")


def _off(data: bytes, caps: Caps) -> bytes:
    rows = lines(data)
    head = next(rows, [""])
    if head[0].upper() != "OFF":
        raise MeshError("an OFF file starts with OFF")
    counts = [whole(word) for word in (head[1:] or next(rows, []))]
    if len(counts) not in (2, 3):
        raise MeshError("an OFF file gives its counts in the second line")
    soup = Soup(caps)
    caps.check(counts[0], counts[1])
    for at, words in enumerate(rows):
        if at < counts[0]:
            soup.vertex(words[:3], len(words))
        elif at < counts[0] + counts[1]:
            # Numbers after the corners are a colour.
            corners = whole(words[0])
            if len(words) <= corners:
                raise MeshError("a face has fewer corners than it announces")
            soup.face([whole(word) for word in words[1 : 1 + corners]])
        else:
            raise MeshError("more lines than the OFF file announces")
    if len(soup.points) != counts[0] or soup.faces != counts[1]:
        raise MeshError("fewer lines than the OFF file announces")
    soup.end()
    return soup.off()


_PARSERS = {"stl": _stl, "obj": _obj, "off": _off, "ply": mesh_ply.clean}
